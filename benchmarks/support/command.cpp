// SPDX-License-Identifier: MIT
// Starting programs with their stdin and output in temporary files: a pipe would have to be drained
// while writing the other.
#include "command.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace bench {
namespace {

[[noreturn]] void give_up(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class memory_file {
 public:
  explicit memory_file(const char* name) : fd_(::memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0) {
      give_up("memfd_create");
    }
  }
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;
  ~memory_file() { (void)::close(fd_); }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

command_result run_command(const std::vector<std::string>& arguments, std::string_view input) {
  const memory_file in("input");
  const memory_file out("output");
  if (!input.empty() &&
      ::write(in.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size())) {
    give_up("writing a program's input");
  }
  (void)::lseek(in.get(), 0, SEEK_SET);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));  // execvp is older than const
  }
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) {
    give_up("fork");
  }
  if (child == 0) {
    (void)::dup2(in.get(), STDIN_FILENO);
    (void)::dup2(out.get(), STDOUT_FILENO);
    (void)::dup2(out.get(), STDERR_FILENO);
    (void)::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  command_result outcome;
  int status = 0;
  rusage used{};
  while (::wait4(child, &status, 0, &used) < 0) {
    if (errno != EINTR) {
      give_up("wait4");
    }
  }
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.user_seconds =
      static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) * 1e-6;
  (void)::lseek(out.get(), 0, SEEK_SET);
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(out.get(), buffer, sizeof buffer);
    if (got <= 0) {
      break;
    }
    outcome.output.append(buffer, static_cast<std::size_t>(got));
  }
  return outcome;
}

bool has_command(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string_view left = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const std::size_t colon = left.find(':');
    const std::string candidate = std::string(left.substr(0, colon)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) {
      return true;
    }
    if (colon == std::string_view::npos) {
      return false;
    }
    left.remove_prefix(colon + 1);
  }
}

}  // namespace bench
