// SPDX-License-Identifier: MIT
// How a packet for the guest lies in the slots of its receive ring: which parts of it, in which
// order, with which flags and extra infos. The only place that knows, so that what is asked for
// before and what is used after cannot differ.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "../platform/grant_mapper.hpp"
#include "../protocol/netif_abi.hpp"
#include "packet.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// Which packets the frontend takes.
struct rx_agreement {
  net::offloads offloads;
  bool hash = false;  ///< it selected a hash algorithm, and so takes hashes
};

/// The slots of one packet: the first part of its data, its extra infos, the rest of its data. Each
/// page is filled before the next is begun.
class slot_plan {
 public:
  /// What one slot holds.
  struct part {
    bool is_extra = false;
    std::size_t offset = 0;    ///< of the data, in the packet
    std::uint16_t length = 0;  ///< bytes of the data; it begins at the page's start
    std::uint16_t flags = 0;   ///< see protocol::netif::rx_flag
    const protocol::netif::extra_info* extra = nullptr;
  };

  /// Requests that the packet consumes; 0: the frontend does not take it at all.
  [[nodiscard]] std::size_t slots() const noexcept { return std::size_t{data_} + extras_; }
  [[nodiscard]] std::size_t data_slots() const noexcept { return data_; }
  [[nodiscard]] std::size_t extras() const noexcept { return extras_; }

  /// \pre index < slots()
  [[nodiscard]] part at(std::size_t index) const noexcept {
    assert(index < slots());
    if (index >= 1 && index <= extras_) {
      return {.is_extra = true, .extra = &extra_[index - 1]};
    }
    const std::size_t page = index == 0 ? 0 : index - extras_;
    const std::size_t offset = page * platform::page_size;
    namespace flag = protocol::netif::rx_flag;
    auto flags = static_cast<std::uint16_t>(page + 1 < data_ ? flag::more_data : 0);
    if (page == 0) {
      flags = static_cast<std::uint16_t>(flags | first_flags_);
    }
    return {.offset = offset,
            .length = static_cast<std::uint16_t>(
                std::min<std::size_t>(length_ - offset, platform::page_size)),
            .flags = flags};
  }

 private:
  friend slot_plan plan_slots(std::size_t length, const packet_info& info,
                              const rx_agreement& with) noexcept;

  void add(const protocol::netif::extra_info& extra) noexcept {
    if (extras_ != 0) {
      extra_[extras_ - 1U].flags = protocol::netif::extra_more;
    }
    extra_[extras_++] = extra;
  }

  std::uint32_t length_ = 0;
  std::uint16_t first_flags_ = 0;
  std::uint8_t data_ = 0;
  std::uint8_t extras_ = 0;
  std::array<protocol::netif::extra_info, 2> extra_{};
};

/// The slots of a packet of `length` bytes. Pure.
///
/// No slots: a packet shorter than `min_frame_bytes` or longer than `max_frame_bytes`, a
/// super-frame of a kind that was not agreed, or more than a page without scatter-gather. A hash
/// goes along only where it was agreed.
[[nodiscard]] inline slot_plan plan_slots(std::size_t length, const packet_info& info,
                                          const rx_agreement& with) noexcept {
  namespace netif = protocol::netif;
  slot_plan plan;
  const bool agreed = (info.gso == gso::none) ||
                      (info.gso == gso::tcpv4 && with.offloads.gso_tcpv4) ||
                      (info.gso == gso::tcpv6 && with.offloads.gso_tcpv6);
  if (length < min_frame_bytes || length > max_frame_bytes || !agreed ||
      (info.gso != gso::none && info.gso_size == 0) ||
      (length > platform::page_size && !with.offloads.scatter_gather)) {
    return plan;
  }
  plan.length_ = static_cast<std::uint32_t>(length);
  plan.data_ = static_cast<std::uint8_t>((length + platform::page_size - 1) / platform::page_size);
  if (info.gso != gso::none) {
    plan.add(netif::extra_info::of_gso(static_cast<std::uint8_t>(info.gso), info.gso_size));
  }
  if (with.hash && info.hash.algorithm != netif::hash_algorithm::none) {
    plan.add(netif::extra_info::of_hash(info.hash.algorithm, info.hash.type, info.hash.value));
  }
  // A blank checksum is at the same time one that nobody needs to look at.
  unsigned flags = 0;
  if (info.checksum == checksum::blank) {
    flags = netif::rx_flag::csum_blank | netif::rx_flag::data_validated;
  } else if (info.checksum == checksum::validated) {
    flags = netif::rx_flag::data_validated;
  }
  if (plan.extras_ != 0) {
    flags |= netif::rx_flag::extra_info;
  }
  plan.first_flags_ = static_cast<std::uint16_t>(flags);
  return plan;
}

}  // namespace pvring::net
