// SPDX-License-Identifier: MIT
#include "host_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <pvring/base/error.hpp>
#include <utility>

#include "exit_codes.hpp"

namespace tool {
namespace {

sockaddr_un address_of(const std::string& option, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw pvring::configuration_error("option " + option + " is '" + path +
                                      "': use a path of 1 to " +
                                      std::to_string(sizeof address.sun_path - 1) + " characters");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

pvring::unique_fd make_socket() {
  return pvring::unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

}  // namespace

unix_listener::unix_listener(std::string option, std::string path) : path_(std::move(path)) {
  const sockaddr_un address = address_of(option, path_);
  const auto refuse = [&](const std::string& why) {
    throw pvring::configuration_error("option " + option + " is '" + path_ + "': " + why);
  };
  struct ::stat there {};
  if (::lstat(path_.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      refuse("there is something that is no socket; name another path");
    }
    const pvring::unique_fd other = make_socket();
    if (::connect(other.get(), generic(address), sizeof address) == 0) {
      refuse("another process listens there; end it, or name another path");
    }
    (void)::unlink(path_.c_str());  // left by a process that was killed
  }
  fd_ = make_socket();
  (void)::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(fd_.get(), generic(address), sizeof address) == 0;
  const int error = errno;
  (void)::umask(before);
  if (!bound || ::listen(fd_.get(), 16) != 0) {
    refuse(std::strerror(bound ? errno : error) +
           std::string("; name a path in a directory that this process may write"));
  }
}

unix_listener::~unix_listener() { (void)::unlink(path_.c_str()); }

pvring::unique_fd unix_listener::accept() const noexcept {
  return pvring::unique_fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

pvring::platform::emulated_host join_host(const std::string& path) {
  const sockaddr_un address = address_of("--socket", path);
  const pvring::unique_fd socket = make_socket();
  if (::connect(socket.get(), generic(address), sizeof address) != 0) {
    throw command_error(failed, "no daemon listens at --socket " + path + " (" +
                                    std::strerror(errno) +
                                    "): start one with pvring-blk serve --platform emulated "
                                    "--socket " +
                                    path);
  }
  return pvring::platform::emulated_host::receive(socket.get());
}

}  // namespace tool
