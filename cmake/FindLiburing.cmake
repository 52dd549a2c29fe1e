# SPDX-License-Identifier: MIT
#[=======================================================================[.rst:
FindLiburing
------------

Finds liburing, the user-space side of Linux's io_uring. It ships no CMake package.

Defines the imported target ``Liburing::Liburing`` and the variables ``Liburing_FOUND``, ``Liburing_INCLUDE_DIRS`` and
``Liburing_LIBRARIES``. Hints: ``Liburing_ROOT``, or the cache variables ``Liburing_INCLUDE_DIR`` and
``Liburing_LIBRARY``.
#]=======================================================================]
find_path(
  Liburing_INCLUDE_DIR
  NAMES liburing.h
  DOC "Directory of liburing.h")
find_library(
  Liburing_LIBRARY
  NAMES uring
  DOC "liburing")
mark_as_advanced(Liburing_INCLUDE_DIR Liburing_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing REQUIRED_VARS Liburing_LIBRARY Liburing_INCLUDE_DIR)

if(Liburing_FOUND)
  set(Liburing_INCLUDE_DIRS "${Liburing_INCLUDE_DIR}")
  set(Liburing_LIBRARIES "${Liburing_LIBRARY}")
  if(NOT TARGET Liburing::Liburing)
    add_library(Liburing::Liburing UNKNOWN IMPORTED)
    set_target_properties(
      Liburing::Liburing PROPERTIES IMPORTED_LOCATION "${Liburing_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                            "${Liburing_INCLUDE_DIR}")
  endif()
endif()
