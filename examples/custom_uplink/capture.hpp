// SPDX-License-Identifier: MIT
// An uplink of one's own: it hands everything on to another one, and writes what passes into a file
// that Wireshark opens.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <pvring/net/uplink.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

/// A pcap file. All queues of a device write into it, so there is a lock: this is for looking, not
/// for speed.
class pcap_file {
 public:
  explicit pcap_file(const std::string& path)
      : file_(std::fopen(path.c_str(), "wbe"), &std::fclose) {
    if (!file_) {
      throw std::runtime_error("cannot write " + path);
    }
    const struct {
      std::uint32_t magic = 0xa1b2c3d4;
      std::uint16_t major = 2;
      std::uint16_t minor = 4;
      std::uint32_t zone = 0;
      std::uint32_t accuracy = 0;
      std::uint32_t longest = pvring::net::max_frame_bytes;
      std::uint32_t link = 1;  // Ethernet
    } head;
    std::fwrite(&head, sizeof head, 1, file_.get());
  }

  void write(std::span<const iovec> parts) noexcept {
    std::uint32_t length = 0;
    for (const iovec& part : parts) {
      length += static_cast<std::uint32_t>(part.iov_len);
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    const std::uint32_t head[4] = {static_cast<std::uint32_t>(microseconds / 1'000'000),
                                   static_cast<std::uint32_t>(microseconds % 1'000'000), length,
                                   length};
    const std::lock_guard lock(mutex_);
    std::fwrite(head, sizeof head, 1, file_.get());
    for (const iovec& part : parts) {
      std::fwrite(part.iov_base, part.iov_len, 1, file_.get());
    }
    ++frames_;
  }
  [[nodiscard]] std::uint64_t frames() const {
    const std::lock_guard lock(mutex_);
    return frames_;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  mutable std::mutex mutex_;
  std::uint64_t frames_ = 0;
};

/// \tparam To the uplink that the packets really go to
template <pvring::net::uplink To>
class capture {
 public:
  static constexpr bool keeps_flows = To::keeps_flows;

  class port {
   public:
    port(typename To::port to, pcap_file& file) : to_(std::move(to)), file_(&file) {}
    [[nodiscard]] int transmit(std::span<const iovec> bytes,
                               const pvring::net::packet_info& info) noexcept {
      file_->write(bytes);
      return to_.transmit(bytes, info);
    }
    [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into,
                                         pvring::net::packet_info& info) noexcept {
      const std::ptrdiff_t length = to_.receive(into, info);
      if (length > 0) {
        const iovec frame{into.data(), static_cast<std::size_t>(length)};
        file_->write({&frame, 1});
      }
      return length;
    }
    [[nodiscard]] int fd() noexcept { return to_.fd(); }
    [[nodiscard]] bool arm() noexcept { return to_.arm(); }
    void disarm() noexcept { to_.disarm(); }

   private:
    typename To::port to_;
    pcap_file* file_;
  };

  capture(To to, const std::string& path) : to_(std::move(to)), file_(path) {}

  [[nodiscard]] std::uint32_t queues() const noexcept { return to_.queues(); }
  [[nodiscard]] port open(std::uint32_t queue) { return {to_.open(queue), file_}; }
  void set_offloads(pvring::net::offloads with) { to_.set_offloads(with); }
  void set_carrier(bool up) noexcept { to_.set_carrier(up); }
  [[nodiscard]] std::uint32_t mtu() const noexcept { return to_.mtu(); }
  [[nodiscard]] std::uint64_t frames() const { return file_.frames(); }

 private:
  To to_;
  pcap_file file_;
};
