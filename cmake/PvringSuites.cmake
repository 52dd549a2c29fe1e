# SPDX-License-Identifier: MIT
# The GoogleTest suites, one executable each; included by tests/CMakeLists.txt.

if(NOT TARGET pvring::testing)
  pvring_left_out("test suites" "the component testing is missing")
  return()
endif()
find_package(GTest 1.12 REQUIRED)
include(GoogleTest)

# What GoogleTest says of each test of a suite that runs as a whole; tests/tools/summary.py reads it.
set(_reports "${PROJECT_BINARY_DIR}/gtest")
file(MAKE_DIRECTORY "${_reports}")

# pvring_add_suite(NAME LABEL [LINK target...] SOURCES file...)
# With PVRING_TEST_SHARDS a suite is that many ctest tests, each a share of it in one process: an instrumented executable
# takes longer to start than most tests take to run. Without, each test is a process and a ctest test of its own.
function(pvring_add_suite name label)
  cmake_parse_arguments(PARSE_ARGV 2 suite "" "" "LINK;SOURCES")
  add_executable(${name} ${suite_SOURCES})
  target_link_libraries(${name} PRIVATE ${suite_LINK} GTest::gmock_main pvring_warnings)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(${name} PRIVATE PVRING_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             PVRING_CXX_COMPILER="${CMAKE_CXX_COMPILER}")
  if(PVRING_PCH)
    target_precompile_headers(${name} REUSE_FROM pvring_pch)
  endif()
  if(PVRING_TEST_SHARDS)
    math(EXPR _last "${PVRING_TEST_SHARDS} - 1")
    foreach(_shard RANGE ${_last})
      add_test(NAME ${name}.${_shard} COMMAND ${name} --gtest_brief=1
                                              "--gtest_output=xml:${_reports}/${name}.${_shard}.xml")
      set_tests_properties(
        ${name}.${_shard} PROPERTIES LABELS ${label} TIMEOUT 600 ENVIRONMENT
                                     "GTEST_TOTAL_SHARDS=${PVRING_TEST_SHARDS};GTEST_SHARD_INDEX=${_shard}")
    endforeach()
  else()
    gtest_discover_tests(
      ${name}
      TEST_PREFIX "${name}."
      DISCOVERY_TIMEOUT 120
      PROPERTIES LABELS ${label} TIMEOUT 300)
  endif()
  add_dependencies(pvring_tests ${name})
  if(TARGET pvring_${label})
    add_dependencies(pvring_${label} ${name})
  endif()
endfunction()

if(PVRING_PCH)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch.cpp" CONTENT "" @ONLY)
  add_library(pvring_pch OBJECT "${PROJECT_BINARY_DIR}/pch.cpp")
  target_link_libraries(pvring_pch PRIVATE ${PVRING_ALL_TARGETS} GTest::gmock pvring_warnings)
  target_precompile_headers(
    pvring_pch
    PRIVATE
    <gmock/gmock.h>
    <gtest/gtest.h>
    <algorithm>
    <array>
    <atomic>
    <chrono>
    <functional>
    <map>
    <memory>
    <optional>
    <span>
    <string>
    <thread>
    <vector>)
endif()

# tests/support/*.cpp: what several suites use and what takes long to compile.
file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
add_library(pvring_test_support STATIC EXCLUDE_FROM_ALL ${_sources})
target_link_libraries(pvring_test_support PUBLIC ${PVRING_ALL_TARGETS} GTest::gmock pvring_warnings)
target_include_directories(pvring_test_support PRIVATE "${PROJECT_SOURCE_DIR}/tests")
if(PVRING_PCH)
  target_precompile_headers(pvring_test_support REUSE_FROM pvring_pch)
endif()

# tests/unit/<layer>/**/*_test.cpp: unit_<layer>
file(
  GLOB_RECURSE _files
  CONFIGURE_DEPENDS
  RELATIVE "${PROJECT_SOURCE_DIR}/tests/unit"
  "${PROJECT_SOURCE_DIR}/tests/unit/*_test.cpp")
set(_layers "")
foreach(_file IN LISTS _files)
  if(NOT _file MATCHES "^([^/]+)/")
    message(FATAL_ERROR "tests/unit/${_file}: a unit test belongs in the folder of its layer")
  endif()
  set(_layer ${CMAKE_MATCH_1})
  # The tests of an optional component's header need that component.
  foreach(_component IN ITEMS libaio uring nbd xen)
    if(_file MATCHES "^(aio|platform)/${_component}" AND NOT TARGET pvring::${_component})
      pvring_left_out("tests/unit/${_file}" "the component ${_component} is missing")
      set(_file "")
    endif()
  endforeach()
  if(NOT _file)
    continue()
  endif()
  list(APPEND _layers ${_layer})
  list(APPEND _sources_${_layer} "${PROJECT_SOURCE_DIR}/tests/unit/${_file}")
endforeach()
list(REMOVE_DUPLICATES _layers)
foreach(_layer IN LISTS _layers)
  pvring_add_suite(unit_${_layer} unit LINK pvring_test_support ${PVRING_ALL_TARGETS} SOURCES ${_sources_${_layer}})
endforeach()

# tests/<suite>/**/*_test.cpp: <suite>_tests
find_program(PVRING_NBDKIT nbdkit)
mark_as_advanced(PVRING_NBDKIT)
foreach(_suite IN ITEMS model conformance hostile stress)
  file(GLOB_RECURSE _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${_suite}/*_test.cpp")
  if(_sources MATCHES "/engine_nbd" AND NOT PVRING_NBDKIT)
    pvring_left_out("tests/${_suite}/engine_nbd*" "nbdkit is missing (Debian: nbdkit)")
    list(FILTER _sources EXCLUDE REGEX "/engine_nbd")
  endif()
  foreach(_component IN ITEMS libaio uring nbd)
    if(NOT TARGET pvring::${_component} AND _sources MATCHES "/engine_${_component}")
      pvring_left_out("tests/${_suite}/engine_${_component}*" "the component ${_component} is missing")
      list(FILTER _sources EXCLUDE REGEX "/engine_${_component}")
    endif()
  endforeach()
  if(_sources)
    pvring_add_suite(${_suite}_tests ${_suite} LINK pvring_test_support ${PVRING_ALL_TARGETS} SOURCES ${_sources})
    if(_suite STREQUAL "model")
      # They visit millions of states: without optimisation they take longer than everything else.
      target_compile_options(${_suite}_tests PRIVATE $<$<CXX_COMPILER_ID:GNU,Clang>:-O2>)
      set_target_properties(${_suite}_tests PROPERTIES DISABLE_PRECOMPILE_HEADERS ON) # made for other options
    endif()
  endif()
endforeach()

# tests/wire/*.cpp: our structs against the vendor's headers. Those go on the include path as system headers.
find_path(
  PVRING_XEN_HEADERS
  NAMES xen/io/blkif.h
  DOC "Directory that holds xen/io/blkif.h")
mark_as_advanced(PVRING_XEN_HEADERS)
file(GLOB_RECURSE _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/wire/*.cpp")
if(_sources AND NOT PVRING_XEN_HEADERS)
  pvring_left_out("tests/wire" "Xen's public headers are missing (Debian: libxen-dev)")
elseif(_sources)
  pvring_add_suite(wire_tests wire LINK ${PVRING_ALL_TARGETS} SOURCES ${_sources})
  target_include_directories(wire_tests SYSTEM PRIVATE "${PVRING_XEN_HEADERS}")
endif()

# tests/seam/<name>/*.cpp: seam_<name>. A file fake_<library>*.cpp in the folder stands for that library: the executable
# gets the library's headers only, its functions are the fake's.
find_path(
  Libaio_INCLUDE_DIR
  NAMES libaio.h
  DOC "Directory of libaio.h")
find_path(
  XenTools_INCLUDE_DIR
  NAMES xengnttab.h
  DOC "Directory of xengnttab.h, xenevtchn.h, xenstore.h and xentoollog.h")
set(_fakes_of_libaio "fake_libaio.cpp")
set(_headers_of_libaio "${Libaio_INCLUDE_DIR}")
find_path(
  Liburing_INCLUDE_DIR
  NAMES liburing.h
  DOC "Directory of liburing.h")
set(_fakes_of_uring "fake_liburing.cpp")
set(_headers_of_uring "${Liburing_INCLUDE_DIR}")
set(_fakes_of_xen "fake_xengnttab.cpp")
set(_headers_of_xen "${XenTools_INCLUDE_DIR}")
file(
  GLOB_RECURSE _files
  CONFIGURE_DEPENDS
  RELATIVE "${PROJECT_SOURCE_DIR}/tests/seam"
  "${PROJECT_SOURCE_DIR}/tests/seam/*.cpp")
set(_seams "")
foreach(_file IN LISTS _files)
  if(_file MATCHES "^([^/]+)/")
    list(APPEND _seams ${CMAKE_MATCH_1})
  endif()
endforeach()
list(REMOVE_DUPLICATES _seams)
foreach(_seam IN LISTS _seams)
  file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/seam/${_seam}/*.cpp")
  set(_link ${PVRING_ALL_TARGETS})
  set(_headers "")
  set(_missing "")
  foreach(_component IN ITEMS libaio uring xen)
    if(EXISTS "${PROJECT_SOURCE_DIR}/tests/seam/${_seam}/${_fakes_of_${_component}}")
      list(REMOVE_ITEM _link pvring::${_component})
      list(APPEND _headers "${_headers_of_${_component}}")
      if(NOT _headers_of_${_component})
        set(_missing ${_component})
      endif()
    endif()
  endforeach()
  if(_missing)
    pvring_left_out("tests/seam/${_seam}" "the headers of the library behind ${_missing} are missing")
    continue()
  endif()
  pvring_add_suite(seam_${_seam} seam LINK ${_link} SOURCES ${_sources})
  target_include_directories(seam_${_seam} SYSTEM PRIVATE ${_headers})
endforeach()

# tests/xen_vm/programs/<name>.cpp: xen_<name>, which needs a real Xen and so is built, but not run as a test.
file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/xen_vm/programs/*.cpp")
foreach(_source IN LISTS _sources)
  get_filename_component(_name "${_source}" NAME_WE)
  if(NOT TARGET pvring::xen)
    pvring_left_out("tests/xen_vm/programs/${_name}.cpp" "the component xen is missing")
    continue()
  endif()
  add_executable(xen_${_name} EXCLUDE_FROM_ALL "${_source}")
  target_link_libraries(xen_${_name} PRIVATE ${PVRING_ALL_TARGETS} GTest::gtest_main pvring_warnings)
  target_include_directories(xen_${_name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endforeach()
