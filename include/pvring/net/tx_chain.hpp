// SPDX-License-Identifier: MIT
// Joins the slots of one packet that a guest sends: its first request, extra infos, further
// requests. Says what becomes of it; nothing that the peer wrote gets past here unchecked.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../base/error.hpp"
#include "../grant/strategy.hpp"
#include "../platform/grant_mapper.hpp"
#include "../protocol/netif_abi.hpp"
#include "packet.hpp"

namespace pvring::net {

/// Slots with data of a packet that is sent: the first, and those that every backend must take.
inline constexpr std::size_t max_data_slots = 1 + protocol::netif::slots_min;
/// Slots with data up to which a packet is dropped, and not held against its guest: guests of old
/// sent as many.
inline constexpr std::size_t most_data_slots = max_data_slots + 2;
/// Extra infos of a packet: each type twice; nobody sends more than two at all.
inline constexpr std::size_t most_extras = 8;
/// Slots of any packet that is answered.
inline constexpr std::size_t most_packet_slots = most_data_slots + most_extras;

/// Why a packet is not sent.
enum class tx_drop : std::uint8_t {
  none,
  too_many_slots,     ///< more than `max_data_slots`
  parts_exceed_size,  ///< its parts are longer than the packet: one of 64 KiB or more, as a rule
  too_short,          ///< no room for an Ethernet header
  bad_gso,            ///< a segment size or a type that cannot be
};

/// A request to join or leave a multicast group; it comes with a packet that has no other use.
struct multicast_request {
  bool add = false;
  std::array<std::uint8_t, 6> address{};
};

/// One packet at a time; a value, and pure. Call `begin`, then `add` for one slot after the other
/// as long as it asks for more; what the packet is, is known then.
class tx_chain {
 public:
  void begin() noexcept {
    next_ = kind::first;
    slots_ = data_slots_ = extras_ = 0;
    total_ = rest_ = 0;
    error_ = protocol_error::none;
    drop_ = tx_drop::none;
    info_ = {};
    gso_.reset();
    multicast_.reset();
  }

  /// \returns whether the packet has another slot. \pre it has
  [[nodiscard]] bool add(const protocol::netif::tx_slot& slot) noexcept {
    assert(next_ != kind::nothing);
    switch (next_) {
      case kind::first:
        add_first(slot.as_request());
        break;
      case kind::extra:
        add_extra(slot.as_extra());
        break;
      default:
        add_fragment(slot.as_request());
        break;
    }
    if (error_ != protocol_error::none) [[unlikely]] {
      next_ = kind::nothing;
    } else if (next_ == kind::nothing) {
      finish();
    }
    return next_ != kind::nothing;
  }

  /// Whether a packet was begun and has another slot.
  [[nodiscard]] bool wants_more() const noexcept { return next_ != kind::nothing; }
  /// Whether the next slot that is added holds an extra info, which has no id.
  [[nodiscard]] bool wants_extra() const noexcept { return next_ == kind::extra; }

  // ---- what it came to

  /// What the peer did wrong, if it broke the protocol: then nothing else here means anything.
  [[nodiscard]] protocol_error error() const noexcept { return error_; }
  /// Whether it is not sent: each of its slots is answered all the same.
  [[nodiscard]] tx_drop drop() const noexcept { return drop_; }
  /// What is asked for in place of sending it.
  [[nodiscard]] const std::optional<multicast_request>& multicast() const noexcept {
    return multicast_;
  }
  [[nodiscard]] std::uint32_t bytes() const noexcept { return total_; }
  [[nodiscard]] const packet_info& info() const noexcept { return info_; }
  /// Where its bytes are, in order. What is empty is left out: its page is nobody's business.
  [[nodiscard]] std::span<const grant::piece> pieces() const noexcept {
    return {pieces_.data(), piece_count_};
  }
  /// Slots added, extra infos included.
  [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
  /// Extra infos among them, right behind the first.
  [[nodiscard]] std::size_t extras() const noexcept { return extras_; }
  /// Whether the slot at `index` was an extra info.
  [[nodiscard]] bool is_extra(std::size_t index) const noexcept {
    return index >= 1 && index <= extras_;
  }

 private:
  enum class kind : std::uint8_t { nothing, first, extra, fragment };
  using request = protocol::netif::tx_request;

  void add_first(const request& r) noexcept {
    slots_ = data_slots_ = 1;
    // Whatever a guest says here is a length that can be: it is compared with what follows.
    total_ = rest_ = r.size.echo();
    first_offset_ = r.offset.echo();
    pieces_[0].reference = r.gref;
    more_ = (r.flags & protocol::netif::tx_flag::more_data) != 0;
    if ((r.flags & protocol::netif::tx_flag::csum_blank) != 0) {
      info_.checksum = checksum::blank;
    } else if ((r.flags & protocol::netif::tx_flag::data_validated) != 0) {
      info_.checksum = checksum::validated;
    }
    next_ = (r.flags & protocol::netif::tx_flag::extra_info) != 0 ? kind::extra : after_extras();
  }

  void add_extra(const protocol::netif::extra_info& e) noexcept {
    namespace type = protocol::netif::extra_type;
    if (e.type == type::none || e.type >= type::end || extras_ == most_extras) {
      error_ = protocol_error::packet_bad_extra;
      return;
    }
    ++slots_;
    ++extras_;
    switch (e.type) {
      case type::gso:
        gso_ = e;
        break;
      case type::hash:
        add_hash(e);
        break;
      default:
        multicast_ = multicast_request{e.type == type::multicast_add, e.data};
        break;
    }
    if ((e.flags & protocol::netif::extra_more) == 0) {
      next_ = after_extras();
    }
  }

  // One of an algorithm or type that is not known is none.
  void add_hash(const protocol::netif::extra_info& e) noexcept {
    if (e.hash_algorithm() == protocol::netif::hash_algorithm::toeplitz &&
        e.hash_type() < protocol::netif::hash_type::end) {
      info_.hash = {e.hash_algorithm(), e.hash_type(), e.hash_value()};
    }
  }

  void add_fragment(const request& r) noexcept {
    if (data_slots_ == most_data_slots) {
      error_ = protocol_error::packet_too_many_slots;
      return;
    }
    const std::uint32_t size = r.size.echo();
    if (r.offset.echo() + size > platform::page_size) {
      error_ = protocol_error::packet_crosses_page;
      return;
    }
    ++slots_;
    if (data_slots_ == max_data_slots) {
      drop_ = tx_drop::too_many_slots;
    } else if (drop_ == tx_drop::none && size > rest_) {
      drop_ = tx_drop::parts_exceed_size;
    }
    if (drop_ == tx_drop::none) {
      rest_ -= size;
      pieces_[data_slots_] = {r.gref, 0, r.offset.echo(), static_cast<std::uint16_t>(size)};
    }
    ++data_slots_;
    more_ = (r.flags & protocol::netif::tx_flag::more_data) != 0;
    next_ = after_extras();
  }

  [[nodiscard]] kind after_extras() const noexcept {
    return more_ ? kind::fragment : kind::nothing;
  }

  void finish() noexcept {
    piece_count_ = 0;
    if (drop_ != tx_drop::none || multicast_) {
      return;
    }
    if (total_ < min_frame_bytes) {
      drop_ = tx_drop::too_short;
      return;
    }
    // What the others leave of the packet is the first one's own.
    if (first_offset_ + rest_ > platform::page_size) {
      error_ = protocol_error::packet_crosses_page;
      return;
    }
    if (gso_ && !take_gso()) {
      drop_ = tx_drop::bad_gso;
      return;
    }
    pieces_[0].offset = first_offset_;
    pieces_[0].length = static_cast<std::uint16_t>(rest_);
    for (std::size_t i = 0; i < data_slots_; ++i) {
      if (pieces_[i].length != 0) {
        pieces_[piece_count_++] = pieces_[i];
      }
    }
  }

  // Whoever cuts the packet divides by its size.
  [[nodiscard]] bool take_gso() noexcept {
    const std::uint8_t type = gso_->gso_type();
    const std::uint16_t size = gso_->gso_size();
    if ((type != protocol::netif::gso_type::tcpv4 && type != protocol::netif::gso_type::tcpv6) ||
        size == 0 || size > total_) {
      return false;
    }
    info_.gso = static_cast<gso>(type);
    info_.gso_size = size;
    return true;
  }

  kind next_ = kind::nothing;
  bool more_ = false;
  protocol_error error_ = protocol_error::none;
  tx_drop drop_ = tx_drop::none;
  std::size_t slots_ = 0;
  std::size_t data_slots_ = 0;
  std::size_t extras_ = 0;
  std::size_t piece_count_ = 0;
  std::uint32_t total_ = 0;
  std::uint32_t rest_ = 0;  // of the packet, not yet found in fragments
  std::uint16_t first_offset_ = 0;
  packet_info info_;
  std::optional<protocol::netif::extra_info> gso_;
  std::optional<multicast_request> multicast_;
  std::array<grant::piece, max_data_slots> pieces_{};
};

}  // namespace pvring::net
