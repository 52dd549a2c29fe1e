// SPDX-License-Identifier: MIT
// Pages of a ring, with a hand on the indices: what an honest peer would never write is written
// here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "pvring/protocol/ring_page.hpp"

class ring_memory {
 public:
  explicit ring_memory(std::size_t pages = 1) : pages_(pages) {}

  [[nodiscard]] std::span<std::byte> span() {
    return {pages_.front().bytes, pages_.size() * sizeof(page)};
  }
  void fill(std::byte with) { std::memset(span().data(), static_cast<int>(with), span().size()); }
  [[nodiscard]] std::vector<std::byte> copy() {
    const auto bytes = span();
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] std::byte* slot(std::size_t number, std::size_t slot_bytes) {
    return span().data() + pvring::protocol::ring_header_bytes + number * slot_bytes;
  }

  enum index : std::size_t { req_prod = 0, req_event = 4, rsp_prod = 8, rsp_event = 12 };
  [[nodiscard]] std::uint32_t get(index which) { return at(which).load(); }
  void set(index which, std::uint32_t value) { at(which).store(value); }

 private:
  struct alignas(4096) page {
    std::byte bytes[4096]{};
  };
  [[nodiscard]] std::atomic_ref<std::uint32_t> at(index which) {
    return std::atomic_ref<std::uint32_t>(
        *reinterpret_cast<std::uint32_t*>(span().data() + which));  // NOLINT(*-reinterpret-cast)
  }

  std::vector<page> pages_;
};
