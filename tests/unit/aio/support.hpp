// SPDX-License-Identifier: MIT
// Files, loop devices and transfers for the tests of this folder.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvring/aio/engine.hpp>
#include <pvring/base/error.hpp>
#include <pvring/base/unique_fd.hpp>

namespace aio_test {

/// A directory that is gone with the object.
class temporary_directory {
 public:
  explicit temporary_directory(std::string_view where = "/tmp")
      : path_(std::string(where).append("/pvring_unit_XXXXXX")) {
    if (::mkdtemp(path_.data()) == nullptr) {
      std::abort();
    }
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Makes a file in it.
  std::string file(const std::string& name, std::size_t bytes, char fill = 'a') const {
    std::string path = path_ + "/" + name;
    const pvring::unique_fd fd(
        ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
    const std::string content(bytes, fill);
    if (!fd || ::write(fd.get(), content.data(), bytes) != static_cast<ssize_t>(bytes)) {
      std::abort();
    }
    return path;
  }

 private:
  std::string path_;
};

/// The content of a file.
inline std::string content_of(const std::string& path) {
  const pvring::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out;
  char room[65536];
  for (ssize_t n = 0; (n = ::read(fd.get(), room, sizeof room)) > 0;) {
    out.append(room, static_cast<std::size_t>(n));
  }
  return out;
}

/// A loop device over a file, gone with the object. Not every machine lets a test have one.
class loop_device {
 public:
  static std::unique_ptr<loop_device> over(const std::string& file, std::uint32_t block,
                                           bool read_only = false) {
    const pvring::unique_fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    const pvring::unique_fd backing(
        ::open(file.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC));
    for (int attempt = 0; control && backing && attempt < 20; ++attempt) {
      const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      if (number < 0) {
        break;
      }
      auto out =
          std::unique_ptr<loop_device>(new loop_device("/dev/loop" + std::to_string(number)));
      out->fd_.reset(::open(out->path_.c_str(), O_RDWR | O_CLOEXEC));
      loop_config config{};
      config.fd = static_cast<std::uint32_t>(backing.get());
      config.block_size = block;
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
      // Somebody else may have taken the number: try the next one.
      if (out->fd_ && ::ioctl(out->fd_.get(), LOOP_CONFIGURE, &config) == 0) {
        return out;
      }
    }
    return nullptr;
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Tells the device that its file has another size.
  void resized() const { (void)::ioctl(fd_.get(), LOOP_SET_CAPACITY); }

 private:
  explicit loop_device(std::string path) : path_(std::move(path)) {}

  std::string path_;
  pvring::unique_fd fd_;  // the last close frees the device
};

/// Transfers with their buffers, aligned for direct I/O.
class transfers {
 public:
  using operation = pvring::aio::operation;
  using transfer = pvring::aio::transfer;

  transfer& make(operation kind, std::uint64_t offset, const std::vector<std::size_t>& lengths,
                 char fill = 'w') {
    request& r = requests_.emplace_back();
    std::size_t total = 0;
    for (const std::size_t n : lengths) {
      total += n;
    }
    const std::size_t room = (total / 4096 + 1) * 4096;
    r.room.reset(static_cast<char*>(std::aligned_alloc(4096, room)));
    std::fill_n(r.room.get(), room, fill);
    char* at = r.room.get();
    for (const std::size_t n : lengths) {
      r.buffers.push_back({at, n});
      at += n;
    }
    r.work.kind = kind;
    r.work.offset = offset;
    r.work.length = total;
    r.work.buffers = r.buffers;
    return r.work;
  }

  /// One without buffers, of a length.
  transfer& bare(operation kind, std::uint64_t offset = 0, std::uint64_t length = 0) {
    request& r = requests_.emplace_back();
    r.work.kind = kind;
    r.work.offset = offset;
    r.work.length = length;
    return r.work;
  }

 private:
  struct freer {
    void operator()(char* p) const { std::free(p); }
  };
  struct request {
    transfer work;
    std::vector<iovec> buffers;
    std::unique_ptr<char, freer> room;
  };
  std::deque<request> requests_;
};

/// What is in the buffers of a transfer whose buffers are one run.
inline std::string_view data_of(const pvring::aio::transfer& work) {
  return {static_cast<const char*>(work.buffers[0].iov_base), work.length};
}

/// Reaps until nothing is in flight, sleeping in between as a queue does; the number of those that
/// failed, or a large number when nobody woke us for seconds. Each transfer holds its own error.
template <class Context>
std::size_t finish(Context& context) {
  std::size_t failed = 0;
  while (context.in_flight() != 0) {
    context.reap([&](pvring::aio::transfer& work, int error) noexcept {
      work.error = error;
      failed += error != 0 ? 1 : 0;
    });
    if (context.in_flight() != 0 && !context.arm()) {
      pollfd p{context.fd(), POLLIN, 0};
      bool timed = false;
      if constexpr (requires { context.deadline(); }) {
        timed = context.deadline().has_value();
      }
      const int n = ::poll(&p, 1, timed ? 1 : 5000);
      if (n == 0 && !timed) {
        return 1000000;
      }
    }
    context.disarm();
  }
  return failed;
}

template <class Context>
int run(Context& context, pvring::aio::transfer& work) {
  pvring::aio::transfer* one = &work;
  context.submit({&one, 1});
  return finish(context) > 1 ? -ETIMEDOUT : work.error;
}

/// The message with which `f` refuses, empty when it does not.
template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const pvring::configuration_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace aio_test
