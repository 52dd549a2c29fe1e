# SPDX-License-Identifier: MIT
#[=======================================================================[.rst:
FindXenTools
------------

Finds the libraries by which programs in user space use grants, event channels and the store of a Xen host:
libxengnttab, libxenevtchn and libxenstore, and the header of libxentoollog. pkg-config is asked where they are, if it
is there. Shared libraries only: a static libxenstore fails once it has a watch.

Defines the imported target ``XenTools::XenTools`` and the variables ``XenTools_FOUND``, ``XenTools_INCLUDE_DIRS`` and
``XenTools_LIBRARIES``. Hints: ``XenTools_ROOT``, or the cache variables ``XenTools_INCLUDE_DIR`` and
``XenTools_{gnttab,evtchn,store}_LIBRARY``.
#]=======================================================================]
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_XenTools QUIET xengnttab xenevtchn xenstore xentoollog)
endif()

find_path(
  XenTools_INCLUDE_DIR
  NAMES xengnttab.h
  HINTS ${PC_XenTools_INCLUDE_DIRS}
  DOC "Directory of xengnttab.h, xenevtchn.h, xenstore.h and xentoollog.h")
set(XenTools_LIBRARIES "")
set(_xentools_variables "")
foreach(_xentools_name IN ITEMS gnttab evtchn store)
  find_library(
    XenTools_${_xentools_name}_LIBRARY
    NAMES libxen${_xentools_name}.so
    HINTS ${PC_XenTools_LIBRARY_DIRS}
    DOC "libxen${_xentools_name}")
  list(APPEND _xentools_variables XenTools_${_xentools_name}_LIBRARY)
  list(APPEND XenTools_LIBRARIES "${XenTools_${_xentools_name}_LIBRARY}")
endforeach()
mark_as_advanced(XenTools_INCLUDE_DIR ${_xentools_variables})

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XenTools REQUIRED_VARS ${_xentools_variables} XenTools_INCLUDE_DIR)

if(XenTools_FOUND)
  set(XenTools_INCLUDE_DIRS "${XenTools_INCLUDE_DIR}")
  if(NOT TARGET XenTools::XenTools)
    add_library(XenTools::XenTools INTERFACE IMPORTED)
    set_target_properties(
      XenTools::XenTools PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XenTools_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES
                                                                                            "${XenTools_LIBRARIES}")
  endif()
endif()
