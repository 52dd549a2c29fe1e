// SPDX-License-Identifier: MIT
// The backend's end of a shared ring: takes requests, gives responses, decides about notifications.
// It trusts nothing that it reads, and it knows nothing of Xen: any memory of the right shape will
// do.
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "../base/error.hpp"
#include "../protocol/ring_page.hpp"
#include "answer.hpp"
#include "index.hpp"
#include "protocol.hpp"
#include "shared_access.hpp"

namespace pvring::ring {

/// One thread uses a back_ring. Nothing here makes a system call or allocates.
///
/// Indices run freely over the whole range of `Index` and wrap; only differences of them mean
/// something, and only indexing a slot reduces them modulo the ring size.
template <back_protocol Protocol, std::unsigned_integral Index = std::uint32_t>
class back_ring {
 public:
  using protocol = Protocol;
  using answer_type = answer<Protocol>;

  /// A ring in `memory`, whole pages that the frontend has initialised, starting where `start`
  /// says: both of our indices begin there. A fresh ring starts at 0; after a takeover it is the
  /// number of responses published, which needs a predecessor that left with all it took answered
  /// and published (an answer given out of order, or not yet published, lies where another request
  /// was). Nothing is written.
  /// \throws configuration_error when `memory` holds no slot, more than half as many as `Index` counts, or is not aligned
  explicit back_ring(std::span<std::byte> memory, Index start = 0)
      : page_(memory.data()),
        size_(checked_ring_slots<Index>(memory, Protocol::slot_bytes)),
        req_cons_(start),
        rsp_prod_(start),
        rsp_published_(start) {}

  /// The ring of a predecessor that was killed: its journal knows where both indices stood. What it
  /// had taken and not answered is owed again, see `owe_again`. Nothing is written before `show()`:
  /// first look, with `has_requests()`, whether it is that ring. \throws configuration_error as
  /// above
  back_ring(std::span<std::byte> memory, Index req_cons, Index rsp_prod)
      : back_ring(memory, rsp_prod) {
    req_cons_ = req_cons;
  }

  /// Shows the responses that a predecessor may not have come to show. Nobody is notified.
  void show() const noexcept {
    index(offsetof(indices, rsp_prod)).store(rsp_published_, std::memory_order_seq_cst);
  }

  /// The duty to answer a request that a predecessor took. \pre called once for each of them
  [[nodiscard]] obligation<Protocol> owe_again(const typename Protocol::echo& to) noexcept {
    return obligation<Protocol>(to);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Takes up to `budget` requests in ring order, calling `each(taken<Protocol>&)` for every one,
  /// and returns how many. The consumer index moves before `each` runs, so whatever `each` causes
  /// sees the request as taken. Stops for good, with `broken()` set, when the frontend's producer
  /// index is impossible; then nothing of that look is processed. `each` may respond, but not take.
  template <class Each>
  std::size_t take(std::size_t budget, Each&& each) noexcept {
    const Index available = look();
    const std::size_t count = available < budget ? available : budget;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const slot = slot_at(req_cons_);
      ++req_cons_;
      taken<Protocol> request{slot_source(slot)};
      each(request);
    }
    return count;
  }

  /// Takes everything that is there.
  template <class Each>
  std::size_t consume_all(Each&& each) noexcept {
    return take(size_, std::forward<Each>(each));
  }

  /// Whether `take` would find a request. One load.
  [[nodiscard]] bool has_requests() noexcept { return look() != 0; }
  /// How many requests `take` would find. One load.
  [[nodiscard]] std::size_t available() noexcept { return look(); }

  /// Requests that were taken and not answered.
  [[nodiscard]] std::size_t unanswered() const noexcept {
    return static_cast<Index>(req_cons_ - rsp_prod_);
  }

  /// Writes one response into the next slot; the frontend sees it after `publish`. There is always
  /// room: every answer is owed for a request whose slot has been taken.
  void respond(answer_type&& response) noexcept {
    assert(unanswered() != 0 && "an answer to a request of another ring");
    response.give();
    Protocol::store(slot_sink(slot_at(rsp_prod_)), response.to(), response.status());
    ++rsp_prod_;
  }

  /// The index behind the last answer, published or not.
  [[nodiscard]] Index answered() const noexcept { return rsp_prod_; }
  /// Whether responses were written since the last `publish`.
  [[nodiscard]] bool has_unpublished() const noexcept { return rsp_prod_ != rsp_published_; }

  /// Shows all written responses to the frontend at once. True when it wants to be notified of
  /// them.
  [[nodiscard]] bool publish() noexcept {
    const Index old = std::exchange(rsp_published_, rsp_prod_);
    if (old == rsp_prod_) {
      return false;
    }
    // The store releases the responses. It and the load are both seq_cst, as are the frontend's
    // store of rsp_event and its following load of rsp_prod: in the one order of these four, either
    // we see the frontend's new event index, or the frontend, looking again before it sleeps, sees
    // our responses. With less, both could miss.
    index(offsetof(indices, rsp_prod)).store(rsp_prod_, std::memory_order_seq_cst);
    const Index event = index(offsetof(indices, rsp_event)).load(std::memory_order_seq_cst);
    return crossed(old, rsp_prod_, event);
  }

  /// Asks the frontend for a notification when `distance` more requests than have been taken are
  /// there, then looks again: true means that there is work now, and the caller must not sleep.
  /// That is so, once, when this look finds the ring broken: somebody has to notice. A distance
  /// that the free slots cannot reach is cut down to them; whoever asks for more than 1 also needs
  /// a timer, as fewer may be all that comes.
  [[nodiscard]] bool arm(Index distance = 1) noexcept {
    const protocol_error before = broken_;
    distance = reachable(distance, size_ - static_cast<Index>(req_cons_ - rsp_published_));
    // seq_cst for the reason given in publish(), with the roles swapped.
    index(offsetof(indices, req_event))
        .store(static_cast<Index>(req_cons_ + distance), std::memory_order_seq_cst);
    return look(std::memory_order_seq_cst) >= distance || broken_ != before;
  }

  // Parking needs no call: an event index that is not renewed lies behind the frontend's producer
  // index, and then the frontend does not notify.

  /// Set once the frontend broke the protocol; take() finds nothing from then on.
  [[nodiscard]] protocol_error broken() const noexcept { return broken_; }

  /// How many requests were taken since the start, modulo the index type; and responses published.
  [[nodiscard]] Index request_consumer() const noexcept { return req_cons_; }
  [[nodiscard]] Index response_producer() const noexcept { return rsp_published_; }

  /// The published indices of a ring to attach to, where they fit each other: a backend that takes
  /// over reads both once, and refuses a pair that no honest history leads to.
  struct published {
    Index req_prod;
    Index rsp_prod;
  };
  [[nodiscard]] static std::optional<published> read_published(
      std::span<std::byte> memory) noexcept {
    if (protocol_slots(memory) == 0) {
      return std::nullopt;
    }
    const shared_index<Index> req(memory.data() + offsetof(indices, req_prod));
    const shared_index<Index> rsp(memory.data() + offsetof(indices, rsp_prod));
    const published pair{req.load(std::memory_order_acquire), rsp.load(std::memory_order_acquire)};
    const auto outstanding = static_cast<Index>(pair.req_prod - pair.rsp_prod);
    if (outstanding > protocol_slots(memory)) {
      return std::nullopt;
    }
    return pair;
  }

 private:
  using indices = pvring::protocol::ring_indices<Index>;

  static constexpr std::size_t protocol_slots(std::span<std::byte> memory) noexcept {
    return pvring::protocol::ring_slots(memory.size(), Protocol::slot_bytes);
  }

  [[nodiscard]] shared_index<Index> index(std::size_t offset) const noexcept {
    return shared_index<Index>(page_ + offset);
  }

  [[nodiscard]] std::byte* slot_at(Index at) const noexcept {
    return page_ + pvring::protocol::ring_header_bytes + (at & (size_ - 1)) * Protocol::slot_bytes;
  }

  // How many requests are there that were not taken; one load of the frontend's index, checked
  // before it is believed. Acquire: pairs with the frontend's publishing store, so its slots are
  // seen as written.
  Index look(std::memory_order order = std::memory_order_acquire) noexcept {
    const Index produced = index(offsetof(indices, req_prod)).load(order);
    // The frontend may run ahead of our responses by the ring size: exactly full is legal, one more
    // is not. An index that went back shows as a huge difference.
    if (static_cast<Index>(produced - rsp_prod_) > size_ ||
        static_cast<Index>(produced - rsp_prod_) < static_cast<Index>(req_cons_ - rsp_prod_))
        [[unlikely]] {
      broken_ = protocol_error::request_producer_overrun;
    }
    return broken_ == protocol_error::none ? static_cast<Index>(produced - req_cons_) : Index{0};
  }

  std::byte* page_;
  std::size_t size_;
  Index req_cons_;
  Index rsp_prod_;
  Index rsp_published_;
  protocol_error broken_ = protocol_error::none;
};

}  // namespace pvring::ring
