// SPDX-License-Identifier: MIT
// One connection to an NBD server: made within a time, described, and watched after its end for
// when the server is done with it too.
#pragma once

#include <fcntl.h>
#include <libnbd.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "../base/error.hpp"
#include "../base/unique_fd.hpp"

namespace pvring::aio::detail {

/// What a server says of its disk.
struct nbd_traits {
  std::uint64_t bytes = 0;
  bool read_only = false;
  bool can_flush = false;
  bool can_fua = false;
  bool can_trim = false;
  bool can_zero = false;
  bool many_connections = false;  ///< a flush on one of them covers the writes of all
  std::uint32_t least = 1;        ///< bytes: what offsets and lengths are multiples of
  std::uint32_t preferred = 4096;
  std::uint32_t most = 32U << 20U;  ///< bytes of a read or write
};

class nbd_link {
 public:
  using clock = std::chrono::steady_clock;

  nbd_link() = default;

  /// Blocks, at most about as long as `limit` beside what resolving a name takes.
  /// \param give_up ends it early, from another thread
  /// \throws configuration_error that names the URI and what was wrong
  nbd_link(const std::string& uri, std::chrono::milliseconds limit,
           const std::atomic<bool>* give_up = nullptr)
      : handle_(::nbd_create()) {
    if (!handle_) {
      refuse(uri, ::nbd_get_error());
    }
    // Every byte of a read that succeeds comes from the server.
    ::nbd_set_pread_initialize(get(), false);
    ::nbd_set_uri_allow_transports(get(), LIBNBD_ALLOW_TRANSPORT_TCP | LIBNBD_ALLOW_TRANSPORT_UNIX);
    // Answers could wait inside the library for encryption, where no descriptor tells of them.
    ::nbd_set_uri_allow_tls(get(), LIBNBD_TLS_DISABLE);
    if (::nbd_aio_connect_uri(get(), uri.c_str()) < 0) {
      refuse(uri, ::nbd_get_error());
    }
    const clock::time_point end = clock::now() + limit;
    while (::nbd_aio_is_ready(get()) <= 0) {
      if (::nbd_aio_is_dead(get()) != 0 || ::nbd_aio_is_closed(get()) != 0) {
        refuse(uri, ::nbd_get_error());
      }
      if (clock::now() >= end || (give_up != nullptr && give_up->load(std::memory_order_relaxed))) {
        refuse(uri, "it does not answer");
      }
      step();
    }
    read_traits(uri);
    end_.reset(::fcntl(::nbd_aio_get_fd(get()), F_DUPFD_CLOEXEC, 0));
    if (!end_) {
      refuse(uri, "no descriptor is left");
    }
  }

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] nbd_handle* get() const noexcept { return handle_.get(); }
  [[nodiscard]] const nbd_traits& traits() const noexcept { return traits_; }
  /// The connection's socket. It stays open after close(), to see the server's end.
  [[nodiscard]] int fd() const noexcept { return end_.get(); }

  [[nodiscard]] bool dead() const noexcept {
    return ::nbd_aio_is_ready(get()) <= 0 && ::nbd_aio_is_processing(get()) <= 0;
  }

  /// What the last call said when the connection died. An error of the network says nothing of the
  /// server, which may still have requests of ours: its end will never be seen.
  void died_of(int error) noexcept {
    constexpr std::array<int, 7> unseen = {ETIMEDOUT, EHOSTUNREACH, EHOSTDOWN, ENETUNREACH,
                                           ENETDOWN,  ENETRESET,    ENOBUFS};
    seen_ = seen_ && std::ranges::find(unseen, error) == unseen.end();
  }

  /// Ends our side. No buffer is touched afterwards; what the server has of requests it may still
  /// apply.
  void close() noexcept {
    if (handle_) {
      (void)::shutdown(end_.get(), SHUT_WR);
      handle_.reset();
    }
  }

  /// After close(): whether the server has closed its side, and so is done with every request of
  /// this connection.
  [[nodiscard]] bool ended() noexcept {
    std::array<std::byte, 4096> dropped;
    while (!ended_ && seen_ && end_) {
      const ssize_t n = ::recv(end_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
      if (n > 0 || (n < 0 && errno == EINTR)) {
        continue;  // answers that nobody waits for any more
      }
      if (n < 0 && errno != ECONNRESET && errno != EPIPE) {
        if (errno != EAGAIN) {
          died_of(errno);
        }
        break;
      }
      ended_ = true;
    }
    return ended_;
  }

 private:
  struct closer {
    void operator()(nbd_handle* handle) const noexcept { ::nbd_close(handle); }
  };

  [[noreturn]] static void refuse(const std::string& uri, const char* why) {
    throw configuration_error("NBD server " + uri + ": " +
                              (why != nullptr ? why : "no connection") +
                              ": check the URI, and that the server runs");
  }

  /// Waits a little, and does what became possible.
  void step() const noexcept {
    const unsigned wants = ::nbd_aio_get_direction(get());
    pollfd p{::nbd_aio_get_fd(get()), 0, 0};
    p.events = static_cast<short>(((wants & LIBNBD_AIO_DIRECTION_READ) != 0 ? POLLIN : 0) |
                                  ((wants & LIBNBD_AIO_DIRECTION_WRITE) != 0 ? POLLOUT : 0));
    (void)::poll(&p, 1, 20);
    if ((wants & LIBNBD_AIO_DIRECTION_READ) != 0 && (p.revents & (POLLIN | POLLHUP)) != 0) {
      (void)::nbd_aio_notify_read(get());
    } else if ((wants & LIBNBD_AIO_DIRECTION_WRITE) != 0 &&
               (p.revents & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      (void)::nbd_aio_notify_write(get());
    }
  }

  void read_traits(const std::string& uri) {
    const std::int64_t bytes = ::nbd_get_size(get());
    if (bytes < 512) {
      refuse(uri, bytes < 0 ? ::nbd_get_error() : "its disk is empty");
    }
    const auto size = [this](int kind, std::uint32_t otherwise) {
      const std::int64_t n = ::nbd_get_block_size(get(), kind);
      return n > 0 ? static_cast<std::uint32_t>(std::min<std::int64_t>(n, 1U << 30U)) : otherwise;
    };
    traits_ = {.bytes = static_cast<std::uint64_t>(bytes),
               .read_only = ::nbd_is_read_only(get()) > 0,
               .can_flush = ::nbd_can_flush(get()) > 0,
               .can_fua = ::nbd_can_fua(get()) > 0,
               .can_trim = ::nbd_can_trim(get()) > 0,
               .can_zero = ::nbd_can_zero(get()) > 0,
               .many_connections = ::nbd_can_multi_conn(get()) > 0,
               .least = size(LIBNBD_SIZE_MINIMUM, 1),
               .preferred = size(LIBNBD_SIZE_PREFERRED, 4096),
               .most = std::min(size(LIBNBD_SIZE_MAXIMUM, 32U << 20U), 32U << 20U)};
    if (traits_.least > 512) {
      refuse(uri, "its disk has blocks larger than a sector of 512 bytes");
    }
  }

  std::unique_ptr<nbd_handle, closer> handle_;
  unique_fd end_;
  nbd_traits traits_;
  bool ended_ = false;
  bool seen_ = true;  // whether the end can be seen at all
};

}  // namespace pvring::aio::detail
