// expect: array subscript|no match for .operator\[\]|cannot convert
// SPDX-License-Identifier: MIT
// A peer's number as an index reads whatever the peer likes.
#include <cstdint>

#include "pvring/base/untrusted.hpp"

int pick(const int (&table)[11], pvring::untrusted<std::uint8_t> which) {
#ifdef PVRING_CONTROL
  return table[which.at_most(10).value_or(0)];
#else
  return table[which];
#endif
}
