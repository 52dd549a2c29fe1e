// SPDX-License-Identifier: MIT
// A watch that ends with its owner, and the descriptor that tells an event loop about watches and
// about other threads. Both exist so that a port can say "call me" in one way.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "../base/log.hpp"
#include "../base/unique_fd.hpp"
#include "../platform/store.hpp"

namespace pvring::xenbus {

/// A registered watch. It may be ended while its own event is being handled: events carry nothing
/// of it but text.
template <platform::store Store>
class scoped_watch {
 public:
  /// \throws std::system_error as the store's `watch`
  scoped_watch(Store& store, std::string path, std::string token)
      : store_(&store), path_(std::move(path)), token_(std::move(token)) {
    store_->watch(std::string_view(path_), std::string_view(token_));
  }
  scoped_watch(scoped_watch&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)),
        path_(std::move(other.path_)),
        token_(std::move(other.token_)) {}
  scoped_watch& operator=(scoped_watch&&) = delete;
  scoped_watch(const scoped_watch&) = delete;
  scoped_watch& operator=(const scoped_watch&) = delete;
  ~scoped_watch() {
    if (store_ == nullptr) {
      return;
    }
    try {
      store_->unwatch(std::string_view(path_), std::string_view(token_));
    } catch (const std::exception& e) {
      // A store that is gone keeps no watches either.
      log::write(log::level::debug, e.what());
    }
  }

 private:
  Store* store_;
  std::string path_;
  std::string token_;
};

/// One descriptor that is readable while another one is, or after `signal`.
class wake_descriptor {
 public:
  /// \throws std::system_error when the process has no descriptors left
  explicit wake_descriptor(int other)
      : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), both_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!event_ || !both_ || !add(event_.get()) || !add(other)) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot make a descriptor for store events; is the limit of open "
                              "files (ulimit -n) used up?");
    }
  }

  [[nodiscard]] int fd() const noexcept { return both_.get(); }

  /// From any thread.
  void signal() const noexcept {
    const std::uint64_t one = 1;
    // It fails only when the count is at its maximum: then it is readable already.
    [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
  }

  /// Whether there was a signal since the last time.
  bool clear() const noexcept {
    std::uint64_t count = 0;
    return ::read(event_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }

 private:
  [[nodiscard]] bool add(int fd) const noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.fd = fd;
    return ::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &interest) == 0;
  }

  unique_fd event_;
  unique_fd both_;
};

}  // namespace pvring::xenbus
