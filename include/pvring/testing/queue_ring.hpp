// SPDX-License-Identifier: MIT
// The ring of a block frontend's queue in granted pages of its guest, with the ABI chosen at run
// time. Above it nobody needs to know which one it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "../platform/emulated/guest.hpp"
#include "../protocol/blkif_abi.hpp"
#include "../ring/front_ring.hpp"

namespace pvring::testing {

/// One thread uses it. All but `make`, `made` and `free` need a ring.
class queue_ring {
 public:
  /// The guest outlives it.
  queue_ring(platform::emulated_guest& guest, domain_id backend) noexcept
      : guest_(guest), backend_(backend) {}
  queue_ring(const queue_ring&) = delete;
  queue_ring& operator=(const queue_ring&) = delete;
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  ~queue_ring() { (void)free(); }

  /// Makes the ring; all indices begin at `start`. When it throws it has undone what it did.
  /// \throws std::system_error when the guest has no pages or no grants left
  void make(std::uint32_t pages, protocol::blkif::abi abi, std::uint32_t start) {
    memory_ = {guest_.allocate_pages(pages), pages * platform::page_size};
    try {
      for (std::size_t at = 0; at < memory_.size(); at += platform::page_size) {
        references_.push_back(
            guest_.grant(backend_, memory_.data() + at, platform::access::read_write));
      }
      if (abi == protocol::blkif::abi::x86_32) {
        ring_.emplace<ring_32>(memory_, start);
      } else {
        ring_.emplace<ring_64>(memory_, start);
      }
    } catch (...) {
      (void)free();
      throw;
    }
  }

  /// Returns how many of its pages are still mapped; they stay allocated.
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  std::size_t free() noexcept {
    ring_.emplace<std::monostate>();
    std::size_t mapped = 0;
    for (const platform::grant_reference reference : references_) {
      mapped += guest_.end_grant(reference) ? 0 : 1;
    }
    references_.clear();
    const std::span<std::byte> memory = std::exchange(memory_, {});
    if (mapped == 0 && !memory.empty()) {
      guest_.free_pages(memory.data(), memory.size() / platform::page_size);
    }
    return mapped;
  }

  [[nodiscard]] bool made() const noexcept { return ring_.index() != 0; }
  [[nodiscard]] std::span<const platform::grant_reference> references() const noexcept {
    return references_;
  }

  [[nodiscard]] std::size_t size() {
    return use([](auto& ring) { return ring.size(); });
  }
  [[nodiscard]] std::size_t space() {
    return use([](auto& ring) { return ring.space(); });
  }
  void put(const protocol::blkif::request& request) {
    use([&request](auto& ring) { ring.put(request); });
  }
  [[nodiscard]] bool publish() {
    return use([](auto& ring) { return ring.publish(); });
  }
  /// Calls `each(id, operation, status)` for up to `budget` responses.
  template <class Each>
  void take(std::size_t budget, Each&& each) {
    use([&](auto& ring) {
      ring.take(budget, [&each](const auto& r) { each(r.id, r.operation, r.status); });
    });
  }
  [[nodiscard]] bool has_responses() {
    return use([](auto& ring) { return ring.has_responses(); });
  }
  [[nodiscard]] bool arm() {
    return use([](auto& ring) { return ring.arm(); });
  }
  [[nodiscard]] protocol_error broken() {
    return use([](auto& ring) { return ring.broken(); });
  }

 private:
  using ring_64 = ring::front_ring<protocol::blkif::wire<protocol::blkif::abi::x86_64>>;
  using ring_32 = ring::front_ring<protocol::blkif::wire<protocol::blkif::abi::x86_32>>;

  template <class F>
  auto use(F&& f) -> decltype(f(std::declval<ring_64&>())) {
    if (auto* ring = std::get_if<ring_64>(&ring_)) {
      return f(*ring);
    }
    return f(std::get<ring_32>(ring_));
  }

  platform::emulated_guest& guest_;
  domain_id backend_;
  std::span<std::byte> memory_;
  std::vector<platform::grant_reference> references_;
  std::variant<std::monostate, ring_64, ring_32> ring_;
};

}  // namespace pvring::testing
