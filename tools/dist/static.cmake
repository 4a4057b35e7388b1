# For wheels (tools/dist.sh): links everything in NETFOLD_DIST, the static libraries of tools/dist/libraries, and for
# glibc 2.28. The objects are those of any other build.
set(static_fmt::fmt fmt)
set(static_spdlog::spdlog spdlog)
foreach(target fmt::fmt spdlog::spdlog)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_RELWITHDEBINFO
                        ${NETFOLD_DIST}/lib${static_${target}}.a)
endforeach()
set_target_properties(PkgConfig::SODIUM PROPERTIES INTERFACE_LINK_LIBRARIES ${NETFOLD_DIST}/libsodium.a)
set_target_properties(PkgConfig::ISAL PROPERTIES INTERFACE_LINK_LIBRARIES ${NETFOLD_DIST}/libisal.a)
set(HTTPLIB_INCLUDE_DIR ${NETFOLD_DIST}/httplib)

find_package(Python REQUIRED COMPONENTS Interpreter)
set(CMAKE_CXX_LINKER_LAUNCHER ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/link.py ${CMAKE_SYSTEM_PROCESSOR}
    ${NETFOLD_DIST}/libglibc.a)
set(CMAKE_SKIP_RPATH ON)

install(DIRECTORY ${NETFOLD_DIST}/licenses DESTINATION netfold)  # their texts (licenses.py)
