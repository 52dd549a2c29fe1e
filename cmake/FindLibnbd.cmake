# SPDX-License-Identifier: MIT
#[=======================================================================[.rst:
FindLibnbd
----------

Finds libnbd, a client of network block devices. It ships no CMake package.

Defines the imported target ``Libnbd::Libnbd`` and the variables ``Libnbd_FOUND``, ``Libnbd_INCLUDE_DIRS`` and
``Libnbd_LIBRARIES``. Hints: ``Libnbd_ROOT``, or the cache variables ``Libnbd_INCLUDE_DIR`` and
``Libnbd_LIBRARY``.
#]=======================================================================]
find_path(
  Libnbd_INCLUDE_DIR
  NAMES libnbd.h
  DOC "Directory of libnbd.h")
find_library(
  Libnbd_LIBRARY
  NAMES nbd
  DOC "libnbd")
mark_as_advanced(Libnbd_INCLUDE_DIR Libnbd_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libnbd REQUIRED_VARS Libnbd_LIBRARY Libnbd_INCLUDE_DIR)

if(Libnbd_FOUND)
  set(Libnbd_INCLUDE_DIRS "${Libnbd_INCLUDE_DIR}")
  set(Libnbd_LIBRARIES "${Libnbd_LIBRARY}")
  if(NOT TARGET Libnbd::Libnbd)
    add_library(Libnbd::Libnbd UNKNOWN IMPORTED)
    set_target_properties(
      Libnbd::Libnbd PROPERTIES IMPORTED_LOCATION "${Libnbd_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                            "${Libnbd_INCLUDE_DIR}")
  endif()
endif()
