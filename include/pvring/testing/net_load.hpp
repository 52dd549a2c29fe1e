// SPDX-License-Identifier: MIT
// Random packets of which every byte is checked at the other end: of all sizes, cut over slots in
// all ways, with and without extra infos. One generator serves both ends: it sends from a guest,
// and makes what an uplink brings.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "../net/packet.hpp"
#include "../net/uplink.hpp"
#include "../platform/grant_mapper.hpp"
#include "../protocol/netif.hpp"
#include "net_model.hpp"
#include "strict_net_queue.hpp"

namespace pvring::testing {

/// Checksums and segments are only spoken of: the frames are no IP packets, so an uplink that looks
/// at their headers has to be spared them, by `takes`.
struct net_load_options {
  std::uint64_t seed = 1;
  std::size_t largest_bytes = net::max_frame_bytes;   ///< without scatter-gather: a page besides
  net::offloads takes{true, true, true, true, true};  ///< what the other end takes
  bool hashes = true;
  bool scattered = true;  ///< cut anyhow over the slots, not in pages
};

/// A packet that was made.
struct net_packet {
  std::span<const std::byte> bytes;
  net::packet_info info;
  std::span<const std::uint16_t> cut;  ///< bytes of each slot, for `strict_net_queue::send`
};

/// One thread uses it. The model outlives it.
class net_load {
 public:
  /// Slots of a packet as it sends them: as many as every backend takes.
  static constexpr std::size_t most_slots = protocol::netif::slots_min;

  /// \param model of the direction that the packets take
  /// \pre `largest_bytes` is that of a frame
  net_load(net_model& model, net_load_options options)
      : model_(model), options_(options), random_(options.seed) {
    assert(options.largest_bytes >= net::min_frame_bytes &&
           options.largest_bytes <= net::max_frame_bytes);
    if (!options_.takes.scatter_gather) {
      options_.largest_bytes = std::min(options_.largest_bytes, platform::page_size);
    }
    frame_.resize(options_.largest_bytes);
  }

  /// The packet that is to be sent next; the same until `sent`.
  [[nodiscard]] net_packet next() {
    if (!made_) {
      length_ = some_length();
      info_ = some_info();
      make_frame(std::span(frame_).first(length_), model_.stream(), model_.next());
      cut();
      made_ = true;
    }
    return {std::span(frame_).first(length_), info_, cut_};
  }

  /// It is on its way. \pre `next` was called
  void sent() {
    assert(made_);
    model_.sent(length_, info_);
    made_ = false;
  }

  /// Sends up to `count` packets, as many as there is room for now. Returns how many; the backend
  /// sees them after `publish`.
  std::size_t send(strict_net_queue& queue, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const net_packet packet = next();
      if (!queue.send(packet.bytes, packet.info, packet.cut)) {
        return i;
      }
      sent();
    }
    return count;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  // From `least` to `most`, both included.
  std::size_t between(std::size_t least, std::size_t most) {
    return least + below(most - least + 1);
  }

  // Mostly what networks carry, sometimes just around a page's end or a limit, sometimes anything.
  std::size_t some_length() {
    const std::size_t least = net::min_frame_bytes;
    const std::size_t most = options_.largest_bytes;
    const std::size_t kind = below(100);
    std::size_t wanted = between(60, 1514);
    if (kind >= 95) {
      wanted = below(2) == 0 ? least : most;
    } else if (kind >= 85) {
      wanted = between(1, most / platform::page_size + 1) * platform::page_size + below(3) - 1;
    } else if (kind >= 65) {
      wanted = between(least, most);
    }
    return std::clamp(wanted, least, most);
  }

  net::packet_info some_info() {
    namespace netif = protocol::netif;
    net::packet_info info;
    const std::size_t kind = below(4);
    // A super-frame's checksum is blank by its nature.
    const bool v6 = below(2) == 0;
    if (kind == 0 && length_ > 1600 && (v6 ? options_.takes.gso_tcpv6 : options_.takes.gso_tcpv4)) {
      info.gso = v6 ? net::gso::tcpv6 : net::gso::tcpv4;
      info.gso_size = static_cast<std::uint16_t>(between(1, 1460));
      info.checksum = net::checksum::blank;
    } else if (kind == 1 && options_.takes.checksum_v4) {
      info.checksum = net::checksum::blank;
    } else if (kind == 2) {
      info.checksum = net::checksum::validated;
    }
    if (options_.hashes && below(3) == 0) {
      info.hash = {netif::hash_algorithm::toeplitz,
                   static_cast<std::uint8_t>(below(netif::hash_type::end)),
                   static_cast<std::uint32_t>(random_())};
    }
    return info;
  }

  void cut() {
    cut_.clear();
    const bool tiny = options_.scattered && below(4) == 0;
    const bool anyhow = options_.scattered && !tiny && below(2) == 0;
    std::size_t left = length_;
    while (left != 0) {
      // What does not fit into the slots that follow has to go into this one.
      const std::size_t room = (most_slots - cut_.size() - 1) * platform::page_size;
      const std::size_t least = left > room ? left - room : 0;
      const std::size_t most = std::min(left, platform::page_size);
      std::size_t some = most;
      if (anyhow) {
        some = below(4) == 0 ? least : between(least, most);  // also slots with nothing in them
      } else if (tiny && cut_.size() < 8) {
        some = std::clamp(between(1, 20), least, most);  // a header in pieces
      }
      cut_.push_back(static_cast<std::uint16_t>(some));
      left -= cut_.back();
    }
    assert(cut_.size() <= most_slots);
    if (!options_.takes.scatter_gather && cut_.size() > 1) {
      cut_.assign(1, static_cast<std::uint16_t>(length_));
    }
  }

  net_model& model_;
  net_load_options options_;
  std::mt19937_64 random_;
  bool made_ = false;
  std::size_t length_ = 0;
  net::packet_info info_;
  std::vector<std::byte> frame_;
  std::vector<std::uint16_t> cut_;
};

}  // namespace pvring::testing
