// SPDX-License-Identifier: MIT
// What the tests of the emulated platform share: a machine with one guest, and child processes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "pvring/platform/emulated.hpp"

namespace pvring::platform::test {

inline bool is_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

/// A machine with guest 3 and the platform of domain 0.
class EmulatedMachine : public ::testing::Test {
 public:
  static constexpr domain_id guest_id = 3;

  /// `count` pages side by side, granted to domain 0; what they hold is `fill` + the page's number.
  std::vector<grant_reference> grant_pages(std::size_t count, access how = access::read_write,
                                           char fill = 'a') {
    memory = guest.allocate_pages(count);
    std::vector<grant_reference> references;
    for (std::size_t i = 0; i < count; ++i) {
      std::memset(memory + i * page_size, fill + static_cast<char>(i), page_size);
      references.push_back(guest.grant(0, memory + i * page_size, how));
    }
    return references;
  }

  static copy_operation piece(void* local, grant_reference reference, std::uint16_t offset,
                              std::uint16_t length) {
    return {.local = static_cast<std::byte*>(local),
            .reference = reference,
            .offset = offset,
            .length = length};
  }

  emulated_host machine = emulated_host::create({.domains = 4,
                                                 .pages_per_domain = 4096,
                                                 .grants_per_domain = 4096,
                                                 .grant_handles = 8,
                                                 .event_handles = 12,
                                                 .store_connections = 12,
                                                 .store_nodes = 2048});
  emulated_guest guest = machine.create_domain(guest_id);
  emulated dom0{machine};
  std::byte* memory = nullptr;  ///< of the last `grant_pages`
};

/// A child that runs `body` and then waits to be killed, or ends at once.
class child_process {
 public:
  enum class then { wait, end };

  template <class Body>
  explicit child_process(Body body, then what = then::wait) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) {
      throw std::runtime_error("pipe");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      (void)::close(ready[0]);
      char result = 1;
      try {
        result = body() ? 0 : 1;
      } catch (const std::exception& e) {
        std::fprintf(stderr, "child: %s\n", e.what());
      }
      (void)!::write(ready[1], &result, 1);
      while (what == then::wait) {
        ::pause();
      }
      ::_exit(result);
    }
    (void)::close(ready[1]);
    char result = 1;
    succeeded_ = ::read(ready[0], &result, 1) == 1 && result == 0;
    (void)::close(ready[0]);
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    if (pid_ > 0) {
      kill();
      bury();
    }
  }

  /// Whether the body returned true.
  [[nodiscard]] bool succeeded() const { return succeeded_; }
  /// Kills the child, and leaves a zombie.
  void kill() const {
    (void)::kill(pid_, SIGKILL);
    siginfo_t info{};
    (void)::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void bury() {
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool succeeded_ = false;
};

/// Expects `f` to throw a std::system_error with `code` whose message holds `text`.
template <class F>
void expect_system_error(int code, std::string_view text, F&& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const std::system_error& e) {
    EXPECT_EQ(e.code().value(), code) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(text), std::string_view::npos) << e.what();
  }
}

}  // namespace pvring::platform::test
