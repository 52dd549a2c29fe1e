// SPDX-License-Identifier: MIT
// The frontend's end of a shared ring: puts requests, takes responses. It initialises the ring page
// and trusts its backend no more than a backend trusts a frontend.
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../base/error.hpp"
#include "../protocol/ring_page.hpp"
#include "index.hpp"
#include "protocol.hpp"
#include "shared_access.hpp"

namespace pvring::ring {

/// One thread uses a front_ring. Nothing here makes a system call or allocates.
template <front_protocol Protocol, std::unsigned_integral Index = std::uint32_t>
class front_ring {
 public:
  using protocol = Protocol;

  /// Initialises the ring in `memory`, whole pages not yet shown to a backend: all indices at
  /// `start`, all events one further, so that the first message either way notifies.
  /// \throws configuration_error when `memory` holds no slot, more than half as many as `Index` counts, or is not aligned
  explicit front_ring(std::span<std::byte> memory, Index start = 0)
      : page_(memory.data()),
        size_(checked_ring_slots<Index>(memory, Protocol::slot_bytes)),
        req_prod_(start),
        req_published_(start),
        rsp_cons_(start) {
    std::memset(page_, 0, memory.size());
    index(offsetof(indices, req_prod)).store(start, std::memory_order_relaxed);
    index(offsetof(indices, rsp_prod)).store(start, std::memory_order_relaxed);
    index(offsetof(indices, req_event))
        .store(static_cast<Index>(start + 1), std::memory_order_relaxed);
    index(offsetof(indices, rsp_event))
        .store(static_cast<Index>(start + 1), std::memory_order_release);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Requests that can be put now.
  [[nodiscard]] std::size_t space() const noexcept {
    return size_ - static_cast<Index>(req_prod_ - rsp_cons_);
  }

  /// Requests put and not answered.
  [[nodiscard]] std::size_t outstanding() const noexcept {
    return static_cast<Index>(req_prod_ - rsp_cons_);
  }

  /// Writes one request into the next slot; the backend sees it after `publish`. \pre `space() !=
  /// 0`
  void put(const typename Protocol::request& request) noexcept {
    assert(space() != 0 && "the ring is full");
    Protocol::store_request(slot_sink(slot_at(req_prod_)), request);
    ++req_prod_;
  }

  /// Shows all requests put to the backend at once. True when it wants to be notified of them.
  [[nodiscard]] bool publish() noexcept {
    const Index old = req_published_;
    req_published_ = req_prod_;
    if (old == req_prod_) {
      return false;
    }
    // seq_cst twice: see back_ring::publish.
    index(offsetof(indices, req_prod)).store(req_prod_, std::memory_order_seq_cst);
    const Index event = index(offsetof(indices, req_event)).load(std::memory_order_seq_cst);
    return crossed(old, req_prod_, event);
  }

  /// Takes up to `budget` responses in ring order, calling `each(response)` for every one, and
  /// returns how many. Each is loaded once; whether its id is in flight, and its operation that of
  /// the request, is the caller's to check.
  template <class Each>
  std::size_t take(std::size_t budget, Each&& each) {
    std::size_t count = look(std::memory_order_acquire);
    count = count < budget ? count : budget;
    for (std::size_t i = 0; i < count; ++i) {
      const typename Protocol::response response =
          Protocol::fetch_response(slot_source(slot_at(rsp_cons_)));
      ++rsp_cons_;
      each(response);
    }
    return count;
  }

  [[nodiscard]] bool has_responses() noexcept { return look(std::memory_order_acquire) != 0; }

  /// Asks the backend for a notification when `distance` more responses are there, then looks
  /// again: true means that there is work now, or, once, that this look finds the ring broken. A
  /// distance that the requests shown to the backend cannot reach is cut down to them.
  [[nodiscard]] bool arm(Index distance = 1) noexcept {
    const protocol_error before = broken_;
    distance = reachable(distance, static_cast<Index>(req_published_ - rsp_cons_));
    index(offsetof(indices, rsp_event))
        .store(static_cast<Index>(rsp_cons_ + distance), std::memory_order_seq_cst);
    return look(std::memory_order_seq_cst) >= distance || broken_ != before;
  }

  /// Set once the backend broke the protocol; take() finds nothing from then on.
  [[nodiscard]] protocol_error broken() const noexcept { return broken_; }

 private:
  using indices = pvring::protocol::ring_indices<Index>;

  [[nodiscard]] shared_index<Index> index(std::size_t offset) const noexcept {
    return shared_index<Index>(page_ + offset);
  }
  [[nodiscard]] std::byte* slot_at(Index at) const noexcept {
    return page_ + pvring::protocol::ring_header_bytes + (at & (size_ - 1)) * Protocol::slot_bytes;
  }

  std::size_t look(std::memory_order order) noexcept {
    const Index produced = index(offsetof(indices, rsp_prod)).load(order);
    const auto available = static_cast<Index>(produced - rsp_cons_);
    if (available > static_cast<Index>(req_published_ - rsp_cons_)) [[unlikely]] {
      broken_ = protocol_error::response_producer_overrun;
    }
    return broken_ == protocol_error::none ? available : 0;
  }

  std::byte* page_;
  std::size_t size_;
  Index req_prod_;
  Index req_published_;
  Index rsp_cons_;
  protocol_error broken_ = protocol_error::none;
};

}  // namespace pvring::ring
