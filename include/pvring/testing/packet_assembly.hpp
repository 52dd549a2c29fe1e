// SPDX-License-Identifier: MIT
// Puts a packet together from the responses of a receive ring, as a frontend does, and says what
// netfront would refuse of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../net/packet.hpp"
#include "../platform/grant_mapper.hpp"
#include "../protocol/netif_abi.hpp"
#include "page_guard.hpp"

namespace pvring::testing {

/// One packet after the other; one thread uses it. It knows nothing of rings and grants.
class packet_assembly {
 public:
  using response = protocol::netif::rx_wire::response;

  /// As Linux has it: slots of a packet, and one more where the first has no more than so many
  /// bytes, which are copied out of it.
  static constexpr std::size_t most_slots = protocol::netif::slots_min;
  static constexpr std::size_t copied_bytes = 256;

  /// \param guarded pages were filled by `set_guard` before they were posted
  explicit packet_assembly(bool guarded = false) noexcept : guarded_(guarded) {}

  /// Takes the next response, which lies in the slot of request `id`, for which `page` was posted.
  /// Returns whether the packet ends with it; the packet is there until the next call.
  bool add(const response& r, std::uint16_t id, const std::byte* page) {
    if (!begun_) {
      begin();
    }
    ++slots_;
    if (wants_extra_) {
      take_extra(r.as_extra());
    } else {
      take_data(r, id, page);
    }
    if (!refused_.empty() || wants_extra_ || more_data_) {
      return false;
    }
    begun_ = false;
    if (!failed_ && bytes_.size() < net::min_frame_bytes) {
      refuse("a packet of " + std::to_string(bytes_.size()) + " bytes");
      return false;
    }
    return true;
  }

  /// What is wrong with the packet; empty where nothing is. Then no more may be added.
  [[nodiscard]] const std::string& refused() const noexcept { return refused_; }
  /// Whether a packet has begun and not ended.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// Whether a slot says that it failed.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] const net::packet_info& info() const noexcept { return info_; }
  /// Responses that it took so far, extra infos included.
  [[nodiscard]] std::size_t slots() const noexcept { return slots_; }

 private:
  static constexpr std::uint16_t known_flags =
      protocol::netif::rx_flag::data_validated | protocol::netif::rx_flag::csum_blank |
      protocol::netif::rx_flag::more_data | protocol::netif::rx_flag::extra_info;

  void refuse(std::string why) { refused_ = std::move(why); }

  void begin() {
    begun_ = true;
    wants_extra_ = more_data_ = failed_ = false;
    data_slots_ = slots_ = 0;
    info_ = {};
    bytes_.clear();
  }

  void take_data(const response& r, std::uint16_t id, const std::byte* page) {
    namespace flag = protocol::netif::rx_flag;
    if (r.id() != id) {
      refuse("receive response with id " + std::to_string(r.id()) + " in the slot of request " +
             std::to_string(id));
      return;
    }
    if ((r.flags() & ~unsigned{known_flags}) != 0) {
      refuse("receive response with the flags " + std::to_string(r.flags()));
      return;
    }
    more_data_ = (r.flags() & flag::more_data) != 0;
    if (++data_slots_ == 1) {
      most_ = most_slots + (r.status() <= static_cast<int>(copied_bytes) ? 1 : 0);
    }
    if (data_slots_ > most_) {
      refuse("a packet of more than " + std::to_string(most_) + " slots");
      return;
    }
    if (data_slots_ == 1) {
      wants_extra_ = (r.flags() & flag::extra_info) != 0;
      if ((r.flags() & flag::csum_blank) != 0) {
        info_.checksum = net::checksum::blank;
      } else if ((r.flags() & flag::data_validated) != 0) {
        info_.checksum = net::checksum::validated;
      }
    } else if ((r.flags() & flag::extra_info) != 0) {
      refuse("extra info behind a packet's later slot");
      return;
    }
    if (r.status() < 0) {
      failed_ = true;
      return;
    }
    const std::size_t length = static_cast<std::size_t>(r.status());
    if (r.offset() + length > platform::page_size) {
      refuse("a slot of " + std::to_string(length) + " bytes at " + std::to_string(r.offset()) +
             " reaches past its page");
      return;
    }
    if (guarded_ && !is_guarded(page, r.offset(), length)) {
      refuse("a page was written outside the " + std::to_string(length) + " bytes of its slot");
      return;
    }
    const std::byte* const from = page + r.offset();
    bytes_.insert(bytes_.end(), from, from + length);
  }

  void take_extra(const protocol::netif::extra_info& e) {
    namespace type = protocol::netif::extra_type;
    wants_extra_ = (e.flags & protocol::netif::extra_more) != 0;
    if (e.type == type::gso) {
      if (e.gso_size() == 0 || (e.gso_type() != protocol::netif::gso_type::tcpv4 &&
                                e.gso_type() != protocol::netif::gso_type::tcpv6)) {
        refuse("a super-frame of type " + std::to_string(e.gso_type()) + " with segments of " +
               std::to_string(e.gso_size()) + " bytes");
        return;
      }
      info_.gso = static_cast<net::gso>(e.gso_type());
      info_.gso_size = e.gso_size();
    } else if (e.type == type::hash) {
      info_.hash = {e.hash_algorithm(), e.hash_type(), e.hash_value()};
    } else {
      refuse("extra info of type " + std::to_string(e.type));
    }
  }

  bool guarded_;
  bool begun_ = false;
  bool wants_extra_ = false;
  bool more_data_ = false;
  bool failed_ = false;
  std::size_t data_slots_ = 0;
  std::size_t most_ = 0;
  std::size_t slots_ = 0;
  net::packet_info info_;
  std::vector<std::byte> bytes_;
  std::string refused_;
};

}  // namespace pvring::testing
