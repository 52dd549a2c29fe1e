// SPDX-License-Identifier: MIT
// Files and loop devices that benchmarks make for themselves and remove again.
#include "scratch_image.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

namespace bench {
namespace {

bool is_tmpfs(const std::string& directory) {
  struct statfs what {};
  return ::statfs(directory.c_str(), &what) == 0 && what.f_type == TMPFS_MAGIC;
}

std::string directory_for_scratch() {
  const std::string shared_memory = "/dev/shm";
  if (is_tmpfs(shared_memory) && ::access(shared_memory.c_str(), W_OK) == 0) {
    return shared_memory;
  }
  const char* const chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
}

[[noreturn]] void give_up(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

scratch_image::scratch_image(std::uint64_t bytes) : bytes_(bytes) {
  const std::string directory = directory_for_scratch();
  on_tmpfs_ = is_tmpfs(directory);
  path_ = directory + "/pvring-bench-XXXXXX";
  const int fd = ::mkstemp(path_.data());
  if (fd < 0) {
    give_up("a scratch image in " + directory);
  }
  std::vector<std::byte> piece(1U << 20U);
  for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
    const std::size_t here =
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), bytes - at));
    mark_sectors({piece.data(), here}, at / sector_bytes);
    if (::write(fd, piece.data(), here) != static_cast<ssize_t>(here)) {
      const int error = errno;
      (void)::close(fd);
      (void)::unlink(path_.c_str());
      errno = error;
      give_up("filling the scratch image " + path_);
    }
  }
  (void)::close(fd);
}

scratch_image::~scratch_image() { (void)::unlink(path_.c_str()); }

loop_device::loop_device(const scratch_image& on) {
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) {
    why_ = "no loop devices: " + std::generic_category().message(errno);
    return;
  }
  const int file = ::open(on.path().c_str(), O_RDWR | O_CLOEXEC);
  // Somebody else may take the device that was found free: then another one is asked for.
  for (int attempt = 0; attempt < 16 && path_.empty(); ++attempt) {
    const int number = ::ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) {
      why_ = "no free loop device: " + std::generic_category().message(errno);
      break;
    }
    const std::string path = "/dev/loop" + std::to_string(number);
    device_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (device_ >= 0 && ::ioctl(device_, LOOP_SET_FD, file) == 0) {
      path_ = path;
    } else {
      why_ = path + ": " + std::generic_category().message(errno);
      if (device_ >= 0) {
        (void)::close(std::exchange(device_, -1));
      }
    }
  }
  if (!path_.empty()) {
    loop_info64 details{};
    details.lo_flags = LO_FLAGS_AUTOCLEAR;  // it goes away even if this program is killed
    (void)::ioctl(device_, LOOP_SET_STATUS64, &details);
    direct_ = ::ioctl(device_, LOOP_SET_DIRECT_IO, 1UL) == 0;
  }
  (void)::close(file);
  (void)::close(control);
}

loop_device::~loop_device() {
  if (device_ >= 0) {
    (void)::ioctl(device_, LOOP_CLR_FD, 0);
    (void)::close(device_);
  }
}

}  // namespace bench
