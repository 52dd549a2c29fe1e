// SPDX-License-Identifier: MIT
// One queue of a network device: a transmit and a receive ring, a grant strategy, a port of the
// uplink, and the pass that moves packets through them. Sibling of blk/queue.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../aio/mailbox.hpp"
#include "../base/counter.hpp"
#include "../grant/page_mover.hpp"
#include "../grant/strategy.hpp"
#include "../observe/observer.hpp"
#include "../platform/platform.hpp"
#include "../wait/ring_source.hpp"
#include "delivery.hpp"
#include "device.hpp"
#include "gated_port.hpp"
#include "plan_slots.hpp"
#include "rx_path.hpp"
#include "tx_path.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// Counted by a queue, besides what its two paths count; any thread may read.
struct queue_counters {
  counter passes;         ///< that did something
  counter notifications;  ///< sent to the frontend
  counter unneeded;       ///< publications that the frontend did not want to be notified of
};

/// What a queue is made of and made for.
struct queue_setup {
  domain_id domain = 0;
  std::span<std::byte> tx_ring;  ///< a mapped page; outlives the queue
  std::span<std::byte> rx_ring;  ///< a mapped page; outlives the queue
  platform::port tx_port = 0;    ///< bound on the first event handle
  platform::port rx_port = 0;    ///< bound on the second; `tx_port` where one channel serves both
  std::uint32_t tx_start = 0;    ///< where each ring was left
  std::uint32_t rx_start = 0;
  rx_setup receive;
  wait::clock_function clock = &std::chrono::steady_clock::now;
  /// Called by the queue's thread when the frontend broke the protocol; and with `none` when a
  /// stopped queue has become idle, and when the guest stalled or recovered.
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

/// What a strategy needs to know for packets, beside the domain. A packet is packed into one run of
/// bytes where it is copied: whoever sends it on has one piece to send.
[[nodiscard]] inline grant::strategy_options packet_grants(domain_id domain) noexcept {
  return {.domain = domain,
          .max_pieces = static_cast<std::uint32_t>(max_data_slots),
          .max_leases = 64,
          .budget_bytes = 0,
          .quota_pages = 0,
          .idle_milliseconds = 0,
          .scatter = false};
}

/// One thread serves a queue: it calls service() and the sources. stop(), idle() and the counters
/// are for any thread. Nothing here allocates after construction, throws, or blocks.
template <platform::grant_mapper Mapper, platform::event_channel Events, class Strategy,
          uplink_port Port, observe::recorder Recorder>
  requires grant::strategy<Strategy, Mapper>
class queue {
 public:
  using strategy_type = typename Strategy::template bind<Mapper>;
  using mover_type = grant::mover_for<Strategy, Mapper>;
  /// Whether the strategy uses pages that the guest asked to be kept mapped.
  static constexpr bool keeps_pages = requires(strategy_type& s) { s.table(); };
  using tx_type = tx_path<strategy_type, Port, Recorder>;
  using rx_type = rx_path<mover_type, Port>;
  using tx_ring_type = typename tx_type::ring_type;
  using rx_ring_type = typename rx_type::ring_type;

  /// All but `setup` and `grants` outlive the queue. \param rx_events `events` itself where one
  /// channel serves both rings \throws configuration_error when a page cannot be a ring
  queue(const queue_setup& setup, const grant::strategy_options& grants, shared_state& device,
        Mapper& mapper, Events& events, Events& rx_events, Port& port)
      : setup_(setup),
        events_(events),
        rx_events_(rx_events),
        tx_ring_(setup.tx_ring, setup.tx_start),
        rx_ring_(setup.rx_ring, setup.rx_start),
        port_(port),
        strategy_(mapper, grants),
        mover_(grant::make_mover<Strategy>(
            mapper, {.domain = setup.domain, .most = rx_ring_.size(), .operations_per_call = 0},
            strategy_)),
        tx_(tx_ring_, strategy_, port, device),
        rx_(rx_ring_, mover_, port_, device, setup.receive) {
    if constexpr (keeps_pages) {
      orders_.emplace(most_orders);
    }
    if (setup.tx_port == setup.rx_port) {
      source_.emplace(events, setup.tx_port, tx_ring_, rx_ring_);
    } else {
      tx_source_.emplace(events, setup.tx_port, tx_ring_);
      rx_source_.emplace(rx_events, setup.rx_port, rx_ring_);
    }
    want();
  }
  queue(const queue&) = delete;
  queue& operator=(const queue&) = delete;

  /// One pass; see wait::served. Takes at most about `budget` slots of what the guest transmits,
  /// and at most a burst of what it receives.
  std::size_t service(std::size_t budget) noexcept {
    time_ = 0;
    const auto now = [this]() noexcept { return microseconds(); };
    const bool stopping = stopping_.load(std::memory_order_acquire);
    std::size_t work = perform_orders();
    work += tx_.pass(budget, stopping, now);
    const bool was_stalled = rx_.stalled();
    work += rx_.pass(at_once(), stopping, now);
    publish();
    if (work != 0) {
      counters_.passes.add();
    }
    trim();
    want();
    if (rx_.stalled() != was_stalled) {
      attract(protocol_error::none);
    }
    tell();
    return work;
  }

  [[nodiscard]] std::optional<wait::time_point> deadline() noexcept {
    std::uint64_t at = tx_.again_at();
    for (const std::uint64_t other : {rx_.again_at(), trim_at_}) {
      if (other != 0 && (at == 0 || other * 1000 < at)) {
        at = other * 1000;
      }
    }
    return at == 0 ? std::nullopt
                   : std::optional(wait::time_point(
                         std::chrono::microseconds(static_cast<std::int64_t>(at))));
  }

  template <class F>
  void for_each_source(F&& each) noexcept {
    if (source_) {
      each(*source_);
    } else {
      each(*tx_source_);
      each(*rx_source_);
    }
    each(port_);
    if constexpr (keeps_pages) {
      each(*orders_);
    }
  }

  /// Pages that the guest can have kept mapped. Any thread.
  [[nodiscard]] std::uint32_t mapped_pages() noexcept {
    if constexpr (keeps_pages) {
      return strategy_.table().capacity();
    } else {
      return 0;
    }
  }
  /// Any thread, one at a time: has the queue's thread perform the order in its next pass, also
  /// when the queue is stopped. False: this queue keeps no pages. \pre the last one has come back
  [[nodiscard]] bool order(grant::mapping_order& order) noexcept {
    if constexpr (keeps_pages) {
      orders_->push(&order);
    }
    return keeps_pages;
  }

  /// Takes and receives no more; what was taken is finished. idle() tells when.
  void stop() noexcept { stopping_.store(true, std::memory_order_release); }
  /// Whether the queue was stopped, or broke, and has nothing left in flight.
  [[nodiscard]] bool idle() const noexcept { return idle_.load(std::memory_order_acquire); }
  /// What the frontend did, once it broke the protocol.
  [[nodiscard]] protocol_error broken() const noexcept {
    return broken_.load(std::memory_order_acquire);
  }
  /// Unmaps everything that the strategy keeps. \pre idle(), and nobody serves the queue
  void clear() noexcept { strategy_.clear(); }

  /// What gets at the guest's pages, for whoever keeps some of them mapped. The queue's thread.
  [[nodiscard]] strategy_type& strategy() noexcept { return strategy_; }

  [[nodiscard]] const queue_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const tx_counters& transmitted() const noexcept { return tx_.counters(); }
  [[nodiscard]] const rx_counters& received() const noexcept { return rx_.counters(); }
  [[nodiscard]] const grant::counters& grant_counters() const noexcept {
    return strategy_.counters();
  }
  [[nodiscard]] const grant::counters& mover_counters() const noexcept { return mover_.counters(); }
  /// `each(const wait::ring_source_counters&)` of one channel or two.
  template <class F>
  void for_each_event_counters(F&& each) const {
    if (source_) {
      each(source_->counters());
    } else {
      each(tx_source_->counters());
      each(rx_source_->counters());
    }
  }
  [[nodiscard]] const Recorder& recorder() const noexcept { return tx_.recorder(); }
  /// The index behind the last answer of each ring. The queue's thread, or any when that has ended.
  [[nodiscard]] std::uint32_t tx_position() const noexcept { return tx_ring_.answered(); }
  [[nodiscard]] std::uint32_t rx_position() const noexcept { return rx_ring_.answered(); }
  [[nodiscard]] std::uint32_t leases() noexcept { return strategy_.leases(); }
  /// Bytes of frames on their way to the guest, at most.
  [[nodiscard]] std::size_t store_bytes() const noexcept { return rx_.store_bytes(); }

 private:
  std::size_t perform_orders() noexcept {
    if constexpr (keeps_pages) {
      return orders_->consume([this](grant::mapping_order* order) noexcept {
        strategy_.table().perform(*order);
        order->finished(*order);
      });
    } else {
      return 0;
    }
  }

  [[nodiscard]] bool at_once() const noexcept {
    switch (setup_.receive.delivery.when) {
      case delivery::at_once:
        return true;
      case delivery::deferred:
        return false;
      case delivery::automatic:
        break;
    }
    if constexpr (requires { mover_.immediate(); }) {
      return mover_.immediate();
    } else {
      return false;
    }
  }

  void publish() noexcept {
    const std::uint64_t before = publications();
    const bool for_tx = tx_.publish();
    const bool for_rx = rx_.publish();
    std::uint64_t sent = 0;
    if (source_) {
      sent = for_tx || for_rx ? 1 : 0;
      if (sent != 0) {
        events_.notify(setup_.tx_port);
      }
    } else {
      if (for_tx) {
        events_.notify(setup_.tx_port);
        ++sent;
      }
      if (for_rx) {
        rx_events_.notify(setup_.rx_port);
        ++sent;
      }
    }
    counters_.notifications.add(sent);
    counters_.unneeded.add(publications() - before - std::min(publications() - before, sent));
  }
  [[nodiscard]] std::uint64_t publications() const noexcept {
    return tx_.counters().publications.get() + rx_.counters().publications.get();
  }

  // What is waited for. Whoever arms a ring whose requests cannot be taken would hear of them for
  // ever; and posted pages are of interest only to a frame that waits for them.
  void want() noexcept {
    const bool ended = stopping_.load(std::memory_order_acquire) || error() != protocol_error::none;
    const std::size_t for_tx = !ended && tx_.can_take() ? 1 : 0;
    const std::size_t for_rx = ended ? 0 : rx_.wanted();
    if (source_) {
      source_->template want<0>(for_tx);
      source_->template want<1>(for_rx);
    } else {
      tx_source_->template want<0>(for_tx);
      rx_source_->template want<0>(for_rx);
    }
    if (ended) {
      port_.want(false);
    }
  }

  void trim() noexcept {
    if constexpr (strategy_type::mapped) {
      if (++passes_since_trim_ < passes_per_trim) {
        return;
      }
      passes_since_trim_ = 0;
      trim_at_ = strategy_.trim(microseconds() / 1000);
    }
  }

  [[nodiscard]] std::uint64_t microseconds() noexcept {
    if (time_ == 0) {
      time_ = static_cast<std::uint64_t>(
          std::chrono::floor<std::chrono::microseconds>(setup_.clock().time_since_epoch()).count());
    }
    return time_;
  }

  void attract(protocol_error why) const noexcept {
    if (setup_.attention != nullptr) {
      setup_.attention(setup_.who, why);
    }
  }

  [[nodiscard]] protocol_error error() const noexcept {
    return tx_.error() != protocol_error::none ? tx_.error() : rx_.error();
  }

  // Shows the other threads what became of the queue.
  void tell() noexcept {
    if (error() != protocol_error::none &&
        broken_.load(std::memory_order_relaxed) == protocol_error::none) [[unlikely]] {
      broken_.store(error(), std::memory_order_release);
      stopping_.store(true, std::memory_order_release);
      attract(error());
    }
    if (stopping_.load(std::memory_order_acquire) && !idle_.load(std::memory_order_relaxed) &&
        tx_.idle()) [[unlikely]] {
      rx_.end();
      idle_.store(true, std::memory_order_release);
      attract(protocol_error::none);
    }
  }

  static constexpr std::size_t most_orders = 1;  // the control ring has one at a time
  static constexpr std::uint32_t passes_per_trim = 4096;

  queue_setup setup_;
  Events& events_;
  Events& rx_events_;
  tx_ring_type tx_ring_;
  rx_ring_type rx_ring_;
  gated_port<Port> port_;
  strategy_type strategy_;
  mover_type mover_;
  tx_type tx_;
  rx_type rx_;
  std::optional<wait::ring_source<Events, tx_ring_type, rx_ring_type>> source_;
  std::optional<wait::ring_source<Events, tx_ring_type>> tx_source_;
  std::optional<wait::ring_source<Events, rx_ring_type>> rx_source_;
  std::optional<aio::mailbox<grant::mapping_order*>> orders_;
  std::uint64_t time_ = 0;  // microseconds; 0: the clock was not asked in this pass
  std::uint64_t trim_at_ = 0;
  std::uint32_t passes_since_trim_ = 0;
  queue_counters counters_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> idle_{false};
  std::atomic<protocol_error> broken_{protocol_error::none};
};

}  // namespace pvring::net
