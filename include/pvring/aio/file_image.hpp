// SPDX-License-Identifier: MIT
// An image in a regular file or a block device, opened once and shared by all queues of its device.
// It knows what the storage can do, remembers a failed flush, and owns the device's helper thread.
#pragma once

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "../base/error.hpp"
#include "../base/log.hpp"
#include "../base/unique_fd.hpp"
#include "detail/flush_memory.hpp"
#include "detail/image_lock.hpp"
#include "detail/lent_buffers.hpp"
#include "detail/storage_probe.hpp"
#include "engine.hpp"
#include "helper_thread.hpp"

namespace pvring::aio {

/// Whether the page cache is bypassed.
enum class direct_io : std::uint8_t {
  automatic,  ///< where the storage takes units of one sector, else buffered
  never,
  always,  ///< or fail to open
};

/// Whether others may use the image.
enum class image_sharing : std::uint8_t {
  any,      ///< not asked
  guarded,  ///< one process that writes it, or several that read it; see detail::image_lock
};

struct file_options {
  bool read_only = false;
  direct_io direct = direct_io::automatic;
  image_sharing sharing = image_sharing::any;
};

/// A guarded image that somebody else has, or that I/O of a killed process is still on its way to.
class image_busy : public in_use_error {
 public:
  using in_use_error::in_use_error;
};

class file_image {
 public:
  /// \throws configuration_error that names the path, what is wrong with it, and the remedy;
  /// image_busy where it is guarded and not to be had now
  explicit file_image(std::string path, file_options options = {})
      : path_(std::move(path)),
        read_only_(options.read_only),
        guarded_(options.sharing == image_sharing::guarded) {
    open_file();
    if (guarded_) {
      guard();
    }
    bytes_.store(measure(), std::memory_order_relaxed);
    if (options.direct != direct_io::never) {
      try_direct(options.direct == direct_io::always);
    }
    physical_block_size_ = detail::modify_unit(fd_.get(), what_);
    discard_granularity_ = read_only_ ? 0 : detail::discard_unit(fd_.get(), what_, file_bytes());
    keeps_buffers_ = detail::file_keeps_buffers(fd_.get(), what_, direct_);
  }

  file_image(const file_image&) = delete;
  file_image& operator=(const file_image&) = delete;
  /// Precondition: every context on the image is gone.
  ~file_image() = default;

  // --- concept image
  // -------------------------------------------------------------------------------------------

  /// Whole sectors: a partial last one counts, and reads as zeroes beyond the file's end.
  [[nodiscard]] std::uint64_t size() const noexcept { return round_up(file_bytes()); }
  [[nodiscard]] bool read_only() const noexcept { return read_only_; }
  [[nodiscard]] bool can_flush() const noexcept { return true; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept { return discard_granularity_; }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept { return physical_block_size_; }
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return !keeps_buffers_; }
  /// The kernel waits for the transfers of an AIO context when its process goes.
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return alignment_; }
  [[nodiscard]] std::string_view name() const noexcept { return path_; }
  /// Whether no other process writes it, not even one that was killed.
  [[nodiscard]] bool guarded() const noexcept { return guarded_; }
  /// Which storage it is, whatever path leads to it.
  [[nodiscard]] std::string identity() const {
    return is_block_device() ? "block device " + std::to_string(what_.st_rdev)
                             : "inode " + std::to_string(what_.st_ino) + " of device " +
                                   std::to_string(what_.st_dev);
  }

  // --- for operators
  // -------------------------------------------------------------------------------------------

  [[nodiscard]] bool direct() const noexcept { return direct_; }
  [[nodiscard]] bool is_block_device() const noexcept { return S_ISBLK(what_.st_mode); }

  /// Looks at the size again (a live resize) and returns it. Call it before telling the frontend.
  /// \throws configuration_error when the image became empty
  std::uint64_t refresh_size() {
    bytes_.store(measure(), std::memory_order_relaxed);
    return size();
  }

  // --- for engines
  // ---------------------------------------------------------------------------------------------

  /// The exact length of what is there: as opened, as last refreshed, or as extended by a write to
  /// the last sector. Relaxed: it decides only about bytes of the one partial sector, and a request
  /// carries its own order.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }

  /// Whether a read that ended at `stopped` may be completed with zeroes up to `end`: only inside
  /// the partial last sector. Anything else is missing data, for example because the file has
  /// shrunk.
  [[nodiscard]] bool reads_as_zero(std::uint64_t stopped, std::uint64_t end) const noexcept {
    const std::uint64_t bytes = file_bytes();
    return stopped >= bytes && end <= round_up(bytes);
  }

  /// A write up to `end` is complete. One that reached the partial last sector has extended the
  /// file.
  void written(std::uint64_t end) noexcept {
    std::uint64_t bytes = file_bytes();
    while (end > bytes && end <= round_up(bytes) &&
           !bytes_.compare_exchange_weak(bytes, end, std::memory_order_relaxed)) {
    }
  }

  /// See detail::flush_memory. The kernel may have dropped the dirty pages with the first failure.
  [[nodiscard]] int flush_failure() const noexcept { return flushes_.failure(); }
  [[nodiscard]] int flushed(int error) noexcept { return flushes_.flushed(error); }

  /// The image once more, for one queue. Each gets an open file description of its own, since the
  /// kernel reports a failed write-back once per description: with one for all, two flushes at the
  /// same time could see one failure and one success. It also keeps the description's reference
  /// count from being shared by the queues. \throws std::system_error
  [[nodiscard]] unique_fd reopen() const {
    const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
    unique_fd again(::open(self.c_str(), access() | (direct_ ? O_DIRECT : 0) | O_CLOEXEC));
    if (!again) {
      // No /proc, or no right to open it any more. Flushes that run at the same time then share one
      // report.
      again.reset(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
      if (!again) {
        throw std::system_error(errno, std::generic_category(),
                                "opening image " + path_ + " for another queue");
      }
      log::write(log::level::info, "image " + path_ + ": queues share one open file");
    }
    if (const int error = guarded_ ? lock_own(again.get()) : 0) {
      throw std::system_error(error, std::generic_category(),
                              "locking image " + path_ + " for another queue");
    }
    return again;
  }

  [[nodiscard]] helper_thread& helper() noexcept { return helper_; }

 private:
  static constexpr std::uint64_t round_up(std::uint64_t bytes) noexcept {
    return (bytes + detail::sector_size - 1) / detail::sector_size * detail::sector_size;
  }

  [[nodiscard]] int access() const noexcept { return read_only_ ? O_RDONLY : O_RDWR; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw configuration_error("image " + path_ + " " + why);
  }

  void open_file() {
    if (path_.empty()) {
      throw configuration_error("no image path given: name a file or a block device");
    }
    // Looked at before opening, because opening can have effects (a tape rewinds) or never return
    // (a pipe).
    if (::stat(path_.c_str(), &what_) != 0) {
      refuse_open(errno);
    }
    check_kind();
    fd_.reset(::open(path_.c_str(), access() | O_CLOEXEC));
    if (!fd_) {
      refuse_open(errno);
    }
    if (::fstat(fd_.get(), &what_) != 0) {
      refuse_open(errno);
    }
    check_kind();  // of what was opened in the end
    int frozen = 0;
    if (!read_only_ && is_block_device() && ::ioctl(fd_.get(), BLKROGET, &frozen) == 0 &&
        frozen != 0) {
      refuse(
          "is a read-only block device: open it with read_only, or make it writable (blockdev "
          "--setrw)");
    }
  }

  // Whoever has the first byte may look whether all the others are free. They then stay free for
  // this process, and its queues take one each.
  void guard() const {
    using lock = detail::image_lock;
    if (const int error = lock::take(fd_.get(), lock::device, 1, !read_only_)) {
      refuse_lock(error, "is used by another process: stop that one, or have both only read it");
    }
    if (const int error = lock::take(fd_.get(), lock::queues, lock::most_queues, !read_only_)) {
      refuse_lock(error,
                  "still has I/O of a process that was killed on its way: wait until the storage "
                  "has done it");
    }
    lock::release(fd_.get(), lock::queues, lock::most_queues);
  }

  // A byte for one queue. Which are taken is known to the kernel alone: queues come and go.
  int lock_own(int fd) const noexcept {
    using lock = detail::image_lock;
    int error = EAGAIN;
    for (off_t tries = 0; error == EAGAIN && tries < lock::most_queues; ++tries) {
      const off_t own = next_lock_.fetch_add(1, std::memory_order_relaxed) % lock::most_queues;
      error = lock::take(fd, lock::queues + own, 1, !read_only_);
    }
    return error;
  }

  [[noreturn]] void refuse_lock(int error, const std::string& why) const {
    if (error == EAGAIN) {
      throw image_busy("image " + path_ + " " + why);
    }
    refuse("cannot be locked against other processes: " + std::generic_category().message(error));
  }

  void check_kind() const {
    if (S_ISDIR(what_.st_mode)) {
      refuse("is a directory: name a file or a block device");
    }
    if (!S_ISREG(what_.st_mode) && !S_ISBLK(what_.st_mode)) {
      refuse("is neither a regular file nor a block device: name one of those");
    }
  }

  [[noreturn]] void refuse_open(int error) const {
    switch (error) {
      case ENOENT:
      case ENOTDIR:
        refuse("does not exist: check the path, or create it (truncate -s SIZE PATH)");
      case EACCES:
      case EPERM:
      case EROFS:
        if (!read_only_ && ::faccessat(AT_FDCWD, path_.c_str(), R_OK, AT_EACCESS) == 0) {
          refuse(
              "may only be read: open it with read_only, or give this process the right to write "
              "it");
        }
        refuse("may not be read by this process: give it the right to (owner, mode, group disk)");
      default:
        refuse(std::string("cannot be opened: ") + std::generic_category().message(error));
    }
  }

  [[nodiscard]] std::uint64_t measure() const {
    std::uint64_t bytes = 0;
    if (is_block_device()) {
      if (::ioctl(fd_.get(), BLKGETSIZE64, &bytes) != 0) {
        refuse("does not tell its size: " + std::generic_category().message(errno));
      }
    } else {
      struct ::stat now {};
      if (::fstat(fd_.get(), &now) != 0) {
        refuse("does not tell its size: " + std::generic_category().message(errno));
      }
      bytes = static_cast<std::uint64_t>(now.st_size);
    }
    if (bytes == 0) {
      refuse("is empty: a disk needs at least one sector (truncate -s SIZE PATH)");
    }
    return bytes;
  }

  /// Sets O_DIRECT on the file that is open, so that the access mode cannot change on the way.
  void try_direct(bool required) {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    std::string why = "its file system has no O_DIRECT";
    if (flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT) == 0) {
      alignment_ = detail::direct_alignment(fd_.get(), what_);
      if (alignment_ != 0) {
        direct_ = true;
        return;
      }
      // Emulating small sectors by reading and writing back would lose writes between two queues.
      why = "its logical block is larger than a sector of " + std::to_string(detail::sector_size) +
            " bytes";
      (void)::fcntl(fd_.get(), F_SETFL, flags);
    }
    alignment_ = 1;
    if (required) {
      refuse("cannot be used with direct I/O, " + why + ": allow buffered I/O, or move the image");
    }
    log::write(log::level::info, "image " + path_ + " is used through the page cache: " + why);
  }

  std::string path_;
  bool read_only_;
  bool guarded_;
  bool direct_ = false;
  bool keeps_buffers_ = true;
  std::uint32_t alignment_ = 1;
  std::uint32_t physical_block_size_ = detail::sector_size;
  std::uint32_t discard_granularity_ = 0;
  struct ::stat what_ {};
  unique_fd fd_;
  mutable std::atomic<off_t> next_lock_{0};
  std::atomic<std::uint64_t> bytes_{0};
  detail::flush_memory flushes_;
  helper_thread helper_;
};

static_assert(image<file_image>);

}  // namespace pvring::aio
