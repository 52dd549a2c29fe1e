# SPDX-License-Identifier: MIT
#[=======================================================================[.rst:
FindLibaio
----------

Finds libaio, the user-space side of Linux's native asynchronous I/O. It ships neither a CMake package nor a
pkg-config file.

Defines the imported target ``Libaio::Libaio`` and the variables ``Libaio_FOUND``, ``Libaio_INCLUDE_DIRS`` and
``Libaio_LIBRARIES``. Hints: ``Libaio_ROOT``, or the cache variables ``Libaio_INCLUDE_DIR`` and ``Libaio_LIBRARY``.
#]=======================================================================]
find_path(
  Libaio_INCLUDE_DIR
  NAMES libaio.h
  DOC "Directory of libaio.h")
find_library(
  Libaio_LIBRARY
  NAMES aio
  DOC "libaio")
mark_as_advanced(Libaio_INCLUDE_DIR Libaio_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libaio REQUIRED_VARS Libaio_LIBRARY Libaio_INCLUDE_DIR)

if(Libaio_FOUND)
  set(Libaio_INCLUDE_DIRS "${Libaio_INCLUDE_DIR}")
  set(Libaio_LIBRARIES "${Libaio_LIBRARY}")
  if(NOT TARGET Libaio::Libaio)
    add_library(Libaio::Libaio UNKNOWN IMPORTED)
    set_target_properties(
      Libaio::Libaio PROPERTIES IMPORTED_LOCATION "${Libaio_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                      "${Libaio_INCLUDE_DIR}")
  endif()
endif()
