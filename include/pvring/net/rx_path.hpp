// SPDX-License-Identifier: MIT
// What a guest receives: frames from the uplink are planned once and moved by whatever mover there
// is, in the pass that got them or in the next. One function serves every combination.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../base/counter.hpp"
#include "../grant/page_mover.hpp"
#include "../protocol/netif_abi.hpp"
#include "../ring/back_ring.hpp"
#include "delivery.hpp"
#include "device.hpp"
#include "frame_store.hpp"
#include "gated_port.hpp"
#include "packet.hpp"
#include "plan_slots.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// Counted by the queue's thread; any thread may read.
struct rx_counters {
  counter packets;  ///< that are in the guest
  counter bytes;    ///< of those
  counter slots;    ///< of those, extra infos included
  counter extras;
  counter at_once;        ///< packets delivered in the pass that got them
  counter filtered;       ///< packets of groups that the guest has not joined
  counter undeliverable;  ///< packets that the frontend does not take; see plan_slots
  counter expired;        ///< packets that waited too long
  counter stalled;        ///< packets that came, or waited, while the guest was stalled
  counter failed;         ///< slots whose page could not be written
  counter no_room;        ///< times that a packet had to wait for slots
  counter stalls;         ///< times that the guest stalled
  counter uplink_failed;  ///< receive calls that failed
  counter publications;   ///< of responses, each of any number
};

/// How a receive path is made.
struct rx_setup {
  rx_agreement receives;
  /// The frontend says when it has posted; see delivery.hpp for what holds otherwise.
  bool notifies = true;
  bool reads_multicast = false;  ///< the frontend named the groups that it wants
  delivery_options delivery;
};

/// A frame is in one place at a time: in the store, not passed; passed, with its requests in
/// `pending_`; or, after `flush`, in the guest. A response is written only when its bytes are there
/// and all before it are answered, each in the slot of its request, as requests are taken in order
/// and answered in order.
template <grant::page_mover Mover, uplink_port Port>
class rx_path {
 public:
  using wire_protocol = protocol::netif::rx_wire;
  using ring_type = ring::back_ring<wire_protocol>;

  /// All outlive it.
  rx_path(ring_type& ring, Mover& mover, gated_port<Port>& port, shared_state& device,
          const rx_setup& setup)
      : ring_(ring),
        mover_(mover),
        port_(port),
        device_(device),
        setup_(setup),
        expiry_(setup.notifies ? setup.delivery.expiry_milliseconds
                               : silent_frontend_expiry_milliseconds),
        store_(setup.delivery.most_bytes) {
    pending_.reserve(ring.size());
  }
  rx_path(const rx_path&) = delete;
  rx_path& operator=(const rx_path&) = delete;

  /// One pass. Returns how many frames it received or delivered; `publish` shows them.
  /// \param at_once deliver what comes in this pass; else what came before it
  /// \param now reads the clock in microseconds
  template <class Now>
  std::size_t pass(bool at_once, bool stopping, Now&& now) noexcept {
    if (store_.has_next() || stalled_) {
      look_at_time(now);
    }
    std::size_t work = deliver();
    if (!at_once) {
      flush();
    }
    if (!stopping) {
      work += receive(at_once, now);
    }
    if (at_once) {
      flush();
    }
    if (blocked_ && blocked_since_ == 0) {
      blocked_since_ = now() / 1000;
    }
    return work;
  }

  /// True when the frontend wants to be notified.
  [[nodiscard]] bool publish() noexcept {
    if (!ring_.has_unpublished()) {
      return false;
    }
    counters_.publications.add();
    return ring_.publish();
  }

  /// How many requests are waited for; 0: none.
  [[nodiscard]] std::size_t wanted() const noexcept {
    return store_.has_next() || stalled_ ? need_ : 0;
  }
  /// What the peer did wrong: nothing is taken any more.
  [[nodiscard]] protocol_error error() const noexcept { return ring_.broken(); }
  [[nodiscard]] bool stalled() const noexcept { return stalled_; }
  /// When it wants a pass, in milliseconds of the clock; 0: not by itself.
  [[nodiscard]] std::uint64_t again_at() const noexcept {
    std::uint64_t at = retry_at_;
    const auto earlier = [&at](std::uint64_t other) { at = at == 0 ? other : std::min(at, other); };
    if (store_.has_next() && !stalled_) {
      earlier(store_.next().since + expiry_ + 1);
      if (blocked_since_ != 0 && setup_.notifies && setup_.delivery.stall_milliseconds != 0) {
        earlier(blocked_since_ + setup_.delivery.stall_milliseconds + 1);
      }
      if (!setup_.notifies) {
        earlier(asked_at_ + silent_frontend_poll_milliseconds);
      }
    }
    return at;
  }

  [[nodiscard]] const rx_counters& counters() const noexcept { return counters_; }
  /// Bytes that frames can take at most.
  [[nodiscard]] std::size_t store_bytes() const noexcept { return store_.bytes(); }

  /// Forgets what waits. The device is not held back by a queue that is gone.
  void end() noexcept {
    drop_all();
    recover();
  }

 private:
  // What is told once per pass.
  struct tally {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t slots = 0;
    std::uint64_t extras = 0;
    std::uint64_t at_once = 0;
  };
  struct pending_response {
    ring::obligation<wire_protocol> duty;
    protocol::netif::rx_outcome outcome;
  };

  // ---- receive
  // ----------------------------------------------------------------------------------------------------------
  template <class Now>
  std::size_t receive(bool at_once, Now& now) noexcept {
    if (retry_at_ != 0) {
      if (now() / 1000 < retry_at_) {
        return 0;
      }
      retry_at_ = 0;
    }
    std::size_t count = 0;
    while (count < setup_.delivery.burst) {
      // What is delivered at once stays in order only behind nothing; and what finds no room may as
      // well stay in the uplink, which can tell its own senders.
      const bool has_room = !store_.room().empty();
      if (!has_room || (at_once && store_.has_next())) {
        if (!has_room && store_.has_passed()) {
          flush();  // passed frames give up their bytes
          continue;
        }
        port_.want(false);
        return count;
      }
      packet_info info;
      const std::ptrdiff_t length = port_.port().receive(store_.room(), info);
      if (length == 0) {
        break;
      }
      ++count;
      if (length < 0) [[unlikely]] {
        counters_.uplink_failed.add();
        if (length == -EMSGSIZE) {
          continue;
        }
        // It is asked again, but not in a circle: a device that is gone stays readable.
        retry_at_ = now() / 1000 + uplink_retry_milliseconds;
        port_.want(false);
        return count;
      }
      take_in(static_cast<std::size_t>(length), info, at_once, now);
    }
    port_.want(true);
    return count;
  }

  template <class Now>
  void take_in(std::size_t length, const packet_info& info, bool at_once, Now& now) noexcept {
    if (stalled_) {
      counters_.stalled.add();
      return;
    }
    if (setup_.reads_multicast && !is_wanted(store_.room(), length)) {
      counters_.filtered.add();
      return;
    }
    // The time matters only for a frame that stays.
    store_.keep(length, info, at_once ? 0 : now() / 1000);
    if (at_once && deliver() != 0) {
      ++fresh_.at_once;
    }
    if (at_once && store_.has_next()) {
      store_.stamp_next(now() / 1000);
    }
  }

  // A frame for one station and one for all of them is everybody's.
  [[nodiscard]] bool is_wanted(std::span<const std::byte> frame,
                               std::size_t length) const noexcept {
    if (length < min_frame_bytes || (frame[0] & std::byte{1}) == std::byte{0}) {
      return true;
    }
    std::array<std::uint8_t, 6> address{};
    bool all = true;
    for (std::size_t i = 0; i < address.size(); ++i) {
      address[i] = std::to_integer<std::uint8_t>(frame[i]);
      all = all && address[i] == 0xff;
    }
    return all || device_.multicast.wants(address);
  }

  // ---- deliver
  // ----------------------------------------------------------------------------------------------------------
  // Passes frames to the mover in order, as long as the guest has room for them.
  std::size_t deliver() noexcept {
    std::size_t count = 0;
    blocked_ = false;
    while (store_.has_next() && !stalled_) {
      const frame_store::frame& f = store_.next();
      const slot_plan plan = plan_slots(f.length, f.info, setup_.receives);
      if (plan.slots() == 0) {
        counters_.undeliverable.add();
        store_.pass();
        ++count;
        continue;
      }
      if (ring_.available() < plan.slots()) {
        blocked_ = true;
        if (blocked_since_ == 0) {
          counters_.no_room.add();
        }
        need_ = plan.slots();
        break;
      }
      put(f, plan);
      store_.pass();
      blocked_since_ = 0;
      ++count;
    }
    return count;
  }

  void put(const frame_store::frame& f, const slot_plan& plan) noexcept {
    std::size_t index = 0;
    const std::byte* const bytes = store_.bytes_of(f);
    ring_.take(plan.slots(), [&](ring::taken<wire_protocol>& taken) {
      wire_protocol::request request;
      taken.fetch(request);
      const slot_plan::part part = plan.at(index++);
      auto duty = taken.owe(wire_protocol::echo_of(request));
      protocol::netif::rx_outcome outcome;
      bool there = part.is_extra;
      if (part.is_extra) {
        outcome.is_extra = true;
        outcome.extra = *part.extra;
      } else {
        outcome.flags = part.flags;
        outcome.status = static_cast<std::int16_t>(part.length);
        there =
            mover_.move(bytes + part.offset,
                        {.reference = request.gref, .mark = 0, .offset = 0, .length = part.length},
                        static_cast<std::uint32_t>(pending_.size()));
      }
      if (there && pending_.empty()) {  // nothing before it is owed, and nothing of it can fail
        ring_.respond(std::move(duty).settle(outcome));
      } else {
        pending_.push_back({std::move(duty), outcome});
      }
    });
    ++fresh_.packets;
    fresh_.bytes += f.length;
    fresh_.slots += plan.slots();
    fresh_.extras += plan.extras();
  }

  // Everything that was passed is in the guest's pages when this returns, and answered.
  void flush() noexcept {
    mover_.flush([this](std::uint32_t owner) {
      protocol::netif::rx_outcome& outcome = pending_[owner].outcome;
      if (outcome.status >= 0) {
        counters_.failed.add();
      }
      outcome.status = static_cast<std::int16_t>(protocol::netif::status::error);
    });
    for (pending_response& p : pending_) {
      ring_.respond(std::move(p.duty).settle(p.outcome));
    }
    pending_.clear();
    store_.forget_passed();
    if (fresh_.packets != 0) {
      counters_.packets.add(fresh_.packets);
      counters_.bytes.add(fresh_.bytes);
      counters_.slots.add(fresh_.slots);
      counters_.extras.add(fresh_.extras);
      counters_.at_once.add(fresh_.at_once);
      fresh_ = {};
    }
  }

  // ---- time
  // -------------------------------------------------------------------------------------------------------------
  template <class Now>
  void look_at_time(Now& now) noexcept {
    const std::uint64_t time = now() / 1000;
    asked_at_ = time;
    if (stalled_) {
      if (ring_.available() >= need_) {
        recover();
      }
      return;
    }
    while (store_.has_next() && time > store_.next().since + expiry_) {
      counters_.expired.add();
      store_.drop_next();
    }
    if (!store_.has_next() || ring_.available() >= need_) {
      return;
    }
    // Judged by what the first packet needs: a guest that keeps one slot for ever is stalled too.
    if (blocked_since_ != 0 && setup_.notifies && setup_.delivery.stall_milliseconds != 0 &&
        time > blocked_since_ + setup_.delivery.stall_milliseconds) {
      stall();
    }
  }

  void stall() noexcept {
    stalled_ = true;
    counters_.stalls.add();
    counters_.stalled.add(store_.size());
    drop_all();
    device_.stalled_queues.fetch_add(1, std::memory_order_relaxed);
  }

  void recover() noexcept {
    blocked_ = false;
    blocked_since_ = 0;
    if (stalled_) {
      stalled_ = false;
      device_.stalled_queues.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  void drop_all() noexcept {
    while (store_.has_next()) {
      store_.drop_next();
    }
  }

  static constexpr std::uint64_t uplink_retry_milliseconds = 1000;

  ring_type& ring_;
  Mover& mover_;
  gated_port<Port>& port_;
  shared_state& device_;
  rx_setup setup_;
  std::uint64_t expiry_;
  frame_store store_;
  std::vector<pending_response> pending_;
  tally fresh_;
  std::size_t need_ = 1;  // slots of the first packet that found no room
  bool blocked_ = false;
  bool stalled_ = false;
  std::uint64_t blocked_since_ = 0;  // milliseconds; since the first packet has no room
  std::uint64_t asked_at_ = 0;
  std::uint64_t retry_at_ = 0;
  rx_counters counters_;
};

}  // namespace pvring::net
