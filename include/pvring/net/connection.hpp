// SPDX-License-Identifier: MIT
// A connected network queue with everything it owns, behind an interface that does not depend on
// what was negotiated. The interface is called per pass and per connection, never per packet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "../grant/mapped_first.hpp"
#include "../grant/strategy.hpp"
#include "../observe/observer.hpp"
#include "../platform/platform.hpp"
#include "../wait/drain.hpp"
#include "../wait/loop.hpp"
#include "../wait/runner.hpp"
#include "../xenbus/ring_link.hpp"
#include "device.hpp"
#include "negotiation.hpp"
#include "queue.hpp"

namespace pvring::net {

/// What a queue has done so far, read by any thread.
struct queue_statistics {
  std::string_view strategy;
  std::uint64_t tx_packets = 0;  ///< from the guest
  std::uint64_t tx_bytes = 0;
  std::uint64_t tx_slots = 0;
  std::uint64_t tx_refused = 0;
  std::uint64_t tx_failed = 0;
  std::uint64_t tx_dropped = 0;  ///< that the uplink did not take
  std::uint64_t tx_limited = 0;
  std::uint64_t rx_packets = 0;  ///< to the guest
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_slots = 0;
  std::uint64_t rx_at_once = 0;
  std::uint64_t rx_filtered = 0;
  std::uint64_t rx_undeliverable = 0;
  std::uint64_t rx_expired = 0;
  std::uint64_t rx_stalled = 0;
  std::uint64_t rx_failed = 0;
  std::uint64_t rx_waits = 0;
  std::uint64_t passes = 0;
  std::uint64_t notifications = 0;
  std::uint64_t grant_calls = 0;
  std::uint64_t grant_operations = 0;
  std::uint64_t events = 0;  ///< kicks that were delivered
  std::uint64_t spurious_events = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t grant_system_calls = 0;  ///< where the platform's handles count
  std::uint64_t event_system_calls = 0;
  std::uint64_t hypercalls = 0;
};

/// A queue that is connected. \tparam Recorder the composition's
template <class Recorder>
class connected_queue {
 public:
  connected_queue() = default;
  connected_queue(const connected_queue&) = delete;
  connected_queue& operator=(const connected_queue&) = delete;
  virtual ~connected_queue() = default;

  /// Starts the queue's own thread.
  virtual void start(const wait::runner_options& options) = 0;
  /// For a caller's event loop; see wait::waiter. \pre `start` was not called
  [[nodiscard]] virtual bool turn() noexcept = 0;
  [[nodiscard]] virtual std::span<const int> fds() const noexcept = 0;
  [[nodiscard]] virtual int timeout_ms() noexcept = 0;

  /// Takes no more. The thread of process(), which is the serving one where the caller serves.
  virtual void stop() noexcept = 0;
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  /// Ends the queue's own thread, if it has one. \pre idle()
  virtual void join() noexcept = 0;
  /// See queue::mapped_pages and queue::order.
  [[nodiscard]] virtual std::uint32_t mapped_pages() noexcept = 0;
  [[nodiscard]] virtual bool order(grant::mapping_order& order) noexcept = 0;
  [[nodiscard]] virtual queue_statistics statistics() const = 0;
  [[nodiscard]] virtual const Recorder& recorder() const noexcept = 0;
};

/// What it takes to connect a queue.
template <class Platform, class Uplink>
struct connection_setup {
  Platform& host;
  Uplink& uplink;
  std::uint32_t number = 0;  ///< of the queue
  const options& wanted;
  shared_state& device;
  const agreement& with;
  const queue_nodes& nodes;
  domain_id domain = 0;
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

/// Where the last backend left a ring: transmit is answered in ring order, control too, and receive
/// is never ahead of its answers, so `rsp_prod` says everything. What was done and not answered is
/// done again, which a network may do.
/// \throws configuration_error when no honest history leads to its indices
template <class Ring>
[[nodiscard]] std::uint32_t published_start(std::span<std::byte> ring, std::string_view which,
                                            domain_id domain, std::string_view directory) {
  const auto at = Ring::read_published(ring);
  if (!at) {
    throw configuration_error("the " + std::string(which) + " ring of domain " +
                              std::to_string(domain) + " (" + std::string(directory) + "): " +
                              std::string(to_string(protocol_error::attach_indices_inconsistent)) +
                              "; initialise it, or keep it as the last connection left it");
  }
  return at->rsp_prod;
}

template <class Config, class Strategy>
class connected_queue_of final : public connected_queue<typename Config::observe::recorder> {
 public:
  using platform_type = typename Config::platform;
  using uplink_type = typename Config::uplink;
  using recorder_type = typename Config::observe::recorder;
  using queue_type =
      queue<typename platform_type::grant_handle, typename platform_type::event_handle, Strategy,
            typename uplink_type::port, recorder_type>;

  /// \throws std::system_error naming domain and reference when a ring cannot be mapped or a channel
  /// not bound; what the uplink throws
  explicit connected_queue_of(const connection_setup<platform_type, uplink_type>& setup)
      : grants_(setup.host.open_grants(quota(setup))),
        tx_ring_(grants_, setup.domain, {&setup.nodes.tx_reference, 1}, setup.nodes.directory),
        rx_ring_(grants_, setup.domain, {&setup.nodes.rx_reference, 1}, setup.nodes.directory),
        events_(setup.host.open_events()),
        port_(events_, setup.domain, setup.nodes.tx_channel),
        uplink_(setup.uplink.open(setup.number)) {
    if (setup.nodes.split()) {
      rx_events_.emplace(setup.host.open_events());
      rx_port_.emplace(*rx_events_, setup.domain, setup.nodes.rx_channel);
    }
    queue_.emplace(
        queue_setup{.domain = setup.domain,
                    .tx_ring = tx_ring_.bytes(),
                    .rx_ring = rx_ring_.bytes(),
                    .tx_port = port_.number,
                    .rx_port = rx_port_ ? rx_port_->number : port_.number,
                    .tx_start = published_start<typename queue_type::tx_ring_type>(
                        tx_ring_.bytes(), "transmit", setup.domain, setup.nodes.directory),
                    .rx_start = published_start<typename queue_type::rx_ring_type>(
                        rx_ring_.bytes(), "receive", setup.domain, setup.nodes.directory),
                    .receive = {.receives = setup.with.receives,
                                .notifies = setup.with.notifies,
                                .reads_multicast = setup.with.reads_multicast,
                                .delivery = setup.wanted.delivery},
                    .attention = setup.attention,
                    .who = setup.who},
        strategy_options(setup), setup.device, grants_, events_, rx_events_ ? *rx_events_ : events_,
        uplink_);
    waiter_.emplace(*queue_, wait::policy(),
                    wait::waiter_options{.budget = setup.wanted.pass_budget});
    // What the frontend put before a channel was bound came without an event, and it may wait for
    // one from us.
    events_.notify(port_.number);
    if (rx_port_) {
      rx_events_->notify(rx_port_->number);
    }
  }

  ~connected_queue_of() override {
    runner_.reset();  // joins, so that nobody else serves the queue below
    wait::drain(*queue_, *waiter_);
    queue_->clear();
  }

  void start(const wait::runner_options& options) override { runner_.emplace(*queue_, options); }
  [[nodiscard]] bool turn() noexcept override { return waiter_->turn(); }
  [[nodiscard]] std::span<const int> fds() const noexcept override { return waiter_->fds(); }
  [[nodiscard]] int timeout_ms() noexcept override { return waiter_->timeout_ms(); }

  void stop() noexcept override {
    queue_->stop();
    if (runner_) {
      runner_->kick();
      return;
    }
    // The caller serves, and this is its thread: one pass notices.
    while (!waiter_->turn()) {
    }
  }
  [[nodiscard]] bool idle() const noexcept override { return queue_->idle(); }
  void join() noexcept override { runner_.reset(); }
  [[nodiscard]] std::uint32_t mapped_pages() noexcept override { return queue_->mapped_pages(); }
  [[nodiscard]] bool order(grant::mapping_order& order) noexcept override {
    return queue_->order(order);
  }
  [[nodiscard]] const recorder_type& recorder() const noexcept override {
    return queue_->recorder();
  }

  [[nodiscard]] queue_statistics statistics() const override {
    const tx_counters& tx = queue_->transmitted();
    const rx_counters& rx = queue_->received();
    queue_statistics out{
        .strategy = Strategy::name,
        .tx_packets = tx.packets.get(),
        .tx_bytes = tx.bytes.get(),
        .tx_slots = tx.slots.get(),
        .tx_refused = tx.refused.get(),
        .tx_failed = tx.failed.get(),
        .tx_dropped = tx.no_room.get() + tx.uplink_failed.get(),
        .tx_limited = tx.limited.get(),
        .rx_packets = rx.packets.get(),
        .rx_bytes = rx.bytes.get(),
        .rx_slots = rx.slots.get(),
        .rx_at_once = rx.at_once.get(),
        .rx_filtered = rx.filtered.get(),
        .rx_undeliverable = rx.undeliverable.get(),
        .rx_expired = rx.expired.get(),
        .rx_stalled = rx.stalled.get(),
        .rx_failed = rx.failed.get(),
        .rx_waits = rx.no_room.get(),
        .passes = queue_->counters().passes.get(),
        .notifications = queue_->counters().notifications.get(),
        .grant_calls = queue_->grant_counters().calls.get() + queue_->mover_counters().calls.get(),
        .grant_operations =
            queue_->grant_counters().operations.get() + queue_->mover_counters().operations.get(),
        .sleeps = runner_ ? runner_->counters().sleeps.get() : waiter_->counters().sleeps.get()};
    queue_->for_each_event_counters([&out](const wait::ring_source_counters& events) {
      out.events += events.events.get();
      out.spurious_events += events.spurious.get();
    });
    if constexpr (requires { grants_.counters().system_calls; }) {
      out.grant_system_calls = grants_.counters().system_calls.get();
      out.hypercalls += grants_.counters().hypercalls.get();
    }
    if constexpr (requires { events_.counters().system_calls; }) {
      const auto add = [&out](const event_handle& handle) {
        out.event_system_calls += handle.counters().system_calls.get();
        out.hypercalls += handle.counters().hypercalls.get();
      };
      add(events_);
      if (rx_events_) {
        add(*rx_events_);
      }
    }
    return out;
  }

 private:
  using grant_handle = typename platform_type::grant_handle;
  using event_handle = typename platform_type::event_handle;
  using setup_type = connection_setup<platform_type, uplink_type>;

  static grant::strategy_options strategy_options(const setup_type& setup) {
    grant::strategy_options out = packet_grants(setup.domain);
    out.budget_bytes = setup.wanted.buffer_bytes;
    out.quota_pages = setup.wanted.mapped_pages;
    return out;
  }
  // Both rings, what is mapped of what the guest transmits, and of what it receives, and what it
  // wants kept mapped.
  static std::size_t quota(const setup_type& setup) {
    const std::size_t transmit =
        setup.wanted.mapped_pages != 0
            ? setup.wanted.mapped_pages
            : std::size_t{queue_type::tx_type::most_packets} * max_data_slots;
    std::size_t kept = 0;
    if constexpr (queue_type::keeps_pages) {
      kept = setup.wanted.mapped_pages != 0 ? setup.wanted.mapped_pages : grant::usual_mapped_pages;
    }
    return 2 + transmit + 64 + kept;
  }

  grant_handle grants_;
  xenbus::ring_mapping<grant_handle> tx_ring_;
  xenbus::ring_mapping<grant_handle> rx_ring_;
  event_handle events_;
  xenbus::bound_port<event_handle> port_;
  std::optional<event_handle> rx_events_;
  std::optional<xenbus::bound_port<event_handle>> rx_port_;
  typename uplink_type::port uplink_;
  std::optional<queue_type> queue_;
  std::optional<wait::waiter<queue_type>> waiter_;
  std::optional<wait::runner<queue_type>> runner_;
};

}  // namespace pvring::net
