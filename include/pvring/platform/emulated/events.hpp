// SPDX-License-Identifier: MIT
// The emulated event-channel handle: ports that other domains kick, behind one eventfd. The same
// class serves a guest, which offers ports, and a backend, which binds to them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "../counters.hpp"
#include "fault_plan.hpp"
#include "port_table.hpp"

namespace pvring::platform {

/// Models `event_channel`. One thread uses it. Must not be used in a child after fork.
///
/// No kick is lost, and all accesses are sequentially consistent for it. A port's two flags share
/// one atomic word, so of a kick and an unmask that meet exactly one sees "pending and not masked"
/// and delivers. Delivering marks the port, then the word of 64 ports, and then writes the eventfd;
/// the handle reads the eventfd first and then looks at the marks. A kick of a port that is masked,
/// or has fired already, makes no system call. A port whose peer kicked before anybody had bound,
/// or kicked an end that then closed, fires when it is bound and unmasked.
class emulated_events {
 public:
  emulated_events(std::shared_ptr<const detail::shared_state> state, domain_id self,
                  detail::event_role role, fault_plan* faults)
      : body_(std::make_unique<body>(std::move(state), self, role, faults)) {}
  emulated_events(emulated_events&&) noexcept = default;
  emulated_events& operator=(emulated_events&& other) noexcept {
    if (this != &other) {
      close();
      body_ = std::move(other.body_);
    }
    return *this;
  }
  /// Closes all ports.
  ~emulated_events() { close(); }

  [[nodiscard]] int fd() const noexcept { return body_->bell; }
  [[nodiscard]] const event_counters& counters() const noexcept { return body_->counters; }
  /// Follows `faults` from now on; null for none.
  void set_faults(fault_plan* faults) noexcept { body_->faults = faults; }

  /// A new port that `remote` may bind to, masked from the start; when its peer closes or dies,
  /// `remote` may bind again. Throws std::system_error (ENOSPC).
  [[nodiscard]] port alloc_unbound(domain_id remote) {
    const detail::registry_lock lock(*body_->state);
    body_->counters.hypercalls.add();
    return detail::take_free_port(*body_->state, body_->slot, body_->self, remote);
  }

  /// Throws std::system_error naming both ends: EACCES when the port is not offered to this domain,
  /// EINVAL when there is no such port or a live process is bound to it, ENOSPC.
  [[nodiscard]] port bind(domain_id domain, port remote) {
    body& b = *body_;
    if (b.faults != nullptr) {
      if (const int error = b.faults->next_bind(); error != 0) {
        detail::refuse_bind(error, b.self, domain, remote, "the fault plan has it so");
      }
    }
    const detail::registry_lock lock(*b.state);
    b.counters.hypercalls.add();
    detail::reap(*b.state);
    return detail::bind_port(*b.state, b.slot, b.self, domain, remote);
  }

  void unbind(port p) noexcept {
    if (mine(p)) {
      const detail::registry_lock lock(*body_->state);
      body_->counters.hypercalls.add();
      detail::free_port(*body_->state, p);
      detail::shared(slot().ready[p / 64]).fetch_and(~(std::uint64_t{1} << (p % 64)));
    }
  }

  /// Whether a live peer is bound to the port.
  [[nodiscard]] bool is_bound(port p) const {
    const detail::registry_lock lock(*body_->state);
    return mine(p) && detail::has_live_peer(*body_->state, p);
  }

  void notify(port p) noexcept;
  [[nodiscard]] std::optional<port> pending() noexcept;
  void unmask(port p) noexcept;

 private:
  struct body {
    body(std::shared_ptr<const detail::shared_state> host, domain_id domain, detail::event_role as,
         fault_plan* plan)
        : state(std::move(host)),
          self(domain),
          faults(plan),
          slot(detail::open_events_slot(*state, domain, as)),
          bell(state->event_bell(slot)),
          rings_read(detail::shared(state->events(slot).rings).load()) {}

    std::shared_ptr<const detail::shared_state> state;
    domain_id self;
    fault_plan* faults;
    std::uint32_t slot;
    int bell;
    std::uint64_t rings_read;  // writes of the eventfd that were read
    std::uint32_t next_word = 0;
    std::uint32_t next_bit = 0;
    event_counters counters;
  };

  [[nodiscard]] detail::event_slot& slot() const noexcept {
    return body_->state->events(body_->slot);
  }
  [[nodiscard]] bool mine(port p) const noexcept {
    return p != 0 && p < detail::ports &&
           detail::shared(body_->state->port(p).handle).load(std::memory_order_relaxed) ==
               body_->slot + 1;
  }
  void kick(port peer) noexcept;
  void deliver(port p) noexcept;
  void ring(std::uint32_t handle) noexcept;
  [[nodiscard]] std::optional<port> take_fired() noexcept;
  void read_bell() noexcept;
  void close() noexcept {
    if (body_ && detail::is_mine(slot().owner)) {
      const detail::registry_lock lock(*body_->state);
      detail::release_events(*body_->state, body_->slot);
    }
  }

  std::unique_ptr<body> body_;
};

inline void emulated_events::ring(std::uint32_t handle) noexcept {
  // Counted first: a handle that misses a ring reads once too often, never once too seldom.
  detail::shared(body_->state->events(handle).rings).fetch_add(1);
  const std::uint64_t one = 1;
  (void)!::write(body_->state->event_bell(handle), &one, sizeof one);
  body_->counters.system_calls.add();
}

// Makes the handle that the port belongs to readable.
inline void emulated_events::deliver(port p) noexcept {
  const std::uint32_t owner = detail::shared(body_->state->port(p).handle).load();
  if (owner != 0) {
    detail::event_slot& to = body_->state->events(owner - 1);
    detail::shared(to.ready[p / 64]).fetch_or(std::uint64_t{1} << (p % 64));
    detail::shared(to.selector).fetch_or(std::uint64_t{1} << (p / 64));
    ring(owner - 1);
  }
}

inline void emulated_events::kick(port peer) noexcept {
  // Also orders what was written to a ring before the kick.
  if (detail::shared(body_->state->port(peer).flags).fetch_or(detail::port_pending) == 0) {
    deliver(peer);
  }
}

inline void emulated_events::notify(port p) noexcept {
  if (!mine(p)) {
    return;
  }
  body& b = *body_;
  b.counters.notifies.add();
  b.counters.hypercalls.add();
  const auto total = detail::shared(slot().notifies);
  total.store(total.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  detail::port_slot& local = b.state->port(p);
  std::uint32_t peer = detail::shared(local.peer).load();
  if (peer == 0) {
    detail::shared(local.kicked).store(1);
    // A peer that was bound between the two looks may have missed the mark, so it is kicked after
    // all.
    peer = detail::shared(local.peer).load();
  }
  if (peer != 0) {
    kick(peer);
  }
}

inline void emulated_events::unmask(port p) noexcept {
  if (!mine(p)) {
    return;
  }
  body_->counters.unmasks.add();
  const std::uint32_t old =
      detail::shared(body_->state->port(p).flags).fetch_and(~detail::port_masked);
  if (old == (detail::port_pending | detail::port_masked)) {
    body_->counters.refires.add();
    deliver(p);
  }
}

// In turn: a port that fires all the time is not found again before the others were.
inline std::optional<port> emulated_events::take_fired() noexcept {
  body& b = *body_;
  while (const std::uint64_t words = detail::shared(slot().selector).load()) {
    const auto word = (b.next_word + static_cast<std::uint32_t>(std::countr_zero(
                                         std::rotr(words, static_cast<int>(b.next_word))))) %
                      64;
    b.next_bit = word == b.next_word ? b.next_bit : 0;
    b.next_word = word;
    // The word's mark is cleared before the ports' marks are looked at: one that comes in between
    // sets it again.
    detail::shared(slot().selector).fetch_and(~(std::uint64_t{1} << word));
    const std::uint64_t bits = detail::shared(slot().ready[word]).load();
    if (bits == 0) {
      continue;
    }
    const auto bit = (b.next_bit + static_cast<std::uint32_t>(std::countr_zero(
                                       std::rotr(bits, static_cast<int>(b.next_bit))))) %
                     64;
    const std::uint64_t mask = std::uint64_t{1} << bit;
    const std::uint64_t left = detail::shared(slot().ready[word]).fetch_and(~mask) & ~mask;
    if (left != 0) {
      detail::shared(slot().selector).fetch_or(std::uint64_t{1} << word);
    }
    const bool last_of_word = bit == 63 || (left >> (bit + 1)) == 0;
    b.next_word = last_of_word ? (word + 1) % 64 : word;
    b.next_bit = last_of_word ? 0 : bit + 1;
    // A mark may be left from an earlier use of port or handle: then the flags do not say "pending
    // and not masked".
    const port p = word * 64 + bit;
    std::uint32_t fired = detail::port_pending;
    if (mine(p) && detail::shared(b.state->port(p).flags)
                       .compare_exchange_strong(fired, detail::port_masked)) {
      return p;
    }
  }
  return std::nullopt;
}

inline void emulated_events::read_bell() noexcept {
  body& b = *body_;
  std::uint64_t rings = 0;
  const ssize_t got = ::read(b.bell, &rings, sizeof rings);
  b.counters.system_calls.add();
  b.rings_read =
      std::min(b.rings_read + (got > 0 ? rings : 0), detail::shared(slot().rings).load());
}

inline std::optional<port> emulated_events::pending() noexcept {
  body& b = *body_;
  std::optional<port> fired = take_fired();
  if (!fired) {
    b.counters.empty_looks.add();
  }
  if (detail::shared(slot().selector).load() == 0) {
    // Nothing else has fired, so the eventfd is to be read empty, if it was written. Every so often
    // also without knowing that: whoever kicks a port that is being closed may write to the handle
    // that comes after.
    constexpr std::uint64_t now_and_then = 64;
    const bool rung = detail::shared(slot().rings).load() != b.rings_read;
    if (rung || (!fired && b.counters.empty_looks.get() % now_and_then == 0)) {
      read_bell();
      fired = fired ? fired : take_fired();
      if (detail::shared(slot().selector).load() != 0) {
        ring(b.slot);  // something fired while the eventfd was being read
      }
    }
  }
  b.counters.kicks_received.add(fired ? 1 : 0);
  return fired;
}

static_assert(event_channel<emulated_events>);

}  // namespace pvring::platform
