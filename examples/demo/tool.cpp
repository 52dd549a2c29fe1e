// SPDX-License-Identifier: MIT
// Starting programs with posix_spawn and reading their output from a pipe until it ends.
#include "tool.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <pvring/base/unique_fd.hpp>
#include <sstream>
#include <system_error>

#include "settings.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace demo {

std::string find_tool(const std::string& name, const std::string& package) {
  const char* path = std::getenv("PATH");
  std::string searched = path != nullptr ? path : "";
  searched += ":/usr/sbin:/sbin";
  std::istringstream folders(searched);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = folder;
    file += '/';
    file += name;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  throw missing_tool(name + " is not installed: the Debian package is " + package);
}

tool_result run_tool(const std::string& path, const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "a pipe for " + path);
  }
  const pvring::unique_fd from(ends[0]);
  pvring::unique_fd to(ends[1]);

  std::vector<char*> words;
  std::string program = path;
  std::vector<std::string> copies = arguments;
  words.push_back(program.data());
  for (std::string& argument : copies) {
    words.push_back(argument.data());
  }
  words.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDERR_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, path.c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw std::system_error(failed, std::generic_category(), "starting " + path);
  }
  to.reset();

  tool_result result;
  std::array<char, 4096> text{};
  for (;;) {
    const ssize_t got = ::read(from.get(), text.data(), text.size());
    if (got > 0) {
      result.output.append(text.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      break;
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace demo
