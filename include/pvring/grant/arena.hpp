// SPDX-License-Identifier: MIT
// Private pages for bounce buffers: one region per queue, locked in memory, handed out in runs.
// Locked, because a grant copy marks a page dirty only for the last operation on it, and a page
// that were swapped out between could lose data.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

#include "../base/log.hpp"
#include "../platform/grant_mapper.hpp"
#include "run_allocator.hpp"

namespace pvring::grant {

class arena {
 public:
  /// \throws std::system_error when there is no memory for `pages` pages of 4096 bytes
  explicit arena(std::uint32_t pages) : bytes_(pages * platform::page_size), runs_(pages) {
    void* region = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (region == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(),
                              "bounce buffers of " + std::to_string(bytes_) +
                                  " bytes; lower the queue's buffer budget");
    }
    base_ = static_cast<std::byte*>(region);
    // Said once: a frontend may connect as often as it likes.
    static std::atomic<bool> said{false};
    if (::mlock(base_, bytes_) != 0 && !said.exchange(true, std::memory_order_relaxed)) {
      log::write(log::level::info,
                 "bounce buffers are not locked in memory (" + std::to_string(bytes_) +
                     " bytes; raise RLIMIT_MEMLOCK); the pages may be swapped out");
    }
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { (void)::munmap(base_, bytes_); }

  [[nodiscard]] run_allocator& runs() noexcept { return runs_; }
  [[nodiscard]] std::span<std::byte> region() const noexcept { return {base_, bytes_}; }
  [[nodiscard]] std::byte* page(std::uint32_t index) const noexcept {
    return base_ + index * platform::page_size;
  }

 private:
  std::size_t bytes_;
  std::byte* base_ = nullptr;
  run_allocator runs_;
};

}  // namespace pvring::grant
