// SPDX-License-Identifier: MIT
// A frontend that does exactly what it is told, right or wrong: writes any node, any index, any
// byte of its ring. And a hostile one that tells itself, from a seed.
#pragma once

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../platform/emulated/guest.hpp"
#include "../platform/emulated/host.hpp"
#include "../protocol/blkif_abi.hpp"
#include "../protocol/ring_page.hpp"
#include "../protocol/xenbus.hpp"
#include "../ring/shared_access.hpp"
#include "../xenbus/device_path.hpp"
#include "../xenbus/node.hpp"

namespace pvring::testing {

/// One queue, the 64-bit ABI, one to 16 ring pages. One thread uses it.
class scripted_frontend {
 public:
  using state = protocol::xenbus_state;

  /// The guest's pages and channel; nothing is written to the store yet.
  scripted_frontend(const platform::emulated_host& host, const xenbus::device_identity& device,
                    std::uint32_t order = 0)
      : guest_(host.domain(device.frontend_domain)),
        store_(guest_.open_store()),
        events_(guest_.open_events()),
        path_(device),
        order_(order),
        ring_(guest_.allocate_pages(pages()), pages() * platform::page_size) {
    for (std::size_t page = 0; page < pages(); ++page) {
      references_.push_back(guest_.grant(device.backend_domain, &ring_[page * platform::page_size],
                                         platform::access::read_write));
    }
    port_ = events_.alloc_unbound(device.backend_domain);
    events_.unmask(port_);
    reset_ring();
  }

  // ---- nodes
  void write(std::string_view name, std::string_view value) {
    store_.write(xenbus::join(path_.frontend(), name), value);
  }
  void remove(std::string_view name) { store_.remove(xenbus::join(path_.frontend(), name)); }
  void go(state to) { write("state", std::string(1, protocol::to_digit(to))); }
  /// The nodes that a well-behaved frontend writes.
  void write_good_nodes() {
    write("protocol", "x86_64-abi");
    write("event-channel", std::to_string(port_));
    if (order_ == 0) {
      write("ring-ref", std::to_string(references_[0]));
    } else {
      write("ring-page-order", std::to_string(order_));
      for (std::size_t page = 0; page < pages(); ++page) {
        write("ring-ref" + std::to_string(page), std::to_string(references_[page]));
      }
    }
  }
  [[nodiscard]] state backend_state() {
    const auto value = store_.read(xenbus::join(path_.backend(), "state"));
    return value ? protocol::parse_xenbus_state(*value).value_or(state::unknown) : state::unknown;
  }
  /// Whether the backend came to `wanted` in time.
  bool wait_for_backend(state wanted,
                        std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    const std::string token = "scripted";
    store_.watch(xenbus::join(path_.backend(), "state"), token);
    const auto end = std::chrono::steady_clock::now() + timeout;
    bool there = backend_state() == wanted;
    while (!there && std::chrono::steady_clock::now() < end) {
      pollfd ready{.fd = store_.fd(), .events = POLLIN, .revents = 0};
      (void)::poll(&ready, 1, 100);
      while (store_.next_event()) {
      }
      there = backend_state() == wanted;
    }
    store_.unwatch(xenbus::join(path_.backend(), "state"), token);
    return there;
  }

  // ---- ring
  [[nodiscard]] std::span<std::byte> ring() const noexcept { return ring_; }
  void reset_ring() {
    std::memset(ring_.data(), 0, ring_.size());
    store_index(offsetof(indices, req_event), 1);
    store_index(offsetof(indices, rsp_event), 1);
    produced_ = 0;
  }
  void set_request_producer(std::uint32_t to) { store_index(offsetof(indices, req_prod), to); }
  [[nodiscard]] std::uint32_t request_producer() const {
    return load_index(offsetof(indices, req_prod));
  }
  [[nodiscard]] std::uint32_t response_producer() const {
    return load_index(offsetof(indices, rsp_prod));
  }
  /// Puts a request as it is into the next slot and publishes it; kicks whether that is wanted or
  /// not.
  void put(const protocol::blkif::request& request) {
    using wire = protocol::blkif::wire<protocol::blkif::abi::x86_64>;
    const std::size_t slots = protocol::ring_slots(ring_.size(), wire::slot_bytes);
    wire::store_request(
        ring::slot_sink(
            &ring_[protocol::ring_header_bytes + (produced_ & (slots - 1)) * wire::slot_bytes]),
        request);
    set_request_producer(++produced_);
    kick();
  }
  void kick() { events_.notify(port_); }
  /// Whether the backend published up to `responses` responses in time.
  bool wait_for_responses(std::uint32_t responses,
                          std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (response_producer() != responses) {
      store_index(offsetof(indices, rsp_event), response_producer() + 1);
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      pollfd ready{.fd = events_.fd(), .events = POLLIN, .revents = 0};
      (void)::poll(&ready, 1, 5);
      if (const auto fired = events_.pending()) {
        events_.unmask(*fired);
      }
    }
    return true;
  }

  [[nodiscard]] platform::emulated_guest& guest() noexcept { return guest_; }
  [[nodiscard]] platform::emulated_store& store() noexcept { return store_; }
  [[nodiscard]] const xenbus::device_path& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const platform::grant_reference> ring_references() const noexcept {
    return references_;
  }
  [[nodiscard]] platform::port port() const noexcept { return port_; }

 private:
  using indices = protocol::ring_indices<>;

  [[nodiscard]] std::size_t pages() const noexcept { return std::size_t{1} << order_; }
  void store_index(std::size_t offset, std::uint32_t value) const {
    ring::shared_index<std::uint32_t>(&ring_[offset]).store(value, std::memory_order_seq_cst);
  }
  [[nodiscard]] std::uint32_t load_index(std::size_t offset) const {
    return ring::shared_index<std::uint32_t>(&ring_[offset]).load(std::memory_order_seq_cst);
  }

  platform::emulated_guest guest_;
  platform::emulated_store store_;
  platform::emulated_events events_;
  xenbus::device_path path_;
  std::uint32_t order_;
  std::span<std::byte> ring_;
  std::vector<platform::grant_reference> references_;
  platform::port port_ = 0;
  std::uint32_t produced_ = 0;
};

/// Does everything that a frontend must not do, in an order that a seed decides.
class hostile_frontend {
 public:
  hostile_frontend(scripted_frontend& front, std::uint32_t seed) : front_(front), random_(seed) {
    pages_ = front_.guest().allocate_pages(page_count);
    for (std::size_t i = 0; i < page_count; ++i) {
      references_[i] = front_.guest().grant(
          0, pages_ + i * platform::page_size,
          i % 3 == 0 ? platform::access::read_only : platform::access::read_write);
    }
  }

  /// One misdeed against the ring.
  void step() {
    switch (random_() % 8) {
      case 0:
        poke(random_() % front_.ring().size(), random_() % 64);
        break;
      case 1:
        front_.set_request_producer(front_.request_producer() + pick(40));
        break;
      case 2:  // its segments are what the pages hold
        poke_page(pick(page_count));
        break;
      case 3:
        end_and_grant_again(pick(page_count));
        break;
      default:
        front_.put(make_request());
        break;
    }
    front_.kick();
  }

  /// The pages of data as they are granted now.
  [[nodiscard]] std::span<const platform::grant_reference> references() const noexcept {
    return references_;
  }

 private:
  static constexpr std::size_t page_count = 16;

  std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

  // Byte by byte and atomically, as the backend may be looking.
  void poke(std::size_t at, std::size_t count) {
    for (; count != 0 && at < front_.ring().size(); --count, ++at) {
      ring::slot_sink(front_.ring().data())
          .store<std::uint8_t>(at, static_cast<std::uint8_t>(random_()));
    }
  }
  void poke_page(std::size_t page) {
    for (std::size_t i = 0; i < 64; ++i) {
      ring::slot_sink(pages_ + page * platform::page_size)
          .store<std::uint8_t>(random_() % platform::page_size,
                               static_cast<std::uint8_t>(random_() % 300));
    }
  }
  void end_and_grant_again(std::size_t page) {
    if (front_.guest().end_grant(references_[page])) {
      references_[page] = front_.guest().grant(0, pages_ + page * platform::page_size,
                                               platform::access::read_write);
    }
  }
  protocol::blkif::request make_request() {
    protocol::blkif::request out{};
    out.operation = static_cast<std::uint8_t>(random_() % 8);
    out.indirect_operation = static_cast<std::uint8_t>(random_() % 3);
    out.id = random_();
    out.sector_number =
        untrusted<std::uint64_t>(random_() % 5 == 0 ? ~std::uint64_t{random_()} : random_() % 4096);
    out.nr_sectors =
        untrusted<std::uint64_t>(random_() % 3 == 0 ? ~std::uint64_t{0} : random_() % 64);
    out.nr_segments = untrusted<std::uint16_t>(
        static_cast<std::uint16_t>(random_() % (random_() % 4 == 0 ? 600 : 13)));
    for (auto& segment : out.direct) {
      segment = {reference(),
                 static_cast<std::uint8_t>(random_() % 10),
                 static_cast<std::uint8_t>(random_() % 10),
                 {}};
    }
    for (auto& gref : out.indirect_grefs) {
      gref = reference();
    }
    return out;
  }
  std::uint32_t reference() {
    return random_() % 5 == 0 ? static_cast<std::uint32_t>(random_())
                              : references_[pick(page_count)];
  }

  scripted_frontend& front_;
  std::mt19937 random_;
  std::byte* pages_ = nullptr;
  std::array<platform::grant_reference, page_count> references_{};
};

}  // namespace pvring::testing
