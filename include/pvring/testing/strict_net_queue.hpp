// SPDX-License-Identifier: MIT
// One queue of an emulated network frontend: sends packets and posts pages for packets as Linux's
// netfront does, and refuses from its backend what netfront refuses.
#pragma once

#include <poll.h>

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../net/packet.hpp"
#include "../platform/emulated/guest.hpp"
#include "../protocol/netif_abi.hpp"
#include "../ring/front_ring.hpp"
#include "guest_pages.hpp"
#include "packet_assembly.hpp"
#include "page_guard.hpp"
#include "sent_packets.hpp"
#include "strict_net_setup.hpp"
#include "violation_log.hpp"

namespace pvring::testing {

/// One thread uses it.
///
/// Strict means that these are violations, recorded with a text, after which the device is
/// disabled: more responses than requests; a response while its grant is mapped; a transmit
/// response out of ring order (see strict_net_setup), with an id that is not in flight, with a
/// status that there is not, or that takes a request for an extra info or the other way round; a
/// received packet that is shown in part, has too many slots or too few bytes, or says that a slot
/// reaches past its page; a response to a posted page in another slot than its request's; flags,
/// extra infos or super-frames that there are not; a page written outside the packet's bytes; pages
/// that are still mapped when the backend has closed. A slot that says it failed is none: its
/// packet is thrown away.
class strict_net_queue {
 public:
  using tx_wire = protocol::netif::tx_wire;
  using rx_wire = protocol::netif::rx_wire;

  /// The guest and the log outlive it.
  strict_net_queue(platform::emulated_guest& guest, domain_id backend, std::uint32_t number,
                   violation_log& log)
      : guest_(guest),
        backend_(backend),
        number_(number),
        log_(log),
        events_(guest.open_events()),
        sent_(guest, backend),
        rx_pages_(guest, backend) {}
  strict_net_queue(const strict_net_queue&) = delete;
  strict_net_queue& operator=(const strict_net_queue&) = delete;
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  ~strict_net_queue() { release(); }

  // --- the life of a connection ------------------------------------------------------------------

  /// Makes rings and channels. When it throws it has undone what it did. \throws std::system_error
  void prepare(const strict_net_setup& setup = {}) {
    assert(!open_);
    setup_ = setup;
    open_ = true;
    try {
      tx_memory_ = guest_.allocate_pages();
      rx_memory_ = guest_.allocate_pages();
      tx_reference_ = guest_.grant(backend_, tx_memory_, platform::access::read_write);
      rx_reference_ = guest_.grant(backend_, rx_memory_, platform::access::read_write);
      tx_.emplace(std::span(tx_memory_, platform::page_size), setup.tx_start);
      rx_.emplace(std::span(rx_memory_, platform::page_size), setup.rx_start);
      tx_port_ = events_.alloc_unbound(backend_);
      rx_port_ = setup.split_channels ? events_.alloc_unbound(backend_) : tx_port_;
    } catch (...) {
      release();
      throw;
    }
    sent_.open(setup.tx_start, setup.answers_in_order);
    packet_ = packet_assembly(setup.guard_pages);
    rx_answered_ = rx_put_ = setup.rx_start;
    events_.unmask(tx_port_);
    if (rx_port_ != tx_port_) {
      events_.unmask(rx_port_);
    }
  }

  [[nodiscard]] platform::grant_reference tx_reference() const noexcept { return tx_reference_; }
  [[nodiscard]] platform::grant_reference rx_reference() const noexcept { return rx_reference_; }
  [[nodiscard]] platform::port tx_port() const noexcept { return tx_port_; }
  [[nodiscard]] platform::port rx_port() const noexcept { return rx_port_; }

  /// The backend has let go of everything, or is gone: frees all. What is still mapped is a
  /// violation, and stays allocated.
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  void release() noexcept {
    if (!std::exchange(open_, false)) {
      return;
    }
    for (posted_page& s : posted_) {
      if (std::exchange(s.busy, false)) {
        (void)rx_pages_.end(s.page);
        rx_pages_.give_back(s.page);
      }
    }
    (void)rx_pages_.clear();
    std::size_t mapped =
        sent_.close() + rx_pages_.lost() - std::exchange(told_lost_, rx_pages_.lost());
    tx_.reset();
    rx_.reset();
    mapped += free_ring(tx_reference_, tx_memory_) + free_ring(rx_reference_, rx_memory_);
    if (rx_port_ != 0 && rx_port_ != tx_port_) {
      events_.unbind(rx_port_);
    }
    if (tx_port_ != 0) {
      events_.unbind(tx_port_);
    }
    tx_port_ = rx_port_ = 0;
    if (mapped != 0) {
      violation(std::to_string(mapped) + " pages are still mapped after the backend has closed");
    }
  }

  // --- transmit ----------------------------------------------------------------------------------

  /// Slots that can be put now.
  [[nodiscard]] std::size_t tx_space() { return usable() ? tx_->space() : 0; }

  /// Puts a packet into the ring; the backend sees it after `publish`. False where there is no room
  /// now: then nothing has happened.
  /// \param cut bytes of each slot, together those of the packet; empty: pages are filled
  bool send(std::span<const std::byte> bytes, const net::packet_info& info = {},
            std::span<const std::uint16_t> cut = {}) {
    return usable() && count(sent_.put(*tx_, bytes, info, cut));
  }

  /// Asks to join or leave a multicast group.
  bool join(const std::array<std::uint8_t, 6>& group, bool add = true) {
    return usable() && count(sent_.put_group(*tx_, group, add));
  }

  // --- receive -----------------------------------------------------------------------------------

  /// Posts pages until `fill` are with the backend, or the ring is full. Returns how many it
  /// posted.
  std::size_t post(std::size_t fill = 256) {
    std::size_t count = 0;
    while (usable() && rx_->space() != 0 && rx_->outstanding() < fill) {
      auto page = rx_pages_.take(platform::access::read_write);
      if (!page) {
        break;
      }
      if (setup_.guard_pages) {
        set_guard(page->address);
      }
      posted_page& s = posted_[rx_put_ % ring_slots];
      s = {*page, static_cast<std::uint16_t>(rx_put_ % ring_slots), true};
      rx_->put({s.page.reference, s.id});
      ++rx_put_;
      ++count;
    }
    counters_.posted.add(count);
    return count;
  }

  // --- both --------------------------------------------------------------------------------------

  /// Shows the backend what was put, and notifies it where it wants that. Returns how often.
  std::size_t publish() {
    if (!open_) {
      return 0;
    }
    const bool for_tx = tx_->publish();
    const bool for_rx = rx_->publish();
    std::size_t kicks = 0;
    if (for_tx || (for_rx && rx_port_ == tx_port_)) {
      events_.notify(tx_port_);
      ++kicks;
    }
    if (for_rx && rx_port_ != tx_port_) {
      events_.notify(rx_port_);
      ++kicks;
    }
    counters_.kicks_sent.add(kicks);
    return kicks;
  }

  /// Takes all responses; calls `f(const received_packet&)` for each packet that came, in order.
  /// Returns how many responses it took.
  template <class F>
  std::size_t poll(F&& f) {
    if (!usable()) {
      return 0;
    }
    std::size_t count = tx_->take(ring_slots, [this](const tx_wire::response& r) { answered(r); });
    count += rx_->take(ring_slots, [&](const rx_wire::response& r) { received(r, f); });
    // netfront looks at the producer once, and takes what ends there for the whole packet.
    if (packet_.begun() && usable()) {
      violation("a packet is shown in part, " + std::to_string(packet_.slots()) + " of its slots");
    }
    for (const protocol_error broken : {tx_->broken(), rx_->broken()}) {
      if (broken != protocol_error::none && usable()) {
        violation(std::string(to_string(broken)));
      }
    }
    return count;
  }
  std::size_t poll() {
    return poll([](const received_packet&) {});
  }

  /// Asks for events; true: there is something to poll for now.
  [[nodiscard]] bool arm() {
    if (!usable()) {
      return true;
    }
    const bool for_tx = tx_->arm();
    return rx_->arm() || for_tx;
  }
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }
  /// Takes the events that came, as the guest's interrupt handler does.
  void acknowledge() {
    while (const std::optional<platform::port> fired = events_.pending()) {
      if (open_ && (*fired == tx_port_ || *fired == rx_port_)) {
        events_.unmask(*fired);
        counters_.interrupts.add();
        if (!tx_->has_responses() && !rx_->has_responses()) {
          counters_.spurious_interrupts.add();
        }
      }
    }
  }
  /// Arms and sleeps until an event comes or the time is over.
  bool wait(std::chrono::milliseconds timeout) {
    if (arm()) {
      return true;
    }
    pollfd waiting{.fd = events_.fd(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
    acknowledge();
    return ready > 0;
  }

  /// Slots with the backend.
  [[nodiscard]] std::size_t tx_outstanding() const noexcept { return tx_ ? tx_->outstanding() : 0; }
  [[nodiscard]] std::size_t rx_outstanding() const noexcept { return rx_ ? rx_->outstanding() : 0; }
  /// What the last packet was answered with.
  [[nodiscard]] std::int16_t last_status() const noexcept { return sent_.last_status(); }
  [[nodiscard]] const strict_net_counters& counters() const noexcept { return counters_; }

  // --- for hostile tests: nothing here is checked ------------------------------------------------

  [[nodiscard]] std::span<std::byte> tx_page() const noexcept {
    return {tx_memory_, platform::page_size};
  }
  [[nodiscard]] std::span<std::byte> rx_page() const noexcept {
    return {rx_memory_, platform::page_size};
  }
  void kick() noexcept { events_.notify(tx_port_); }

 private:
  static constexpr std::size_t ring_slots = sent_packets::ring_slots;

  struct posted_page {
    granted_page page;
    std::uint16_t id = 0;
    bool busy = false;
  };

  [[nodiscard]] bool usable() const noexcept { return open_ && !log_.disabled(); }
  void violation(const std::string& what) {
    log_.record("queue " + std::to_string(number_) + ": " + what);
  }

  // Of a packet that was sent with so many slots, or was not.
  bool count(std::size_t slots) {
    if (slots == 0) {
      return false;
    }
    counters_.sent.add();
    counters_.sent_slots.add(slots);
    return true;
  }

  // Returns 1 where the backend has it mapped still: then it stays allocated.
  std::size_t free_ring(platform::grant_reference& reference, std::byte*& memory) {
    const platform::grant_reference granted = std::exchange(reference, 0);
    std::byte* const page = std::exchange(memory, nullptr);
    if (granted != 0 && !guest_.end_grant(granted)) {
      return 1;
    }
    if (page != nullptr) {
      guest_.free_pages(page);
    }
    return 0;
  }

  void answered(const tx_wire::response& r) {
    if (log_.disabled()) {
      return;
    }
    const bool packet_ended = sent_.take(r);
    if (!sent_.refused().empty()) {
      violation(sent_.refused());
    } else if (packet_ended && r.status != 0) {
      counters_.refused.add();
    }
  }

  template <class F>
  void received(const rx_wire::response& r, F& f) {
    if (log_.disabled()) {
      return;
    }
    posted_page& s = posted_[rx_answered_++ % ring_slots];
    s.busy = false;
    if (!rx_pages_.end(s.page)) {
      violation("response while the grant is mapped, receive slot " + std::to_string(s.id));
      rx_pages_.give_back(s.page);
      return;
    }
    const bool complete = packet_.add(r, s.id, s.page.address);
    rx_pages_.give_back(s.page);
    if (!packet_.refused().empty()) {
      violation(packet_.refused());
    }
    if (!complete) {
      return;
    }
    counters_.received_slots.add(packet_.slots());
    if (packet_.failed()) {
      counters_.broken.add();
      return;
    }
    counters_.received.add();
    f(received_packet{packet_.bytes(), packet_.info(), packet_.slots()});
  }

  platform::emulated_guest& guest_;
  domain_id backend_;
  std::uint32_t number_;
  violation_log& log_;
  platform::emulated_events events_;
  sent_packets sent_;
  guest_pages rx_pages_;
  std::byte* tx_memory_ = nullptr;
  std::byte* rx_memory_ = nullptr;
  platform::grant_reference tx_reference_ = 0;
  platform::grant_reference rx_reference_ = 0;
  platform::port tx_port_ = 0;
  platform::port rx_port_ = 0;
  bool open_ = false;
  strict_net_setup setup_;
  std::optional<ring::front_ring<tx_wire>> tx_;
  std::optional<ring::front_ring<rx_wire>> rx_;
  std::array<posted_page, ring_slots> posted_{};
  std::uint32_t rx_put_ = 0;
  std::uint32_t rx_answered_ = 0;
  std::size_t told_lost_ = 0;

  packet_assembly packet_;
  strict_net_counters counters_;
};

}  // namespace pvring::testing
