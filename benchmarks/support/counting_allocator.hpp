// SPDX-License-Identifier: MIT
// Counts every allocation of the program that links it, of whatever thread: malloc and its family,
// operator new through them, and mappings of memory made by the program itself. A program links it
// by asking; elsewhere nothing is replaced.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bench {

struct memory_use {
  std::uint64_t allocations = 0;   ///< calls so far
  std::int64_t heap_bytes = 0;     ///< allocated now
  std::int64_t private_bytes = 0;  ///< mapped now, anonymous and private: buffers
  std::int64_t shared_bytes = 0;   ///< mapped now, of files: guests' pages
  std::uint64_t mappings = 0;      ///< calls so far
};

/// What is in use at this moment. Everything 0 where allocations cannot be counted: see
/// counts_allocations().
[[nodiscard]] memory_use memory_in_use() noexcept;

/// Whether this C library lets its allocator be wrapped.
[[nodiscard]] bool counts_allocations() noexcept;

}  // namespace bench
