// SPDX-License-Identifier: MIT
// A complete network backend: one device of one frontend, from the first node in the store to the
// last unmapped page. The composition decides how; the frontend's nodes decide which of its
// instances run. Sibling of blk/backend.hpp.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/config.hpp"
#include "../base/log.hpp"
#include "../grant/batched_copy.hpp"
#include "../grant/choice.hpp"
#include "../grant/map_each.hpp"
#include "../observe/none.hpp"
#include "../platform/emulated.hpp"
#include "../platform/platform.hpp"
#include "../xenbus/backend_port.hpp"
#include "connection.hpp"
#include "control_connection.hpp"
#include "device.hpp"
#include "negotiation.hpp"
#include "tap_uplink.hpp"

namespace pvring::net {

/// The composition that a network backend has unless its config says otherwise.
struct default_config {
  /// Where grants, event channels and the store come from.
  using platform = pvring::platform::emulated;
  /// How the backend gets at the peer's pages: the first that the platform allows.
  using grants = pvring::grant::first_usable<pvring::grant::batched_copy, pvring::grant::map_each>;
  /// What is recorded of each packet that the guest transmits.
  using observe = pvring::observe::none;
  /// Where the guest's packets go and come from.
  using uplink = tap_uplink;
};

/// A struct that names one policy of each kind. It cannot see a misspelt member: that only adds a
/// name.
template <class Config>
concept backend_config =
    pvring::detail::policy_of_kind<typename Config::platform, policy_kind::platform> &&
    pvring::detail::policy_of_kind<typename Config::grants, policy_kind::grants> &&
    pvring::detail::policy_of_kind<typename Config::observe, policy_kind::observer> &&
    uplink<typename Config::uplink>;

/// One network device.
///
/// The thread that made it, or any one thread, calls process() whenever fd() is readable, or run().
/// Queues have threads of their own, unless options::threads says that the caller serves them. What
/// breaks this device is logged, written to the store's error node, and closes this device only.
///
/// A backend that was killed has a successor: every packet that was answered was sent, and the
/// rings say which were. Only where the strategy maps pages does the frontend have to connect anew.
template <backend_config Config = default_config>
  requires platform::host<typename Config::platform> && observe::observer<typename Config::observe>
class backend {
 public:
  using platform_type = typename Config::platform;
  using uplink_type = typename Config::uplink;
  using recorder_type = typename Config::observe::recorder;
  using queue_handle = connected_queue<recorder_type>;
  using control_type = connected_control<platform_type, recorder_type>;

  /// Looks at the store, and goes to InitWait. The toolstack has written the device before (see
  /// xenbus::create_device): one that is not there is over at once, with a warning. \param host,
  /// to outlive it
  /// \throws configuration_error for options that cannot be, and (node_error) for links of the
  /// toolstack that cannot be followed; std::system_error where the platform is not to be had
  backend(platform_type& host, const identity& device, uplink_type& to, options wanted = {})
      : host_(host),
        identity_(device),
        uplink_(to),
        wanted_(std::move(wanted)),
        store_(host.open_store()),
        device_(*this),
        port_(store_, device_,
              xenbus::resolve_from_backend(store_, {.backend_domain = device.backend_domain,
                                                    .frontend_domain = device.domain,
                                                    .type = device.type,
                                                    .device = device.device})) {
    validate(wanted_);
    if (!wanted_.strategy.empty() && !grant::offers<typename Config::grants>(wanted_.strategy)) {
      throw configuration_error("grant strategy '" + wanted_.strategy +
                                "' is not in this composition: it has " +
                                grant::names<typename Config::grants>());
    }
    known_.has_copy = host_.open_grants(1).has_copy();
    known_.mapping_safe = true;  // an uplink is done with a packet's bytes when it has taken them
    uplink_.set_carrier(false);
    port_.watch("rate");
    port_.watch("hotplug-status");
    port_.process();
    if (port_.finished()) {
      log::write(log::level::warning, port_.path().name() + " is not in the store: node " +
                                          xenbus::join(port_.path().backend(), "state") +
                                          " is missing; create the device first");
    }
  }
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  /// Ends without ceremony: everything is unmapped, but the frontend is told nothing.
  ~backend() {
    if (control_) {
      control_->join();  // no queue that is about to end gets an order
    }
  }

  /// Readable when process() has something to do.
  [[nodiscard]] int fd() const noexcept { return port_.fd(); }

  /// Handles what the store and the queues have to say; never waits for either. False once the
  /// device is over.
  bool process() {
    // The port clears the wake-up that stop() sends, so stop_ is looked at after that, never
    // before: a stop between the look and the clearing would be forgotten.
    bool more = port_.process();
    if (stop_.exchange(false, std::memory_order_acq_rel)) {
      port_.stop();
      more = port_.process();
    }
    show_carrier();
    return more;
  }

  /// process() until the device is over: unplugged, its frontend gone, or stop() called and
  /// everything closed.
  void run() {
    while (process()) {
      pollfd ready{.fd = fd(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, -1) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "waiting for the store");
      }
    }
  }

  /// Any thread: closes the device, after what is in flight.
  void stop() noexcept {
    stop_.store(true, std::memory_order_release);
    port_.wake();
  }

  [[nodiscard]] protocol::xenbus_state state() const noexcept { return port_.state(); }
  [[nodiscard]] bool connected() const noexcept { return port_.connected(); }
  [[nodiscard]] bool finished() const noexcept { return port_.finished(); }
  /// The log line about the grant strategy of the current or last connection.
  [[nodiscard]] const std::string& choice() const noexcept { return choice_; }
  /// What the frontend of the current or last connection takes.
  [[nodiscard]] const rx_agreement& agreed() const noexcept { return agreed_; }

  /// The connected queues, for a caller's own event loop: while connected, on the thread of
  /// process().
  [[nodiscard]] const std::vector<std::unique_ptr<queue_handle>>& queues() const noexcept {
    return queues_;
  }
  /// How often queues were connected. One process() may disconnect and connect anew; a caller that
  /// watches the queues' descriptors finds by this that they are others.
  [[nodiscard]] std::uint64_t connections() const noexcept { return connections_; }

  /// Any thread; empty while not connected.
  [[nodiscard]] std::vector<queue_statistics> statistics() const {
    const std::lock_guard lock(queues_mutex_);
    std::vector<queue_statistics> out;
    out.reserve(queues_.size());
    for (const auto& queue : queues_) {
      out.push_back(queue->statistics());
    }
    return out;
  }

 private:
  using transaction = typename platform_type::store_handle::transaction;

  // The hooks of the handshake; see xenbus::device_handler.
  class handler {
   public:
    explicit handler(backend& device) noexcept : device_(device) {}
    void advertise(transaction& t) {
      write_offer(t, device_.port_.path().backend(), device_.wanted_, device_.uplink_.queues());
      write_control_offer(t, device_.port_.path().backend(), device_.keeps_pages());
    }
    bool ready() { return uplink_is_ready(device_.store_, device_.port_.path().backend()); }
    void connect() { device_.connect(false); }
    bool take_over() {
      device_.connect(true);
      return true;
    }
    void publish(transaction& /*t*/) {}
    void reread() { device_.read_credit(); }
    void begin_disconnect() noexcept {
      device_.linked_ = false;
      for (const auto& queue : device_.queues_) {
        queue->stop();
      }
      if (device_.control_) {
        device_.control_->stop();
      }
    }
    [[nodiscard]] bool drained() const noexcept {
      return (!device_.control_ || device_.control_->idle()) &&
             std::all_of(device_.queues_.begin(), device_.queues_.end(),
                         [](const auto& queue) { return queue->idle(); });
    }
    void finish_disconnect() noexcept { device_.end_queues(); }

   private:
    backend& device_;
  };

  void connect(bool take_over) {
    // Everything anew: another frontend may be there, with other features and another queue count.
    const agreement with = read_agreement(store_, port_.path().frontend(), identity_.domain,
                                          wanted_, uplink_.queues());
    read_credit();
    with_control_ = keeps_pages()
                        ? find_control_ring(store_, port_.path().frontend(), identity_.domain)
                        : std::nullopt;
    shared_.multicast.clear();
    uplink_.set_offloads(with.receives.offloads);
    const bool chosen =
        grant::choose<typename Config::grants>(known_, wanted_.strategy, [&]<class Strategy>() {
          choice_ = "grant strategy " + std::string(Strategy::name) + ": the platform " +
                    (known_.has_copy ? "copies" : "does not copy");
          if constexpr (grant::answer_frees_grants<Strategy>) {
            if (take_over) {
              throw configuration_error("the grant strategy is " + std::string(Strategy::name) +
                                        ", and what the earlier backend had mapped may be mapped "
                                        "still; use another strategy to be succeeded");
            }
          }
          connect_queues<Strategy>(with);
        });
    if (!chosen) {
      throw configuration_error(
          "no grant strategy can run (the platform does not copy); allow "
          "another one of " +
          grant::names<typename Config::grants>());
    }
    agreed_ = with.receives;
    linked_ = true;
    connected_log_.write(log::level::info,
                         port_.path().name() + ": " + (take_over ? "taken over; " : "") + choice_ +
                             "; " + std::to_string(with.queues.size()) + " queues with " +
                             (with.queues.front().split() ? "two channels" : "one channel") +
                             " each, delivery " + std::string(to_string(wanted_.delivery.when)));
  }

  template <class Strategy>
  void connect_queues(const agreement& with) {
    static_assert(grant::strategy<Strategy, typename platform_type::grant_handle>);
    std::vector<std::unique_ptr<queue_handle>> queues;
    std::unique_ptr<control_type> control;
    // Where one cannot be connected, leaving this function disconnects those before it.
    for (std::uint32_t i = 0; i < with.queues.size(); ++i) {
      queues.push_back(std::make_unique<connected_queue_of<Config, Strategy>>(
          connection_setup<platform_type, uplink_type>{.host = host_,
                                                       .uplink = uplink_,
                                                       .number = i,
                                                       .wanted = wanted_,
                                                       .device = shared_,
                                                       .with = with,
                                                       .nodes = with.queues[i],
                                                       .domain = identity_.domain,
                                                       .attention = &attention,
                                                       .who = this}));
    }
    if (with_control_) {
      std::vector<queue_handle*> all;
      all.reserve(queues.size());
      for (const auto& queue : queues) {
        all.push_back(queue.get());
      }
      control =
          std::make_unique<control_type>(control_connection_setup<platform_type, recorder_type>{
              .host = host_,
              .nodes = *with_control_,
              .directory = port_.path().frontend(),
              .steering = shared_.steering,
              .queues = std::move(all),
              .domain = identity_.domain,
              .attention = &attention,
              .who = this});
    }
    if (wanted_.threads == threads::own) {
      for (std::size_t i = 0; i < queues.size(); ++i) {
        wait::runner_options how;
        how.name = "pvring-net-" + std::to_string(i);
        how.wait = wanted_.wait;
        how.waiter.budget = wanted_.pass_budget;
        if (!wanted_.cpus.empty()) {
          how.cpu = static_cast<unsigned>(wanted_.cpus[i % wanted_.cpus.size()]);
        }
        queues[i]->start(how);
      }
    }
    if (control) {
      control->start();  // the last that can fail: from here on queues get orders
    }
    const std::lock_guard lock(queues_mutex_);
    control_ = std::move(control);
    queues_ = std::move(queues);
    ++connections_;
  }

  // Whether the guest can have pages kept mapped, by the strategy that will be chosen.
  [[nodiscard]] bool keeps_pages() const {
    bool keeps = false;
    (void)grant::choose<typename Config::grants>(known_, wanted_.strategy, [&]<class Strategy>() {
      keeps =
          requires(typename Strategy::template bind<typename platform_type::grant_handle>& bound) {
            bound.table();
          };
    });
    return keeps;
  }

  void read_credit() {
    const credit_rate rate = read_rate(store_, port_.path().backend(), identity_.backend_domain);
    if (rate != rate_) {
      rate_ = rate;
      shared_.credit.set(rate);
    }
  }

  // The uplink's side sees a guest that takes packets, or none.
  void show_carrier() noexcept {
    const bool up = linked_ && shared_.stalled_queues.load(std::memory_order_relaxed) == 0;
    if (up != carrier_) {
      carrier_ = up;
      uplink_.set_carrier(up);
    }
  }

  void end_queues() noexcept {
    if (control_) {
      control_->join();
    }
    const std::lock_guard lock(queues_mutex_);
    for (const auto& queue : queues_) {
      queue->join();
    }
    queues_.clear();
    control_.reset();  // behind the queues: an order comes back to it
  }

  static void attention(void* who, protocol_error why) noexcept {
    auto& device = *static_cast<backend*>(who);
    if (why != protocol_error::none) {
      device.port_.report(why);
    } else {
      device.port_.wake();
    }
  }

  platform_type& host_;
  identity identity_;
  uplink_type& uplink_;
  options wanted_;
  shared_state shared_;
  credit_rate rate_;
  rx_agreement agreed_;
  grant::circumstances known_;
  bool linked_ = false;
  bool carrier_ = false;
  std::string choice_;
  log::rate_limit connected_log_;  ///< a frontend may connect as often as it likes
  std::atomic<bool> stop_{false};
  typename platform_type::store_handle store_;
  handler device_;
  xenbus::backend_port<typename platform_type::store_handle, handler> port_;
  std::uint64_t connections_ = 0;
  std::optional<control_nodes> with_control_;  ///< of the current or last connection
  std::unique_ptr<control_type> control_;
  mutable std::mutex queues_mutex_;
  std::vector<std::unique_ptr<queue_handle>>
      queues_;  // last: queues call port_ until they are gone
};

}  // namespace pvring::net
