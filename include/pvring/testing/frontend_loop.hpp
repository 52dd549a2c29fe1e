// SPDX-License-Identifier: MIT
// What a test does with a whole frontend, whatever its protocol: process until something holds,
// connect, close. Waits for the store, and gives up after a time.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace pvring::testing {

/// \tparam Frontend derives from it; has `fd`, `process`, `connected`, `released`, `begin_close` and
/// `error`
template <class Frontend>
class frontend_loop {
 public:
  using clock = std::chrono::steady_clock;

  /// Processes until `done()` is true. False when the time is over first.
  template <class Done>
  bool process_until(Done&& done, std::chrono::milliseconds timeout) {
    const auto end = clock::now() + timeout;
    for (;;) {
      self().process();
      if (done()) {
        return true;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
      if (left.count() <= 0) {
        return false;
      }
      pollfd ready{.fd = self().fd(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, static_cast<int>(left.count())) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "waiting for the store");
      }
    }
  }

  /// Processes until it is connected. False when the device was closed instead, or the time is
  /// over: see `error()`.
  bool connect(std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    return process_until([this] { return self().connected() || !self().error().empty(); },
                         timeout) &&
           self().connected();
  }

  /// Closes and processes until both ends are Closed and everything is freed. False when the time
  /// is over first.
  bool close(std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    self().begin_close();
    return process_until([this] { return self().released(); }, timeout);
  }

 private:
  friend Frontend;
  frontend_loop() = default;

  [[nodiscard]] Frontend& self() noexcept { return static_cast<Frontend&>(*this); }
};

}  // namespace pvring::testing
