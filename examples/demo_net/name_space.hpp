// SPDX-License-Identifier: MIT
// A network namespace: the demo's guest as its kernel sees it. It goes with the object, and with it
// whatever was made in it.
#pragma once

#include <functional>
#include <pvring/base/unique_fd.hpp>
#include <string>

namespace demo_net {

class name_space {
 public:
  /// \throws no_kernel where it is not allowed
  name_space();

  /// Runs `body` on a thread in the namespace, and waits for it. What it throws is thrown here.
  void inside(const std::function<void()>& body) const;
  /// Runs a command in the namespace and returns what it printed. \throws std::runtime_error with
  /// that when it fails
  [[nodiscard]] std::string command(const std::string& line) const;

 private:
  pvring::unique_fd handle_;
};

}  // namespace demo_net
