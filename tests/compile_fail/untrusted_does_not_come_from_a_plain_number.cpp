// expect: could not convert|cannot convert
// SPDX-License-Identifier: MIT
// Marking a number as a peer's is said in so many words, so that unmarked ones are not taken for
// it.
#include <cstdint>

#include "pvring/base/untrusted.hpp"

pvring::untrusted<std::uint32_t> from_the_ring(std::uint32_t word) {
#ifdef PVRING_CONTROL
  return pvring::untrusted<std::uint32_t>(word);
#else
  return word;
#endif
}
