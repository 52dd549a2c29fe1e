// SPDX-License-Identifier: MIT
// A connected control ring with everything it owns: page, channel, and a thread of its own, so that
// neither a queue nor the handshake waits for what a guest asks there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../wait/runner.hpp"
#include "../xenbus/ring_link.hpp"
#include "connection.hpp"
#include "control_ring.hpp"
#include "negotiation.hpp"

namespace pvring::net {

/// What it takes to connect a control ring.
template <class Platform, class Recorder>
struct control_connection_setup {
  Platform& host;
  const control_nodes& nodes;
  const std::string& directory;  ///< of the nodes, for messages
  shared_steering& steering;
  std::vector<connected_queue<Recorder>*> queues;  ///< of which orders are performed
  domain_id domain = 0;
  void (*attention)(void* who, protocol_error why) noexcept = nullptr;
  void* who = nullptr;
};

/// The thread of process() uses it. It outlives the queues' threads, and its own has ended before
/// they do: see `join`.
template <class Platform, class Recorder>
class connected_control {
 public:
  using ring_type = control_ring<typename Platform::grant_handle, typename Platform::event_handle>;
  using setup_type = control_connection_setup<Platform, Recorder>;

  /// \throws std::system_error naming domain and reference when the ring cannot be mapped or the
  /// channel not bound
  explicit connected_control(setup_type setup)
      : queues_(std::move(setup.queues)),
        attention_(setup.attention),
        who_(setup.who),
        grants_(setup.host.open_grants(2)),  // the ring, and the page of a request
        page_(grants_, setup.domain, {&setup.nodes.reference, 1}, setup.directory),
        events_(setup.host.open_events()),
        port_(events_, setup.domain, setup.nodes.channel),
        ring_({.domain = setup.domain,
               .ring = page_.bytes(),
               .port = port_.number,
               .start = published_start<typename ring_type::ring_type>(
                   page_.bytes(), "control", setup.domain, setup.directory),
               .queues = static_cast<std::uint32_t>(queues_.size()),
               // Nobody steers by hashes yet.
               .hashing = false,
               .mapped_pages = queues_.front()->mapped_pages(),
               .order =
                   [](void* self, std::uint32_t queue, grant::mapping_order& order) noexcept {
                     return static_cast<connected_control*>(self)->queues_[queue]->order(order);
                   },
               .attention =
                   [](void* self, protocol_error why) noexcept {
                     auto& control = *static_cast<connected_control*>(self);
                     control.attention_(control.who_, why);
                   },
               .who = this},
              setup.steering, grants_, events_) {
    // As with a queue's channel: what came before it was bound came without an event.
    events_.notify(port_.number);
  }
  connected_control(const connected_control&) = delete;
  connected_control& operator=(const connected_control&) = delete;
  ~connected_control() = default;

  /// \throws std::system_error
  void start() {
    wait::runner_options how;
    how.name = "pvring-net-ctl";
    runner_.emplace(ring_, how);
  }

  /// Takes no more requests; idle() tells when the order that is under way has come back, for which
  /// the queues have to be served.
  void stop() noexcept {
    ring_.stop();
    runner_->kick();
  }
  [[nodiscard]] bool idle() const noexcept { return ring_.idle(); }
  /// Ends its thread: no queue gets an order any more.
  void join() noexcept { runner_.reset(); }

  [[nodiscard]] const control_counters& counters() const noexcept { return ring_.counters(); }

 private:
  std::vector<connected_queue<Recorder>*> queues_;
  void (*attention_)(void* who, protocol_error why) noexcept;
  void* who_;
  typename Platform::grant_handle grants_;
  xenbus::ring_mapping<typename Platform::grant_handle> page_;
  typename Platform::event_handle events_;
  xenbus::bound_port<typename Platform::event_handle> port_;
  ring_type ring_;
  std::optional<wait::runner<ring_type>> runner_;
};

}  // namespace pvring::net
