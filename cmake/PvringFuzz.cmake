# SPDX-License-Identifier: MIT
# tests/fuzz/<name>.cpp, each with an LLVMFuzzerTestOneInput; included by tests/CMakeLists.txt. With PVRING_FUZZ (clang)
# each becomes fuzz_<name>, which ctest runs for PVRING_FUZZ_SECONDS from the seeds in tests/fuzz/corpus/<name>. Otherwise
# each becomes replay_<name>, which feeds it the seeds only, so that every other build checks and counts them too.

file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp")
if(NOT _sources)
  return()
endif()
if(PVRING_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "PVRING_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}")
endif()
if(NOT PVRING_FUZZ)
  add_library(pvring_fuzz_replay OBJECT "${PROJECT_SOURCE_DIR}/tests/fuzz/replay/main.cpp")
  target_compile_features(pvring_fuzz_replay PRIVATE cxx_std_20)
  target_link_libraries(pvring_fuzz_replay PRIVATE pvring_warnings)
endif()

foreach(_source IN LISTS _sources)
  get_filename_component(_name "${_source}" NAME_WE)
  set(_seeds "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${_name}")
  if(NOT IS_DIRECTORY "${_seeds}")
    message(FATAL_ERROR "tests/fuzz/${_name}.cpp has no seeds: put at least one file into tests/fuzz/corpus/${_name}")
  endif()
  if(PVRING_FUZZ)
    set(_target fuzz_${_name})
    set(_label fuzz)
    add_executable(${_target} "${_source}")
    target_compile_options(${_target} PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
                                              -fno-omit-frame-pointer)
    target_link_options(${_target} PRIVATE -fsanitize=fuzzer,address,undefined)
    # What it finds stays in the build tree; failing inputs are named after the target.
    set(_found "${PROJECT_BINARY_DIR}/fuzz/${_name}")
    file(MAKE_DIRECTORY "${_found}")
    add_test(
      NAME ${_target}
      COMMAND
        ${_target} -max_total_time=${PVRING_FUZZ_SECONDS} -timeout=20 -rss_limit_mb=4096 -print_final_stats=1
        "-artifact_prefix=${PROJECT_BINARY_DIR}/fuzz/${_name}-" "${_found}" "${_seeds}")
    math(EXPR _limit "${PVRING_FUZZ_SECONDS} + 120")
    set_tests_properties(${_target} PROPERTIES TIMEOUT ${_limit})
  else()
    set(_target replay_${_name})
    set(_label replay)
    add_executable(${_target} "${_source}")
    target_link_libraries(${_target} PRIVATE pvring_fuzz_replay)
    add_test(NAME ${_target} COMMAND ${_target} "${_seeds}")
    add_dependencies(pvring_tests ${_target})
  endif()
  set_tests_properties(${_target} PROPERTIES LABELS ${_label})
  target_link_libraries(${_target} PRIVATE ${PVRING_ALL_TARGETS} pvring_warnings)
  target_include_directories(${_target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  add_dependencies(pvring_fuzz ${_target})
endforeach()
