// SPDX-License-Identifier: MIT
// Signals as a descriptor. They are blocked before the first thread starts, since every thread
// inherits that.
#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <pvring/base/unique_fd.hpp>
#include <system_error>

namespace tool {

class signals {
 public:
  signals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
      ::sigaddset(&wanted, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    // A reader of ours that goes away is an error of that write, and not the end of everything.
    (void)std::signal(SIGPIPE, SIG_IGN);
    fd_.reset(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!fd_) {
      throw std::system_error(errno, std::generic_category(), "signalfd");
    }
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The next one that came.
  [[nodiscard]] std::optional<int> next() const noexcept {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info
               ? std::optional<int>(static_cast<int>(info.ssi_signo))
               : std::nullopt;
  }

 private:
  pvring::unique_fd fd_;
};

}  // namespace tool
