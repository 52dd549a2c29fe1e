// SPDX-License-Identifier: MIT
// A memory file and one shared mapping of all of it. It is sparse: what nobody touched takes no
// memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

#include "../../base/unique_fd.hpp"

namespace pvring::platform::detail {

/// Memory that several processes share: created by one, inherited by fork or adopted from a
/// received descriptor.
class memory_file {
 public:
  /// A new, zeroed file. Throws std::system_error with the size that was refused.
  static memory_file create(const char* name, std::size_t bytes) {
    unique_fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // Sealed, because a process that truncated the file would kill all others with SIGBUS.
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw std::system_error(
          errno, std::generic_category(),
          "memory file '" + std::string(name) + "' of " + std::to_string(bytes) + " bytes");
    }
    return memory_file(std::move(fd), bytes);
  }

  /// A file that another process created.
  static memory_file adopt(unique_fd fd) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) {
      throw std::system_error(errno, std::generic_category(), "size of a received memory file");
    }
    return memory_file(std::move(fd), static_cast<std::size_t>(status.st_size));
  }

  memory_file(memory_file&& other) noexcept
      : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  memory_file& operator=(memory_file&&) = delete;
  ~memory_file() {
    if (data_ != nullptr) {
      (void)::munmap(data_, size_);
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  memory_file(unique_fd fd, std::size_t bytes) : fd_(std::move(fd)), size_(bytes) {
    void* at =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
    if (at == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(),
                              "mapping " + std::to_string(bytes) + " bytes of a memory file");
    }
    data_ = static_cast<std::byte*>(at);
  }

  unique_fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pvring::platform::detail
