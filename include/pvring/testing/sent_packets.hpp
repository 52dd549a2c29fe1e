// SPDX-License-Identifier: MIT
// The packets that a frontend queue has put into its transmit ring: their slots and pages, and what
// the responses have to say. The counterpart of in_flight_table for packets.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../net/packet.hpp"
#include "../platform/emulated/guest.hpp"
#include "../protocol/netif_abi.hpp"
#include "../ring/front_ring.hpp"
#include "guest_pages.hpp"

namespace pvring::testing {

/// One thread uses it.
class sent_packets {
 public:
  using ring_type = ring::front_ring<protocol::netif::tx_wire>;
  static constexpr std::size_t ring_slots = 256;

  /// The guest outlives it.
  sent_packets(platform::emulated_guest& guest, domain_id backend) : pages_(guest, backend) {}

  /// Begins with a ring whose indices are at `start`. \pre it is empty
  void open(std::uint32_t start, bool in_order) {
    in_order_ = in_order;
    refused_.clear();
    answered_ = put_ = start;
    extras_in_flight_ = 0;
    free_ids_.resize(ring_slots);
    std::iota(free_ids_.rbegin(), free_ids_.rend(), std::uint16_t{0});
  }

  /// Forgets all packets and frees all pages. Returns how many are still mapped, those included
  /// that were given up since the last time.
  [[nodiscard]] std::size_t close() {
    for (sent_slot& r : requests_) {
      if (std::exchange(r.busy, false)) {
        (void)pages_.end(r.page);
        pages_.give_back(r.page);
      }
    }
    (void)pages_.clear();
    return pages_.lost() - std::exchange(told_, pages_.lost());
  }

  /// Puts a packet into the ring. Returns how many slots it has; none where there is no room now:
  /// then nothing has happened.
  /// \param cut bytes of each slot, together those of the packet; empty: pages are filled
  std::size_t put(ring_type& tx, std::span<const std::byte> bytes, const net::packet_info& info,
                  std::span<const std::uint16_t> cut) {
    namespace netif = protocol::netif;
    std::vector<std::uint16_t> parts(cut.begin(), cut.end());
    for (std::size_t left = bytes.size(); cut.empty() && left != 0;) {
      const std::size_t some = std::min(left, platform::page_size);
      parts.push_back(static_cast<std::uint16_t>(some));
      left -= some;
    }
    assert(std::accumulate(parts.begin(), parts.end(), std::size_t{0}) == bytes.size());
    std::vector<netif::extra_info> extras;
    if (info.gso != net::gso::none) {
      extras.push_back(
          netif::extra_info::of_gso(static_cast<std::uint8_t>(info.gso), info.gso_size));
    }
    if (info.hash.algorithm != 0) {
      extras.push_back(
          netif::extra_info::of_hash(info.hash.algorithm, info.hash.type, info.hash.value));
    }
    std::uint16_t flags = 0;
    if (info.checksum == net::checksum::blank) {
      flags = netif::tx_flag::csum_blank | netif::tx_flag::data_validated;
    } else if (info.checksum == net::checksum::validated) {
      flags = netif::tx_flag::data_validated;
    }
    return put_parts(tx, bytes, parts, extras, flags);
  }

  /// Puts the request to join or leave a multicast group, likewise.
  std::size_t put_group(ring_type& tx, const std::array<std::uint8_t, 6>& group, bool join) {
    const std::array<std::byte, net::min_frame_bytes> nothing{};
    const std::array<std::uint16_t, 1> cut{net::min_frame_bytes};
    return put_parts(tx, nothing, cut, {{protocol::netif::extra_info::of_multicast(join, group)}},
                     0);
  }

  /// Takes the next response. Returns whether it is that of a packet's last slot.
  bool take(const protocol::netif::tx_wire::response& r) {
    const std::uint16_t next = order_[answered_++ % ring_slots];
    const bool null = r.status == static_cast<std::int16_t>(protocol::netif::status::null);
    if (in_order_ && (next == extra_mark) != null) {
      return refuse(null ? "a request was answered as an extra info"
                         : "an extra info was answered with a status");
    }
    if (null) {
      if (extras_in_flight_ == 0) {
        return refuse("more answers to extra infos than there were");
      }
      --extras_in_flight_;
      return false;
    }
    if (in_order_ && r.id != next) {
      return refuse("transmit response with id " + std::to_string(r.id) + " where " +
                    std::to_string(next) + " was next");
    }
    if (r.id >= ring_slots || !requests_[r.id].busy) {
      return refuse("transmit response with the id " + std::to_string(r.id) +
                    ", which is not in flight");
    }
    sent_slot& s = requests_[r.id];
    if (r.status < static_cast<std::int16_t>(protocol::netif::status::dropped) || r.status > 0) {
      return refuse("transmit response with the unknown status " + std::to_string(r.status));
    }
    s.busy = false;
    const bool ended = pages_.end(s.page);
    pages_.give_back(s.page);
    if (!ended) {
      return refuse("response while the grant is mapped, transmit slot " + std::to_string(r.id));
    }
    free_ids_.push_back(r.id);
    if (s.last) {
      last_status_ = r.status;
    }
    return s.last;
  }

  /// What was wrong with a response; empty where nothing was. Then no more may be taken.
  [[nodiscard]] const std::string& refused() const noexcept { return refused_; }
  /// What the last packet was answered with.
  [[nodiscard]] std::int16_t last_status() const noexcept { return last_status_; }

 private:
  static constexpr std::uint16_t extra_mark = 0xffff;  // an extra info in place of an id

  struct sent_slot {
    granted_page page;
    bool busy = false;
    bool last = false;  // of its packet
  };

  bool refuse(std::string why) {
    refused_ = std::move(why);
    return false;
  }

  // Returns how many slots it put: none where there is no room.
  std::size_t put_parts(ring_type& tx, std::span<const std::byte> bytes,
                        std::span<const std::uint16_t> parts,
                        const std::vector<protocol::netif::extra_info>& extras,
                        std::uint16_t flags) {
    namespace netif = protocol::netif;
    if (tx.space() < parts.size() + extras.size()) {
      return 0;
    }
    std::vector<granted_page> taken;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto page = pages_.take(platform::access::read_only);
      if (!page) {
        for (granted_page& p : taken) {
          (void)pages_.end(p);
          pages_.give_back(p);
        }
        return 0;
      }
      taken.push_back(*page);
    }
    std::size_t done = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      // Anywhere in its page: a backend must not count on a page's start.
      const auto offset = static_cast<std::uint16_t>(
          std::min<std::size_t>(platform::page_size - parts[i], (done * 7 + 64) % 512));
      std::memcpy(taken[i].address + offset, bytes.data() + done, parts[i]);
      done += parts[i];
      netif::tx_request request;
      request.gref = taken[i].reference;
      request.offset = untrusted(offset);
      request.size = untrusted(i == 0 ? static_cast<std::uint16_t>(bytes.size()) : parts[i]);
      request.flags =
          static_cast<std::uint16_t>(i + 1 < parts.size() ? netif::tx_flag::more_data : 0);
      if (i == 0) {
        request.flags = static_cast<std::uint16_t>(
            request.flags | flags | (extras.empty() ? 0U : unsigned{netif::tx_flag::extra_info}));
      }
      request.id = free_ids_.back();
      free_ids_.pop_back();
      requests_[request.id] = {taken[i], true, i + 1 == parts.size()};
      put_slot(tx, netif::tx_slot(request), request.id);
      for (std::size_t e = 0; i == 0 && e < extras.size(); ++e) {
        netif::extra_info extra = extras[e];
        extra.flags = e + 1 < extras.size() ? netif::extra_more : std::uint8_t{0};
        put_slot(tx, netif::tx_slot(extra), extra_mark);
        ++extras_in_flight_;
      }
    }
    return parts.size() + extras.size();
  }

  // \param id of the request, or `extra_mark`
  void put_slot(ring_type& tx, const protocol::netif::tx_slot& wire, std::uint16_t id) {
    order_[put_ % ring_slots] = id;
    tx.put(wire);
    ++put_;
  }

  guest_pages pages_;
  // By id. Like netfront's, ids come from a list: they soon have nothing to do with positions.
  std::array<sent_slot, ring_slots> requests_{};
  std::vector<std::uint16_t> free_ids_;
  std::array<std::uint16_t, ring_slots> order_{};  // by position: ids as they were put
  std::uint32_t put_ = 0;
  std::uint32_t answered_ = 0;
  std::size_t extras_in_flight_ = 0;
  std::size_t told_ = 0;  // of the pages that were given up, those that close() told of
  std::int16_t last_status_ = 0;
  bool in_order_ = true;
  std::string refused_;
};

}  // namespace pvring::testing
