// SPDX-License-Identifier: MIT
// An nbdkit on a Unix socket, for tests: started, stalled, killed, started again.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvring/base/unique_fd.hpp>

namespace test {

class nbd_server {
 public:
  /// \param arguments of nbdkit, behind those that name the socket: filters, plugin, its parameters
  explicit nbd_server(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
    if (::mkdtemp(directory_.data()) == nullptr) {
      std::abort();
    }
    start();
  }
  nbd_server(const nbd_server&) = delete;
  nbd_server& operator=(const nbd_server&) = delete;
  ~nbd_server() {
    stop();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  [[nodiscard]] std::string uri() const { return "nbd+unix:///?socket=" + socket(); }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::vector<std::string>& arguments() { return arguments_; }

  /// Starts it anew, as a plugin of its own that a shell script is; see nbdkit-sh-plugin(3).
  /// \param cases of a `case $1 in`, without the last
  void become_script(const std::string& cases) {
    const std::string path = directory_ + "/script";
    std::ofstream(path) << "#!/bin/sh\ncase $1 in " << cases << " *) exit 2 ;; esac\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    stop();
    arguments_ = {"sh", path};
    start();
  }

  /// Waits until it listens.
  void start() {
    ::unlink(socket().c_str());
    std::vector<std::string> words = {"nbdkit", "-f", "--exit-with-parent", "-U", socket()};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t to;
    ::posix_spawn_file_actions_init(&to);
    ::posix_spawn_file_actions_addopen(&to, 2, (directory_ + "/log").c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (::posix_spawnp(&pid_, "nbdkit", &to, nullptr, argv.data(), environ) != 0) {
      std::abort();
    }
    ::posix_spawn_file_actions_destroy(&to);
    for (int i = 0; i < 1000 && !listens(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  /// Waits until none of its threads does anything any more.
  void stall() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void go_on() const { ::kill(pid_, SIGCONT); }

  /// Kills it, and waits until it is gone.
  void stop() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }

 private:
  [[nodiscard]] std::string socket() const { return directory_ + "/socket"; }

  [[nodiscard]] bool listens() const {
    const pvring::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    socket().copy(where.sun_path, sizeof where.sun_path - 1);
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
  }

  std::string directory_ = "/tmp/pvring_nbd_XXXXXX";
  std::vector<std::string> arguments_;
  pid_t pid_ = -1;
};

}  // namespace test
