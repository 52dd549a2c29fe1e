// SPDX-License-Identifier: MIT
// Joins two devices of one host: what one guest transmits, the other receives. Super-frames and
// blank checksums pass as they are, since nothing between them needs to be a wire.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/counter.hpp"
#include "../base/unique_fd.hpp"
#include "frame.hpp"
#include "packet.hpp"
#include "uplink.hpp"

namespace pvring::net {

namespace detail {

/// One queue's way in one direction: one thread puts frames, one takes them. It has a fixed size
/// and no lock.
///
/// No wake-up is lost: the taker sets `armed_` and then looks; the putter puts and then takes
/// `armed_` away. Both are read-modify-writes of one object, so one comes first. If it is the
/// taker's, the putter finds `armed_` set and wakes. If it is the putter's, the taker's acquires
/// what the putter's released, and its look finds the frame.
class frame_pipe {
 public:
  explicit frame_pipe(std::size_t bytes)
      : bytes_(bytes), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_) {
      throw std::system_error(errno, std::generic_category(), "eventfd of a pair of uplinks");
    }
  }

  // ---- the putter
  [[nodiscard]] bool put(std::span<const iovec> parts, const packet_info& info) noexcept {
    mark head{0, info};
    for (const iovec& part : parts) {
      head.length += static_cast<std::uint32_t>(part.iov_len);
    }
    if (bytes_.write_available() < sizeof head + head.length) {
      return false;
    }
    push(&head, sizeof head);
    for (const iovec& part : parts) {
      push(part.iov_base, part.iov_len);
    }
    if (armed_.exchange(false, std::memory_order_acq_rel)) {
      const std::uint64_t one = 1;
      // Fails only when the counter is full, and then the descriptor is readable anyway.
      [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
    }
    return true;
  }

  // ---- the taker
  /// A frame's length, or 0. \pre `into` has room for any
  [[nodiscard]] std::size_t take(std::span<std::byte> into, packet_info& info) noexcept {
    if (!there()) {
      return 0;
    }
    has_head_ = false;
    (void)bytes_.pop(into.data(), head_.length);
    info = head_.info;
    return head_.length;
  }
  [[nodiscard]] bool arm() noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto cleared = ::read(wake_.get(), &count, sizeof count);
    armed_.exchange(true, std::memory_order_acq_rel);
    return there();
  }
  void disarm() noexcept { armed_.exchange(false, std::memory_order_acq_rel); }
  [[nodiscard]] int fd() const noexcept { return wake_.get(); }

  /// Whether somebody takes.
  std::atomic<bool> open{false};
  counter undeliverable;  // counted by the taker

 private:
  struct mark {
    std::uint32_t length;
    packet_info info;
  };
  static_assert(std::is_trivially_copyable_v<mark>);

  void push(const void* from, std::size_t length) noexcept {
    (void)bytes_.push(static_cast<const std::byte*>(from), length);
  }
  // A frame comes in parts; it is there when all of it is.
  [[nodiscard]] bool there() noexcept {
    if (!has_head_ && bytes_.read_available() >= sizeof head_) {
      std::byte raw[sizeof head_];
      (void)bytes_.pop(raw, sizeof raw);
      std::memcpy(&head_, raw, sizeof head_);
      has_head_ = true;
    }
    return has_head_ && bytes_.read_available() >= head_.length;
  }

  boost::lockfree::spsc_queue<std::byte> bytes_;
  unique_fd wake_;
  std::atomic<bool> armed_{false};
  mark head_{};
  bool has_head_ = false;
};

struct pair_side {
  std::vector<std::unique_ptr<frame_pipe>> pipes;  // towards this side
  offloads takes;                                  // this side's guest
};
struct pair_state {
  pair_side sides[2];
};

}  // namespace detail

/// One end of a pair. Queue i of one guest is joined to queue i of the other, so both need as many.
class pair_uplink {
 public:
  static constexpr bool keeps_flows = true;

  class port {
   public:
    port(std::shared_ptr<detail::pair_state> state, std::size_t side, std::uint32_t queue)
        : state_(std::move(state)),
          own_(&state_->sides[side]),
          in_(own_->pipes[queue].get()),
          out_(state_->sides[1 - side].pipes[queue].get()) {
      in_->open.store(true, std::memory_order_release);
    }
    port(port&&) noexcept = default;
    port& operator=(port&&) = delete;
    ~port() {
      if (state_) {
        in_->open.store(false, std::memory_order_release);
      }
    }

    /// -ENOTCONN: nobody is at the other end of this queue.
    [[nodiscard]] int transmit(std::span<const iovec> bytes, const packet_info& info) noexcept {
      if (!out_->open.load(std::memory_order_acquire)) {
        return -ENOTCONN;
      }
      return out_->put(bytes, info) ? 0 : -EAGAIN;
    }
    [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into, packet_info& info) noexcept {
      const std::size_t length = in_->take(into, info);
      if (length == 0 || adapt(into.first(length), info)) {
        return static_cast<std::ptrdiff_t>(length);
      }
      in_->undeliverable.add();
      return -EMSGSIZE;
    }
    [[nodiscard]] int fd() const noexcept { return in_->fd(); }
    [[nodiscard]] bool arm() noexcept { return in_->arm(); }
    void disarm() noexcept { in_->disarm(); }

   private:
    // To what this side's guest takes. False: a super-frame that it does not, and nobody here cuts
    // it.
    [[nodiscard]] bool adapt(std::span<std::byte> frame, packet_info& info) const noexcept {
      const offloads& takes = own_->takes;
      if ((info.gso == gso::tcpv4 && !takes.gso_tcpv4) ||
          (info.gso == gso::tcpv6 && !takes.gso_tcpv6)) {
        return false;
      }
      if (info.checksum == checksum::blank && (!takes.checksum_v4 || !takes.checksum_v6)) {
        const auto where = find_transport(frame, frame.size());
        if (where && !(where->ipv6 ? takes.checksum_v6 : takes.checksum_v4)) {
          (void)fill_checksum(frame);
          info.checksum = checksum::validated;
        }
      }
      return true;
    }

    std::shared_ptr<detail::pair_state> state_;
    const detail::pair_side* own_;
    detail::frame_pipe* in_;
    detail::frame_pipe* out_;
  };

  /// Both ends. \param bytes that wait for a guest at most, per queue; the rest is dropped at the
  /// sender
  [[nodiscard]] static std::pair<pair_uplink, pair_uplink> make(std::uint32_t queues = 1,
                                                                std::size_t bytes = 1024 * 1024,
                                                                std::uint32_t mtu = 1500) {
    auto state = std::make_shared<detail::pair_state>();
    for (detail::pair_side& side : state->sides) {
      for (std::uint32_t i = 0; i < queues; ++i) {
        side.pipes.push_back(std::make_unique<detail::frame_pipe>(bytes + max_frame_bytes));
      }
    }
    return {pair_uplink(state, 0, mtu), pair_uplink(state, 1, mtu)};
  }

  [[nodiscard]] std::uint32_t queues() const noexcept {
    return static_cast<std::uint32_t>(state_->sides[side_].pipes.size());
  }
  [[nodiscard]] port open(std::uint32_t queue) {
    if (queue >= queues()) {
      throw std::system_error(EINVAL, std::generic_category(),
                              "queue " + std::to_string(queue) + " of a pair of uplinks with " +
                                  std::to_string(queues()));
    }
    return {state_, side_, queue};
  }
  void set_offloads(offloads with) noexcept { state_->sides[side_].takes = with; }
  void set_carrier(bool /*up*/) noexcept {}  // a port that is closed takes nothing: see transmit
  [[nodiscard]] std::uint32_t mtu() const noexcept { return mtu_; }

 private:
  pair_uplink(std::shared_ptr<detail::pair_state> state, std::size_t side, std::uint32_t mtu)
      : state_(std::move(state)), side_(side), mtu_(mtu) {}

  std::shared_ptr<detail::pair_state> state_;
  std::size_t side_;
  std::uint32_t mtu_;
};

static_assert(uplink<pair_uplink>);

}  // namespace pvring::net
