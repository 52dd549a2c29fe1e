// SPDX-License-Identifier: MIT
// A guarded image on storage that is as slow as a test likes, and a process that is killed with a
// write in flight on it.
#pragma once

#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <pvring/aio/file_image.hpp>

#include "support.hpp"

namespace aio_test {

/// A block device whose writes wait as long as the test likes: its file lies on a file system that
/// can be frozen.
class slow_device {
 public:
  /// Why there is none; empty where there is.
  [[nodiscard]] std::string set_up() {
    lower_ = loop_device::over(dir_.file("lower", 32U << 20U, '\0'), 512);
    if (lower_ == nullptr) {
      return "no loop device to be had";
    }
    const std::string make = "mkfs.ext4 -q -F " + lower_->path() + " 2>/dev/null";
    if (std::system(make.c_str()) != 0) {  // NOLINT(cert-env33-c,concurrency-mt-unsafe)
      return "no file system can be made";
    }
    const std::string at = dir_.path() + "/mounted";
    std::filesystem::create_directory(at);
    if (::mount(lower_->path().c_str(), at.c_str(), "ext4", 0, nullptr) != 0) {
      return "no file system can be mounted";
    }
    mounted_ = at;
    file_ = at + "/disk";
    { const pvring::unique_fd made(::open(file_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); }
    const pvring::unique_fd fd(::open(file_.c_str(), O_WRONLY | O_CLOEXEC));
    if (::posix_fallocate(fd.get(), 0, bytes) != 0) {
      return "no room";
    }
    upper_ = loop_device::over(file_, 512);
    root_.reset(::open(at.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return upper_ == nullptr ? "no second loop device to be had" : "";
  }
  slow_device() = default;
  slow_device(const slow_device&) = delete;
  slow_device& operator=(const slow_device&) = delete;
  ~slow_device() {
    thaw();
    upper_.reset();
    root_.reset();
    // The device lets go of its file a little after its last close.
    for (int i = 0; i < 100 && !mounted_.empty() && ::umount(mounted_.c_str()) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  [[nodiscard]] bool freeze() { return frozen_ = ::ioctl(root_.get(), FIFREEZE, 0) == 0; }
  void thaw() {
    if (std::exchange(frozen_, false)) {
      (void)::ioctl(root_.get(), FITHAW, 0);
    }
  }
  [[nodiscard]] const std::string& path() const { return upper_->path(); }

  static constexpr off_t bytes = 1 << 20;

 private:
  temporary_directory dir_;
  std::unique_ptr<loop_device> lower_;
  std::string mounted_;
  std::string file_;
  std::unique_ptr<loop_device> upper_;
  pvring::unique_fd root_;
  bool frozen_ = false;
};

inline constexpr pvring::aio::file_options guarded_and_direct{
    .direct = pvring::aio::direct_io::always, .sharing = pvring::aio::image_sharing::guarded};

/// Why the image cannot be had now; empty where it can.
inline std::string busy(const std::string& path) {
  try {
    const pvring::aio::file_image image(path, guarded_and_direct);
  } catch (const pvring::aio::image_busy& error) {
    return error.what();
  }
  return {};
}

/// A process that does `body(say)`, which calls `say(true)` once its write is in flight and does
/// not return from that.
class mortal {
 public:
  explicit mortal(const std::function<void(const std::function<void(bool)>& say)>& body) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      std::abort();
    }
    const pvring::unique_fd hear(ends[0]);
    pvring::unique_fd say(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      body([&say](bool in_flight) {
        const char mark = in_flight ? 'y' : 'n';
        (void)!::write(say.get(), &mark, 1);
        if (in_flight) {
          std::this_thread::sleep_for(std::chrono::hours(1));
        }
      });
      ::_exit(1);
    }
    say.reset();
    char mark = 0;
    in_flight_ = ::read(hear.get(), &mark, 1) == 1 && mark == 'y';
  }
  mortal(const mortal&) = delete;
  mortal& operator=(const mortal&) = delete;
  ~mortal() {
    kill();
    while (!reaped_ && !reap()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  [[nodiscard]] bool has_a_write_in_flight() const { return in_flight_; }
  void kill() const {
    if (!reaped_) {
      (void)::kill(pid_, SIGKILL);
    }
  }
  /// Whether it is gone, as far as other processes can see.
  bool reap() { return reaped_ = reaped_ || ::waitpid(pid_, nullptr, WNOHANG) == pid_; }

 private:
  pid_t pid_ = -1;
  bool in_flight_ = false;
  bool reaped_ = false;
};

/// Kills a process whose write outlives it: it is gone at once, but the image is busy until the
/// write has landed, which is one of 4096 'o' at 4096.
inline void expect_busy_until_it_landed(slow_device& device, mortal& one) {
  EXPECT_TRUE(one.has_a_write_in_flight());
  one.kill();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto wait_while = [end](const auto& condition) {
    while (condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  wait_while([&one] { return !one.reap(); });
  EXPECT_TRUE(one.reap()) << "nothing keeps the process";
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(busy(device.path()).find("still has I/O of a process that was killed"),
              std::string::npos);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  device.thaw();
  wait_while([&device] { return !busy(device.path()).empty(); });
  EXPECT_EQ(busy(device.path()), "");
  EXPECT_EQ(content_of(device.path()).substr(4096, 4096), std::string(4096, 'o')) << "it landed";
}

}  // namespace aio_test
