# SPDX-License-Identifier: MIT
# pvring_left_out(WHAT REASON): something of the tests, examples or benchmarks cannot be built here.
function(pvring_left_out what reason)
  if(PVRING_REQUIRE_ALL)
    message(FATAL_ERROR "pvring: ${what} cannot be built: ${reason}")
  endif()
  message(STATUS "pvring: ${what}: left out: ${reason}")
endfunction()

# Every component that there is, for what uses them all.
set(PVRING_ALL_TARGETS ${PVRING_COMPONENTS})
list(TRANSFORM PVRING_ALL_TARGETS PREPEND pvring::)
