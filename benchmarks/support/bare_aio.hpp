// SPDX-License-Identifier: MIT
// The shortest loop on libaio that reads at random: a batch is submitted with one call, completions
// are taken from the mapped ring without any. It knows no guest; what it costs is what the kernel
// costs.
#pragma once

#include <fcntl.h>
#include <libaio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "pvring/aio/libaio_ring.hpp"
#include "pvring/platform/grant_mapper.hpp"

namespace bench {

class bare_aio {
 public:
  /// \param direct whether to bypass the page cache, as the engine that it is compared with does
  bare_aio(const std::string& path, bool direct, std::uint32_t depth)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0))),
        bytes_(depth * pvring::platform::page_size),
        controls_(depth),
        batch_(depth) {
    if (file_ < 0) {
      throw std::system_error(errno, std::generic_category(), path);
    }
    if (const int error = ::io_setup(static_cast<int>(depth), &context_); error < 0) {
      throw std::system_error(-error, std::generic_category(), "io_setup");
    }
    ring_ = pvring::aio::detail::completion_ring(context_);
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "buffers");
    }
    buffers_ = static_cast<std::byte*>(memory);
    for (std::uint32_t i = 0; i < depth; ++i) {
      ::io_prep_pread(&controls_[i], file_, buffer(i), pvring::platform::page_size, 0);
      batch_[i] = &controls_[i];
    }
  }
  bare_aio(const bare_aio&) = delete;
  bare_aio& operator=(const bare_aio&) = delete;
  ~bare_aio() {
    (void)::io_destroy(context_);
    (void)::munmap(buffers_, bytes_);
    (void)::close(file_);
  }

  [[nodiscard]] std::byte* buffer(std::uint32_t i) const noexcept {
    return buffers_ + i * pvring::platform::page_size;
  }
  void aim(std::uint32_t i, std::uint64_t offset) noexcept {
    controls_[i].u.c.offset = static_cast<long long>(offset);
  }

  /// Reads all buffers; how many came back whole.
  std::size_t run() noexcept {
    std::size_t submitted = 0;
    while (submitted < batch_.size()) {
      const int n = ::io_submit(context_, static_cast<long>(batch_.size() - submitted),
                                batch_.data() + submitted);
      if (n <= 0) {
        break;
      }
      submitted += static_cast<std::size_t>(n);
    }
    std::size_t whole = 0;
    std::size_t reaped = 0;
    while (reaped < submitted) {
      if (ring_.usable()) {
        reaped += ring_.consume([&](const io_event& event) {
          whole += event.res == pvring::platform::page_size ? 1 : 0;
        });
      } else {
        io_event events[64];
        const int n = ::io_getevents(context_, 1, 64, events, nullptr);
        for (int i = 0; i < n; ++i) {
          whole += events[i].res == pvring::platform::page_size ? 1 : 0;
        }
        reaped += n > 0 ? static_cast<std::size_t>(n) : 0;
      }
    }
    return whole;
  }

 private:
  int file_;
  std::size_t bytes_;
  std::byte* buffers_ = nullptr;
  io_context_t context_ = nullptr;
  pvring::aio::detail::completion_ring ring_;
  std::vector<iocb> controls_;
  std::vector<iocb*> batch_;
};

}  // namespace bench
