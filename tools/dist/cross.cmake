# The toolchain for wheels of another processor than this machine's (tools/dist.sh): Debian's cross compiler, and
# Debian's packages for that processor in the folder NETFOLD_DIST_ROOT (packages.sh). Both are variables of the
# environment, so that CMake's checks have them too.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{NETFOLD_DIST_PROCESSOR})
set(CMAKE_C_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-g++)

set(root $ENV{NETFOLD_DIST_ROOT})
set(multiarch ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/${multiarch}/pkgconfig:${root}/usr/share/pkgconfig)

# The compiler has its own headers of glibc; those of the packages come after them, as /usr/include does.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "-idirafter ${root}/usr/include/${multiarch} -idirafter ${root}/usr/include")
endforeach()

# mpicc is this machine's, so its answers are not asked for. The libraries that Open MPI's own needs are not there: a
# program of MPI brings them.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${root}/usr/lib/${multiarch}/openmpi/lib/libmpi.so)
set(MPI_C_HEADER_DIR ${root}/usr/lib/${multiarch}/openmpi/include)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--allow-shlib-undefined")
