// SPDX-License-Identifier: MIT
// How other processes join an emulated machine: whoever connects to the socket is sent it.
#pragma once

#include <pvring/base/unique_fd.hpp>
#include <pvring/platform/emulated/host.hpp>
#include <string>

#include "event_loop.hpp"

namespace tool {

/// Listens at a path, for this user only; removes the path at the end.
class unix_listener {
 public:
  /// \param option for messages. \throws configuration_error where the path cannot be used
  unix_listener(std::string option, std::string path);
  unix_listener(const unix_listener&) = delete;
  unix_listener& operator=(const unix_listener&) = delete;
  ~unix_listener();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// A peer that has connected, if there is one.
  [[nodiscard]] pvring::unique_fd accept() const noexcept;

 private:
  std::string path_;
  pvring::unique_fd fd_;
};

/// The machine of the daemon that listens at `path`. \throws command_error
[[nodiscard]] pvring::platform::emulated_host join_host(const std::string& path);

}  // namespace tool
