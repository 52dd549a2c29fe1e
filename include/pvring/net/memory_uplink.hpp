// SPDX-License-Identifier: MIT
// An uplink that ends in memory: what guests transmit is kept for whoever asks, and what is put in
// comes to the guest. For tests, and for programs that make and take packets themselves.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/unique_fd.hpp"
#include "packet.hpp"
#include "uplink.hpp"

namespace pvring::net {

/// A frame with what is known of it.
struct memory_frame {
  std::vector<std::byte> bytes;
  packet_info info;
  std::size_t head = 0;  ///< of what was transmitted: bytes of the first piece
};

/// Both ends of one queue, for any thread. It allocates: nothing for a data path that is measured.
class memory_lane {
 public:
  /// Frames that are kept of what the guest transmits; more find no room.
  explicit memory_lane(std::size_t most_frames = 4096)
      : most_frames_(most_frames), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_) {
      throw std::system_error(errno, std::generic_category(), "eventfd of a memory uplink");
    }
  }

  /// A frame for the guest.
  void put(memory_frame frame) {
    {
      const std::lock_guard lock(mutex_);
      to_guest_.push_back(std::move(frame));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }
  /// The oldest frame of what the guest transmitted.
  [[nodiscard]] std::optional<memory_frame> take() {
    const std::lock_guard lock(mutex_);
    if (from_guest_.empty()) {
      return std::nullopt;
    }
    memory_frame frame = std::move(from_guest_.front());
    from_guest_.pop_front();
    return frame;
  }
  /// Frames for the guest that it did not get yet.
  [[nodiscard]] std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return to_guest_.size();
  }
  /// What every transmit and every receive returns from now on; 0: they work.
  void fail(int transmit_error, int receive_error) {
    const std::lock_guard lock(mutex_);
    transmit_error_ = transmit_error;
    receive_error_ = receive_error;
  }

 private:
  friend class memory_uplink;

  const std::size_t most_frames_;
  unique_fd wake_;
  mutable std::mutex mutex_;
  std::deque<memory_frame> to_guest_;
  std::deque<memory_frame> from_guest_;
  int transmit_error_ = 0;
  int receive_error_ = 0;
};

class memory_uplink {
 public:
  static constexpr bool keeps_flows = true;

  class port {
   public:
    explicit port(memory_lane& lane) noexcept : lane_(&lane) {}

    [[nodiscard]] int transmit(std::span<const iovec> bytes, const packet_info& info) noexcept {
      const std::lock_guard lock(lane_->mutex_);
      if (lane_->transmit_error_ != 0) {
        return lane_->transmit_error_;
      }
      if (lane_->from_guest_.size() == lane_->most_frames_) {
        return -EAGAIN;
      }
      memory_frame frame{{}, info, bytes.empty() ? 0 : bytes.front().iov_len};
      for (const iovec& part : bytes) {
        const auto* const from = static_cast<const std::byte*>(part.iov_base);
        frame.bytes.insert(frame.bytes.end(), from, from + part.iov_len);
      }
      lane_->from_guest_.push_back(std::move(frame));
      return 0;
    }
    [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into, packet_info& info) noexcept {
      const std::lock_guard lock(lane_->mutex_);
      if (lane_->receive_error_ != 0) {
        return lane_->receive_error_;
      }
      if (lane_->to_guest_.empty()) {
        return 0;
      }
      const memory_frame frame = std::move(lane_->to_guest_.front());
      lane_->to_guest_.pop_front();
      if (frame.bytes.size() > into.size()) {
        return -EMSGSIZE;
      }
      std::memcpy(into.data(), frame.bytes.data(), frame.bytes.size());
      info = frame.info;
      return static_cast<std::ptrdiff_t>(frame.bytes.size());
    }
    [[nodiscard]] int fd() const noexcept { return lane_->wake_.get(); }
    [[nodiscard]] bool arm() noexcept {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto cleared = ::read(lane_->wake_.get(), &count, sizeof count);
      return lane_->waiting() != 0;
    }
    void disarm() noexcept {}

   private:
    memory_lane* lane_;
  };

  explicit memory_uplink(std::uint32_t queues = 1, std::uint32_t mtu = 1500) : mtu_(mtu) {
    for (std::uint32_t i = 0; i < queues; ++i) {
      lanes_.push_back(std::make_unique<memory_lane>());
    }
  }

  [[nodiscard]] std::uint32_t queues() const noexcept {
    return static_cast<std::uint32_t>(lanes_.size());
  }
  [[nodiscard]] port open(std::uint32_t queue) { return port(*lanes_.at(queue)); }
  void set_offloads(offloads with) noexcept { offloads_ = with; }
  void set_carrier(bool up) noexcept { carrier_ = up; }
  [[nodiscard]] std::uint32_t mtu() const noexcept { return mtu_; }

  /// The other end of a queue.
  [[nodiscard]] memory_lane& lane(std::uint32_t queue) { return *lanes_.at(queue); }
  [[nodiscard]] const offloads& agreed() const noexcept { return offloads_; }
  [[nodiscard]] bool carrier() const noexcept { return carrier_; }

 private:
  std::uint32_t mtu_;
  std::vector<std::unique_ptr<memory_lane>> lanes_;
  offloads offloads_;
  bool carrier_ = false;
};

static_assert(uplink<memory_uplink>);

}  // namespace pvring::net
