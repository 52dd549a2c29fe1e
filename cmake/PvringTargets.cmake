# SPDX-License-Identifier: MIT
# The library: one INTERFACE target per component. A component whose library is missing is left out;
# all the others are built. PVRING_COMPONENTS lists those that are there.

# Every header belongs to exactly one component: the first whose pattern matches its path, else core.
set(_pattern_testing "^testing/")
set(_pattern_libaio "^aio/libaio[^/]*(\\.hpp$|/)")
set(_pattern_uring "^aio/uring[^/]*(\\.hpp$|/)")
set(_pattern_nbd "^aio/nbd[^/]*(\\.hpp$|/)")
set(_pattern_emulated "^platform/emulated[^/]*(\\.hpp$|/)")
set(_pattern_xen "^platform/xen[^/]*(\\.hpp$|/)")

file(
  GLOB_RECURSE _headers
  CONFIGURE_DEPENDS
  RELATIVE "${PROJECT_SOURCE_DIR}/include/pvring"
  "${PROJECT_SOURCE_DIR}/include/pvring/*.hpp")
foreach(_header IN LISTS _headers)
  set(_owner core)
  foreach(_component IN ITEMS testing libaio uring nbd emulated xen)
    if(_header MATCHES "${_pattern_${_component}}")
      set(_owner ${_component})
      break()
    endif()
  endforeach()
  list(APPEND _headers_${_owner} "${PROJECT_SOURCE_DIR}/include/pvring/${_header}")
endforeach()

# pvring_add_component(NAME LINK...): creates pvring::NAME with its headers.
set(PVRING_COMPONENTS "")
function(pvring_add_component name)
  add_library(pvring_${name} INTERFACE)
  add_library(pvring::${name} ALIAS pvring_${name})
  set_target_properties(pvring_${name} PROPERTIES EXPORT_NAME ${name})
  target_sources(
    pvring_${name}
    INTERFACE FILE_SET
              HEADERS
              BASE_DIRS
              "${PROJECT_SOURCE_DIR}/include"
              FILES
              ${_headers_${name}})
  target_link_libraries(pvring_${name} INTERFACE ${ARGN})
  list(APPEND PVRING_COMPONENTS ${name})
  set(PVRING_COMPONENTS "${PVRING_COMPONENTS}" PARENT_SCOPE)
endfunction()

function(pvring_skip_component name reason)
  if(PVRING_REQUIRE_ALL)
    message(FATAL_ERROR "pvring: component ${name} cannot be built: ${reason}")
  endif()
  message(STATUS "pvring: component ${name} is left out: ${reason}")
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)

pvring_add_component(core Boost::headers Threads::Threads)
target_compile_features(pvring_core INTERFACE cxx_std_20)

find_package(Libaio)
if(Libaio_FOUND)
  pvring_add_component(libaio pvring_core Libaio::Libaio)
else()
  pvring_skip_component(libaio "libaio is missing (Debian: libaio-dev)")
endif()

find_package(Liburing)
if(Liburing_FOUND)
  pvring_add_component(uring pvring_core Liburing::Liburing)
else()
  pvring_skip_component(uring "liburing is missing (Debian: liburing-dev)")
endif()

find_package(Libnbd)
if(Libnbd_FOUND)
  pvring_add_component(nbd pvring_core Libnbd::Libnbd)
else()
  pvring_skip_component(nbd "libnbd is missing (Debian: libnbd-dev)")
endif()

find_package(XenTools)
if(XenTools_FOUND)
  pvring_add_component(xen pvring_core XenTools::XenTools)
else()
  pvring_skip_component(xen "Xen's libraries are missing (Debian: libxen-dev)")
endif()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  pvring_add_component(emulated pvring_core)
else()
  pvring_skip_component(emulated "the emulated platform needs Linux")
endif()

# A subproject looks for GoogleTest only where somebody has use for it: it may bring its own.
if(NOT TARGET GTest::gtest)
  find_package(GTest 1.12)
endif()
if(NOT TARGET GTest::gtest)
  pvring_skip_component(testing "GoogleTest is missing (Debian: libgtest-dev libgmock-dev)")
elseif(NOT TARGET pvring_emulated)
  pvring_skip_component(testing "the component emulated is missing")
else()
  pvring_add_component(testing pvring_emulated GTest::gtest)
endif()

message(STATUS "pvring ${PROJECT_VERSION}: components ${PVRING_COMPONENTS}")
