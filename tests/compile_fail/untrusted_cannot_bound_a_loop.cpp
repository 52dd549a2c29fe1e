// expect: no match for .operator<.
// SPDX-License-Identifier: MIT
// A loop whose bound is a peer's number runs as long as the peer likes.
#include <cstdint>

#include "pvring/base/untrusted.hpp"

int sum(pvring::untrusted<std::uint16_t> count) {
  int total = 0;
#ifdef PVRING_CONTROL
  for (std::uint16_t i = 0; i < count.at_most(11).value_or(0); ++i) {
#else
  for (std::uint16_t i = 0; i < count; ++i) {
#endif
    total += i;
  }
  return total;
}
