// SPDX-License-Identifier: MIT
// Namespaces belong to threads: each thing that is done in one has a thread of its own.
#include "name_space.hpp"

#include <fcntl.h>
#include <sched.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

#include "settings.hpp"

namespace demo_net {

name_space::name_space() {
  int failed = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      failed = errno;
      return;
    }
    handle_.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    failed = handle_ ? 0 : errno;
  }).join();
  if (failed != 0) {
    throw no_kernel(std::string("no network namespace can be made (") + std::strerror(failed) +
                    "): it takes CAP_SYS_ADMIN");
  }
}

void name_space::inside(const std::function<void()>& body) const {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      if (::setns(handle_.get(), CLONE_NEWNET) != 0) {
        throw std::runtime_error(std::string("entering a namespace: ") + std::strerror(errno));
      }
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

std::string name_space::command(const std::string& line) const {
  std::string printed;
  int status = -1;
  inside([&] {
    // Bounded: whatever happens to the network, the demo ends.
    FILE* const pipe = ::popen(("timeout 120 " + line + " 2>&1").c_str(), "re");
    if (pipe == nullptr) {
      throw std::runtime_error("running " + line + ": " + std::strerror(errno));
    }
    std::array<char, 4096> some{};
    while (std::fgets(some.data(), some.size(), pipe) != nullptr) {
      printed += some.data();
    }
    status = ::pclose(pipe);
  });
  if (status != 0) {
    throw std::runtime_error(line + " failed: " + printed);
  }
  return printed;
}

}  // namespace demo_net
