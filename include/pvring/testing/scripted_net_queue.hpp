// SPDX-License-Identifier: MIT
// A network frontend's queue that does exactly what it is told, right or wrong: any word of any
// slot, any index. And a hostile one that tells itself, from a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "../net/tx_chain.hpp"
#include "../platform/emulated/guest.hpp"
#include "../protocol/netif_abi.hpp"
#include "../protocol/ring_page.hpp"
#include "../ring/shared_access.hpp"

namespace pvring::testing {

/// One ring in its page, written by hand. One thread uses it; a backend may be looking meanwhile.
/// \tparam Wire protocol::netif::tx_wire or rx_wire
template <class Wire>
class scripted_ring {
 public:
  /// \param page of the ring; it outlives this, and is left as it is
  explicit scripted_ring(std::span<std::byte> page) noexcept : page_(page) {
    assert(page.size() == platform::page_size);
  }

  [[nodiscard]] static constexpr std::size_t slots() noexcept {
    return protocol::ring_slots(platform::page_size, Wire::slot_bytes);
  }
  [[nodiscard]] std::span<std::byte> page() const noexcept { return page_; }

  // ---- indices: req_prod is the frontend's own, but all can be written
  [[nodiscard]] std::uint32_t request_producer() const { return load(offsetof(indices, req_prod)); }
  void set_request_producer(std::uint32_t to) { store(offsetof(indices, req_prod), to); }
  [[nodiscard]] std::uint32_t request_event() const { return load(offsetof(indices, req_event)); }
  void set_request_event(std::uint32_t to) { store(offsetof(indices, req_event), to); }
  [[nodiscard]] std::uint32_t response_producer() const {
    return load(offsetof(indices, rsp_prod));
  }
  void set_response_producer(std::uint32_t to) { store(offsetof(indices, rsp_prod), to); }
  void set_response_event(std::uint32_t to) { store(offsetof(indices, rsp_event), to); }

  // ---- slots: `at` is a position, of any size
  void write(std::uint32_t at, const typename Wire::request& request) {
    Wire::store_request(ring::slot_sink(slot(at)), request);
  }
  /// The words of a slot as they are: what no request says can be written so, too.
  void write_word(std::uint32_t at, std::size_t word, std::uint32_t value) {
    assert((word + 1) * sizeof value <= Wire::slot_bytes);
    ring::slot_sink(slot(at)).template store<std::uint32_t>(word * sizeof value, value);
  }
  [[nodiscard]] typename Wire::response response(std::uint32_t at) const {
    return Wire::fetch_response(ring::slot_source(slot(at)));
  }

  /// Writes the next slots and shows them.
  void put(std::span<const typename Wire::request> requests) {
    std::uint32_t at = request_producer();
    for (const typename Wire::request& one : requests) {
      write(at++, one);
    }
    set_request_producer(at);
  }
  void put(const typename Wire::request& request) { put(std::span(&request, 1)); }

 private:
  using indices = protocol::ring_indices<>;

  [[nodiscard]] std::byte* slot(std::uint32_t at) const noexcept {
    return &page_[protocol::ring_header_bytes + (at & (slots() - 1)) * Wire::slot_bytes];
  }
  [[nodiscard]] std::uint32_t load(std::size_t offset) const {
    return ring::shared_index<std::uint32_t>(&page_[offset]).load(std::memory_order_seq_cst);
  }
  void store(std::size_t offset, std::uint32_t value) {
    ring::shared_index<std::uint32_t>(&page_[offset]).store(value, std::memory_order_seq_cst);
  }

  std::span<std::byte> page_;
};

using scripted_tx_ring = scripted_ring<protocol::netif::tx_wire>;
using scripted_rx_ring = scripted_ring<protocol::netif::rx_wire>;

/// What a hostile queue does worst.
enum class net_misdeeds : std::uint8_t {
  survivable,  ///< packets that are dropped, pages and references that are none: its backend goes
               ///< on
  all,         ///< and what no driver does by mistake: sooner or later its backend gives it up
};

/// Does everything that a queue must not do, in an order that a seed decides. Its pages and their
/// grants are left behind when it goes, as those of a guest that dies.
class hostile_net_queue {
 public:
  /// \param tx, rx pages of the rings, shown to `backend` already
  /// \throws std::system_error where the guest has no pages or grants left
  hostile_net_queue(platform::emulated_guest& guest, domain_id backend, std::span<std::byte> tx,
                    std::span<std::byte> rx, std::uint32_t seed,
                    net_misdeeds worst = net_misdeeds::all)
      : guest_(guest), backend_(backend), tx_(tx), rx_(rx), worst_(worst), random_(seed) {
    pages_ = guest_.allocate_pages(page_count);
    for (std::size_t i = 0; i < page_count; ++i) {
      references_[i] =
          guest_.grant(backend_, page(i),
                       i % 2 == 0 ? platform::access::read_only : platform::access::read_write);
    }
  }

  /// One misdeed.
  void step() {
    const std::uint32_t kind = pick(worst_ == net_misdeeds::all ? 20 : 17);
    if (kind < 8) {
      put_chain();
    } else if (kind < 14) {
      put_pages();
    } else if (kind < 16) {
      end_and_grant_again(pick(page_count));
    } else if (kind == 16) {
      poke({page(pick(page_count)), platform::page_size}, 64);
    } else if (kind == 17) {
      poke(pick(2) == 0 ? tx_.page() : rx_.page(), pick(64));
    } else if (kind == 18) {
      tx_.set_request_producer(tx_.request_producer() + pick(40));
    } else {
      rx_.set_request_producer(rx_.request_producer() + pick(300));
    }
  }

 private:
  static constexpr std::size_t page_count = 16;

  std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::uint16_t any(std::size_t below) { return static_cast<std::uint16_t>(pick(below)); }
  [[nodiscard]] std::byte* page(std::size_t at) const { return pages_ + at * platform::page_size; }
  std::uint32_t reference() {
    return pick(6) == 0 ? static_cast<std::uint32_t>(random_()) : references_[pick(page_count)];
  }

  template <class Ring>
  static std::size_t room(const Ring& ring) {
    const std::uint32_t taken = ring.request_producer() - ring.response_producer();
    return taken < ring.slots() ? ring.slots() - taken : 0;
  }

  [[nodiscard]] bool anything_goes(std::uint32_t once_in) {
    return worst_ == net_misdeeds::all && pick(once_in) == 0;
  }

  // A packet whose length need not be that of its parts, in pages that need not be there.
  void put_chain() {
    namespace flag = protocol::netif::tx_flag;
    const std::size_t count = pick(8) == 0 ? 1 + pick(net::most_data_slots) : 1 + pick(4);
    const std::size_t extras = pick(3) == 0 ? 1 + pick(3) : 0;
    if (room(tx_) < count + extras) {
      return;
    }
    std::array<std::uint16_t, net::most_data_slots> sizes{};
    std::uint32_t sum = 0;
    for (std::size_t i = 1; i < count; ++i) {
      sizes[i] = any(pick(4) == 0 ? 3 : 1000);
      sum += sizes[i];
    }
    // Too little, or as much as the first part can hold besides.
    sizes[0] = static_cast<std::uint16_t>(pick(4) == 0 ? pick(sum + 1) : sum + pick(1000));
    std::uint32_t at = tx_.request_producer();
    for (std::size_t i = 0; i < count; ++i) {
      protocol::netif::tx_request part;
      part.gref = reference();
      part.offset = untrusted(any(anything_goes(20) ? 65536 : 3000));
      part.size = untrusted(anything_goes(20) ? any(65536) : sizes[i]);
      part.id = any(65536);
      part.flags =
          static_cast<std::uint16_t>((i + 1 < count ? flag::more_data : 0) |
                                     (i == 0 && extras != 0 ? flag::extra_info : 0) | pick(4));
      if (anything_goes(40)) {
        part.flags = any(65536);
      }
      tx_.write(at++, protocol::netif::tx_slot(part));
      for (std::size_t e = 0; i == 0 && e < extras; ++e) {
        tx_.write(at++, protocol::netif::tx_slot(make_extra(e + 1 < extras)));
      }
    }
    tx_.set_request_producer(at);
  }

  protocol::netif::extra_info make_extra(bool more) {
    namespace type = protocol::netif::extra_type;
    protocol::netif::extra_info extra;
    extra.type = anything_goes(20)
                     ? static_cast<std::uint8_t>(pick(256))
                     : static_cast<std::uint8_t>(type::gso + pick(type::end - type::gso));
    extra.flags = more ? protocol::netif::extra_more : std::uint8_t{0};
    for (std::uint8_t& byte : extra.data) {
      byte = static_cast<std::uint8_t>(pick(3) == 0 ? pick(256) : pick(5));
    }
    return extra;
  }

  // Pages to receive into, of which many cannot be written, or are posted several times.
  void put_pages() {
    const std::size_t count = std::min<std::size_t>(1 + pick(24), room(rx_));
    std::uint32_t at = rx_.request_producer();
    for (std::size_t i = 0; i < count; ++i) {
      rx_.write(at++, {reference(), any(65536)});
    }
    rx_.set_request_producer(at);
  }

  void end_and_grant_again(std::size_t at) {
    if (guest_.end_grant(references_[at])) {
      references_[at] =
          guest_.grant(backend_, page(at),
                       pick(2) == 0 ? platform::access::read_only : platform::access::read_write);
    }
  }

  // Byte by byte and atomically, as the backend may be looking.
  void poke(std::span<std::byte> bytes, std::size_t count) {
    for (; count != 0; --count) {
      ring::slot_sink(bytes.data())
          .store<std::uint8_t>(pick(bytes.size()), static_cast<std::uint8_t>(random_()));
    }
  }

  platform::emulated_guest& guest_;
  domain_id backend_;
  scripted_tx_ring tx_;
  scripted_rx_ring rx_;
  net_misdeeds worst_;
  std::mt19937 random_;
  std::byte* pages_ = nullptr;
  std::array<platform::grant_reference, page_count> references_{};
};

}  // namespace pvring::testing
