// SPDX-License-Identifier: MIT
// A small file of fixed size, mapped for writing, that outlives the process which writes it. Used
// where a successor has to find what a killed process left.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "description_lock.hpp"
#include "error.hpp"
#include "unique_fd.hpp"

namespace pvring {

/// Its directory has to be this user's alone: whoever shortens the file while it is mapped ends the
/// process. The one who has it holds a lock on it, and still does while his process is ending.
class mapped_file {
 public:
  /// A new file of zeroes, in the place of what was there. \throws std::system_error naming the
  /// path
  [[nodiscard]] static mapped_file create(const std::string& path, std::size_t bytes) {
    // Not written over: a process that still has the old one mapped keeps it.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      fail(errno, "removing the old file " + path);
    }
    unique_fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) {
      fail(errno, "creating " + path);
    }
    // Blocks of its own, now: a full file system is an error here and a signal later.
    if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
      (void)::unlink(path.c_str());
      fail(error, "making room for " + path + " (" + std::to_string(bytes) + " bytes)");
    }
    return mapped_file(path, std::move(fd), bytes);
  }

  /// The file that a predecessor left; nothing where there is none of this size that is a regular
  /// file of this user's. \throws std::system_error naming the path; in_use_error
  [[nodiscard]] static std::optional<mapped_file> open(const std::string& path, std::size_t bytes) {
    std::optional<mapped_file> found = open_any(path, bytes);
    if (found && found->memory().size() != bytes) {
      return std::nullopt;
    }
    return found;
  }

  /// The same, of any size from `least` on. \throws in_use_error also where it is smaller
  [[nodiscard]] static std::optional<mapped_file> open_any(const std::string& path,
                                                           std::size_t least) {
    unique_fd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    // Something else, or nothing, is there. Any other error says nothing about what is there.
    if (!fd && errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EISDIR &&
        errno != ENXIO && errno != EACCES) {
      fail(errno, "opening " + path);
    }
    struct ::stat what {};
    if (!fd || ::fstat(fd.get(), &what) != 0 || !S_ISREG(what.st_mode) ||
        what.st_uid != ::geteuid()) {
      return std::nullopt;
    }
    if (what.st_size < static_cast<off_t>(least)) {
      lock(path, fd.get());
      return std::nullopt;
    }
    return mapped_file(path, std::move(fd), static_cast<std::size_t>(what.st_size));
  }

  /// Memory of the same kind that nobody else will find.
  [[nodiscard]] static mapped_file anonymous(std::size_t bytes) {
    return mapped_file({}, unique_fd(), bytes);
  }

  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::move(other.fd_)),
        memory_(std::exchange(other.memory_, {})) {}
  mapped_file& operator=(mapped_file&&) = delete;
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  /// Leaves the file where it is.
  ~mapped_file() {
    if (!memory_.empty()) {
      (void)::munmap(memory_.data(), memory_.size());
    }
  }

  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  mapped_file(std::string path, unique_fd fd, std::size_t bytes)
      : path_(std::move(path)), fd_(std::move(fd)) {
    if (fd_) {
      lock(path_, fd_.get());
    }
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (fd_ ? 0 : MAP_ANONYMOUS), fd_.get(), 0);
    if (at == MAP_FAILED) {
      fail(errno, "mapping " + (path_.empty() ? std::string("memory") : path_));
    }
    memory_ = {static_cast<std::byte*>(at), bytes};
  }

  static void lock(const std::string& path, int fd) {
    const int error = lock_description(fd, F_WRLCK, 0, 0);
    if (error == EAGAIN) {
      throw in_use_error("the file " + path +
                         " is used by another process, or by one that has not quite ended: wait "
                         "for its end");
    }
    if (error != 0) {
      fail(error, "locking " + path);
    }
  }

  [[noreturn]] static void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
  }

  std::string path_;
  unique_fd fd_;  // the lock's
  std::span<std::byte> memory_;
};

}  // namespace pvring
