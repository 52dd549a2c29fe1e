# SPDX-License-Identifier: MIT
# Checks that compile or read files and run nothing, label "static"; included by tests/CMakeLists.txt.
#   headers       every public header compiles alone and without warnings (also: cmake --build . --target pvring_headers)
#   compile_fail  every tests/compile_fail/*.cpp is refused by the compiler, for the reason it states
#   codegen       tests/codegen/check_*.py: what the compiler makes of the code, by each compiler that is there
#   docs          the documentation's C++ blocks compile
#   layers        no header includes what its layer must not know

# --- headers -----------------------------------------------------------------------------------------------------------
set(_stamps "")
foreach(_component IN LISTS PVRING_COMPONENTS)
  foreach(_header IN LISTS _headers_${_component})
    file(RELATIVE_PATH _name "${PROJECT_SOURCE_DIR}/include" "${_header}")
    set(_stamp "${PROJECT_BINARY_DIR}/headers/${_name}.ok")
    get_filename_component(_dir "${_stamp}" DIRECTORY)
    file(MAKE_DIRECTORY "${_dir}")
    set(_includes "$<TARGET_PROPERTY:pvring_${_component},INTERFACE_INCLUDE_DIRECTORIES>")
    add_custom_command(
      OUTPUT "${_stamp}"
      COMMAND
        "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
        "-I${PROJECT_SOURCE_DIR}/include" "$<$<BOOL:${_includes}>:-I$<JOIN:$<REMOVE_DUPLICATES:${_includes}>,;-I>>" -MD
        -MT "${_stamp}" -MF "${_stamp}.d" -include "${_header}" -x c++ /dev/null
      COMMAND "${CMAKE_COMMAND}" -E touch "${_stamp}"
      DEPENDS "${_header}"
      DEPFILE "${_stamp}.d"
      COMMENT "Compiling ${_name} alone"
      COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND _stamps "${_stamp}")
  endforeach()
endforeach()
add_custom_target(pvring_headers DEPENDS ${_stamps})
set(_keep_going "")
if(CMAKE_GENERATOR MATCHES "Ninja")
  set(_keep_going -- -k 0)
endif()
add_test(NAME headers COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target pvring_headers --parallel 2
                              ${_keep_going})
set_tests_properties(headers PROPERTIES LABELS static TIMEOUT 1200 RUN_SERIAL TRUE)

# One file that includes them all: through it clang-tidy sees headers that nothing else includes.
set(_all "")
foreach(_component IN LISTS PVRING_COMPONENTS)
  foreach(_header IN LISTS _headers_${_component})
    file(RELATIVE_PATH _name "${PROJECT_SOURCE_DIR}/include" "${_header}")
    string(APPEND _all "#include <${_name}>\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/tidy/all_headers.cpp" CONTENT "${_all}" @ONLY)
add_library(pvring_tidy OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/tidy/all_headers.cpp")
target_link_libraries(pvring_tidy PRIVATE ${PVRING_ALL_TARGETS} pvring_warnings)

if(NOT Python3_FOUND)
  pvring_left_out("compile_fail and layers" "python3 is missing")
  return()
endif()

# --- compile_fail ------------------------------------------------------------------------------------------------------
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(_flags "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/tests")
  file(
    GLOB_RECURSE _files
    CONFIGURE_DEPENDS
    RELATIVE "${PROJECT_SOURCE_DIR}/tests/compile_fail"
    "${PROJECT_SOURCE_DIR}/tests/compile_fail/*.cpp")
  foreach(_file IN LISTS _files)
    string(REGEX REPLACE "\\.cpp$" "" _name "${_file}")
    add_test(NAME compile_fail.${_name}
             COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/compile_fail/check.py"
                     "${PROJECT_SOURCE_DIR}/tests/compile_fail/${_file}" -- "${CMAKE_CXX_COMPILER}" -std=c++20 ${_flags})
    set_tests_properties(compile_fail.${_name} PROPERTIES LABELS static TIMEOUT 120)
  endforeach()
  add_test(NAME compile_fail.self_check
           COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/compile_fail/check.py" --self-check --
                   "${CMAKE_CXX_COMPILER}" -std=c++20 ${_flags})
  set_tests_properties(compile_fail.self_check PROPERTIES LABELS static TIMEOUT 120)
endif()

# --- codegen -----------------------------------------------------------------------------------------------------------
find_program(PVRING_GXX NAMES g++)
find_program(PVRING_CLANGXX NAMES clang++-14 clang++)
mark_as_advanced(PVRING_GXX PVRING_CLANGXX)
file(
  GLOB _files
  CONFIGURE_DEPENDS
  RELATIVE "${PROJECT_SOURCE_DIR}/tests/codegen"
  "${PROJECT_SOURCE_DIR}/tests/codegen/check_*.py")
foreach(_file IN LISTS _files)
  string(REGEX REPLACE "^check_(.*)\\.py$" "\\1" _name "${_file}")
  foreach(_compiler IN ITEMS GXX CLANGXX)
    if(NOT PVRING_${_compiler})
      continue()
    endif()
    foreach(_level IN ITEMS O2 O3)
      string(TOLOWER "codegen.${_name}.${_compiler}.${_level}" _test)
      add_test(NAME ${_test} COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/codegen/${_file}"
                                     "${PROJECT_SOURCE_DIR}" -- "${PVRING_${_compiler}}" -${_level})
      set_tests_properties(${_test} PROPERTIES LABELS static SKIP_RETURN_CODE 77 TIMEOUT 300)
    endforeach()
  endforeach()
endforeach()

# --- docs --------------------------------------------------------------------------------------------------------------
if(EXISTS "${PROJECT_SOURCE_DIR}/tests/docs/check_snippets.py")
  file(GLOB _files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/*.md" "${PROJECT_SOURCE_DIR}/docs/*.md")
  set(_snippets Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/docs/check_snippets.py")
  add_test(NAME docs.snippets COMMAND ${_snippets} "${CMAKE_CXX_COMPILER}" "${PROJECT_SOURCE_DIR}/include" ${_files})
  add_test(NAME docs.self_test COMMAND ${_snippets} --self-test "${CMAKE_CXX_COMPILER}" "${PROJECT_SOURCE_DIR}/include")
  set_tests_properties(docs.snippets docs.self_test PROPERTIES LABELS static TIMEOUT 300)
endif()

# --- layers ------------------------------------------------------------------------------------------------------------
set(_layers_check Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/layers/check_layers.py")
add_test(NAME layers COMMAND ${_layers_check} "${PROJECT_SOURCE_DIR}/include/pvring")
add_test(NAME layers.self_check COMMAND ${_layers_check} --self-check "${PROJECT_SOURCE_DIR}/tests/layers/fixtures")
set_tests_properties(layers layers.self_check PROPERTIES LABELS static)
