// expect: no match for .operator\*.
// SPDX-License-Identifier: MIT
// A peer's number times something is how buffers overflow: it has to be bounded first.
#include <cstdint>

#include "pvring/base/untrusted.hpp"

std::uint64_t bytes(pvring::untrusted<std::uint64_t> sectors) {
#ifdef PVRING_CONTROL
  return sectors.at_most(8).value_or(0) * 512;
#else
  return sectors * 512;
#endif
}
