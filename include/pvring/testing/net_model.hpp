// SPDX-License-Identifier: MIT
// What has to come out at the other end of a queue: packets whose bytes follow from a number, and a
// record of those that were sent. A packet that is lost, overtaken, repeated or changed is told
// from one that is right.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../net/packet.hpp"
#include "../protocol/netif.hpp"

namespace pvring::testing {

/// Fills a frame of at least `net::min_frame_bytes`. Its addresses are those of single stations and
/// hold stream and sequence number, its protocol is one for experiments, and what follows is unlike
/// that of any other number.
inline void make_frame(std::span<std::byte> bytes, std::uint8_t stream,
                       std::uint32_t sequence) noexcept {
  assert(bytes.size() >= net::min_frame_bytes);
  const auto byte_of = [](std::uint32_t value) { return static_cast<std::byte>(value & 0xffU); };
  const std::array<std::byte, net::min_frame_bytes> header{
      std::byte{0x02},           byte_of(stream),          byte_of(sequence >> 24U),
      byte_of(sequence >> 16U),  byte_of(sequence >> 8U),  byte_of(sequence),
      std::byte{0x02},           byte_of(stream),          byte_of(~sequence >> 24U),
      byte_of(~sequence >> 16U), byte_of(~sequence >> 8U), byte_of(~sequence),
      std::byte{0x88},           std::byte{0xb5}};
  std::memcpy(bytes.data(), header.data(), header.size());
  std::uint64_t state = (sequence + 1) * 0xbf58476d1ce4e5b9U ^ (stream + 1U) * 0x94d049bb133111ebU;
  for (std::size_t at = header.size(); at < bytes.size(); at += sizeof state) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof state, bytes.size() - at));
  }
}

/// The sequence number of a frame that `make_frame` filled; nothing where it is none of the stream.
[[nodiscard]] inline std::optional<std::uint32_t> sequence_of(std::span<const std::byte> frame,
                                                              std::uint8_t stream) noexcept {
  if (frame.size() < net::min_frame_bytes) {
    return std::nullopt;
  }
  std::uint32_t sequence = 0;
  for (std::size_t i = 2; i < 6; ++i) {
    sequence = sequence << 8U | std::to_integer<std::uint32_t>(frame[i]);
  }
  std::array<std::byte, net::min_frame_bytes> expected{};
  make_frame(expected, stream, sequence);
  return std::equal(expected.begin(), expected.end(), frame.begin()) ? std::optional(sequence)
                                                                     : std::nullopt;
}

/// What may become of a packet that was sent.
enum class net_losses : std::uint8_t {
  none,     ///< there is room for all: each arrives
  allowed,  ///< it may be dropped, as on any network; the order is kept all the same
};

/// One direction of one queue. One thread uses it.
class net_model {
 public:
  /// \param stream tells its packets from those of other models
  /// \param hashes whether hashes go along, as the frontend and its backend agreed
  explicit net_model(std::uint8_t stream = 0, net_losses losses = net_losses::none,
                     bool hashes = true) noexcept
      : stream_(stream), losses_(losses), hashes_(hashes) {}

  [[nodiscard]] std::uint8_t stream() const noexcept { return stream_; }
  /// The number that the next packet has to have.
  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }

  /// Packet `next()` was sent, filled by `make_frame`.
  void sent(std::size_t bytes, const net::packet_info& info) {
    expected_.push_back({next_++, bytes, info});
  }

  /// A packet arrived. Returns what is wrong with it, for messages; nothing where all is well.
  [[nodiscard]] std::optional<std::string> arrived(std::span<const std::byte> bytes,
                                                   const net::packet_info& info) {
    const std::optional<std::uint32_t> number = sequence_of(bytes, stream_);
    if (!number) {
      return "a packet of " + std::to_string(bytes.size()) + " bytes that is none of stream " +
             std::to_string(stream_);
    }
    const auto found = std::find_if(expected_.begin(), expected_.end(),
                                    [&](const packet& p) { return p.sequence == *number; });
    if (found == expected_.end()) {
      return of(*number) + (*number < next_ ? " came twice, or was overtaken" : " was never sent");
    }
    if (found != expected_.begin() && losses_ == net_losses::none) {
      return of(*number) + " came where " + std::to_string(expected_.front().sequence) +
             " was next";
    }
    const packet wanted = *found;
    lost_ += static_cast<std::uint64_t>(found - expected_.begin());
    expected_.erase(expected_.begin(), found + 1);
    ++arrived_;
    return difference(wanted, bytes, info);
  }

  /// Sent, and neither arrived nor overtaken.
  [[nodiscard]] std::size_t pending() const noexcept { return expected_.size(); }
  [[nodiscard]] std::uint64_t arrived() const noexcept { return arrived_; }
  /// Packets that later ones have overtaken.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

  /// Nothing is on its way any more. Returns how many packets are lost with that.
  /// \pre the model allows it
  std::size_t give_up() {
    assert(losses_ == net_losses::allowed);
    const std::size_t count = expected_.size();
    expected_.clear();
    lost_ += count;
    return count;
  }

 private:
  struct packet {
    std::uint32_t sequence = 0;
    std::size_t bytes = 0;
    net::packet_info info;
  };

  [[nodiscard]] static std::string of(std::uint32_t number) {
    return "packet " + std::to_string(number);
  }

  std::optional<std::string> difference(const packet& wanted, std::span<const std::byte> bytes,
                                        const net::packet_info& info) {
    const std::string name = of(wanted.sequence);
    if (bytes.size() != wanted.bytes) {
      return name + " has " + std::to_string(bytes.size()) + " bytes of " +
             std::to_string(wanted.bytes);
    }
    content_.resize(bytes.size());
    make_frame(content_, stream_, wanted.sequence);
    const auto wrong = std::mismatch(content_.begin(), content_.end(), bytes.begin()).first;
    if (wrong != content_.end()) {
      return name + " differs at byte " + std::to_string(wrong - content_.begin()) + " of " +
             std::to_string(wanted.bytes);
    }
    const auto compare = [&name](std::string_view what, std::uint32_t is,
                                 std::uint32_t should) -> std::optional<std::string> {
      if (is == should) {
        return std::nullopt;
      }
      return name + " has the " + std::string(what) + " " + std::to_string(is) + " in place of " +
             std::to_string(should);
    };
    const net::flow_hash hash = hashes_ ? wanted.info.hash : net::flow_hash{};
    for (const auto& result : {compare("checksum state", static_cast<std::uint32_t>(info.checksum),
                                       static_cast<std::uint32_t>(wanted.info.checksum)),
                               compare("segmentation", static_cast<std::uint32_t>(info.gso),
                                       static_cast<std::uint32_t>(wanted.info.gso)),
                               compare("segment size", info.gso_size, wanted.info.gso_size),
                               compare("hash algorithm", info.hash.algorithm, hash.algorithm),
                               compare("hash type", info.hash.type, hash.type),
                               compare("hash", info.hash.value, hash.value)}) {
      if (result) {
        return result;
      }
    }
    return std::nullopt;
  }

  std::uint8_t stream_;
  net_losses losses_;
  bool hashes_;
  std::uint32_t next_ = 0;
  std::deque<packet> expected_;
  std::uint64_t arrived_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<std::byte> content_;
};

}  // namespace pvring::testing
