// SPDX-License-Identifier: MIT
// Frames of guest memory, scattered as they are, mapped side by side. Frames that follow one
// another take one system call together.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../counters.hpp"
#include "shared_state.hpp"

namespace pvring::platform::detail {

/// Where the frames are mapped, or null and an errno.
struct mapped_frames {
  std::byte* address = nullptr;
  int error = 0;
};

/// Maps all frames or none. Counts the system calls that it makes.
[[nodiscard]] inline mapped_frames map_frames(const shared_state& state,
                                              std::span<const std::uint32_t> frames, access how,
                                              grant_counters& counters) noexcept {
  const int protection = how == access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  std::byte* base = nullptr;
  for (std::size_t begin = 0, end = 0; begin < frames.size(); begin = end) {
    end = begin + 1;
    while (end < frames.size() && frames[end] == frames[begin] + (end - begin)) {
      ++end;
    }
    if (base == nullptr && end < frames.size()) {
      // More than one run: reserve the whole range, so that they come to lie side by side.
      void* reserved = ::mmap(nullptr, frames.size() * page_size, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      counters.system_calls.add();
      if (reserved == MAP_FAILED) {
        return {nullptr, errno};
      }
      base = static_cast<std::byte*>(reserved);
    }
    // Populated at once, as gntdev does: a page that was mapped does not fault when it is first
    // used.
    void* mapped =
        ::mmap(base != nullptr ? base + begin * page_size : nullptr, (end - begin) * page_size,
               protection, MAP_SHARED | MAP_POPULATE | (base != nullptr ? MAP_FIXED : 0),
               state.guest_memory(), static_cast<off_t>(std::size_t{frames[begin]} * page_size));
    counters.system_calls.add();
    if (mapped == MAP_FAILED) {
      const int error = errno;
      if (base != nullptr) {
        (void)::munmap(base, frames.size() * page_size);
        counters.system_calls.add();
      }
      return {nullptr, error};
    }
    base = base != nullptr ? base : static_cast<std::byte*>(mapped);
  }
  return {base, 0};
}

}  // namespace pvring::platform::detail
