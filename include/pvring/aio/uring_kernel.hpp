// SPDX-License-Identifier: MIT
// The kernel's half of an io_uring context: made with what this kernel offers of rings, files and
// buffers that it needs to look up only once; given entries, read, and torn down.
#pragma once

#include <fcntl.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "../base/error.hpp"
#include "../base/log.hpp"
#include "../base/unique_fd.hpp"
#include "counters.hpp"
#include "detail/cursor.hpp"
#include "detail/kernel_context.hpp"
#include "detail/storage_probe.hpp"
#include "detail/sysfs.hpp"
#include "detail/wake_signals.hpp"
#include "engine.hpp"
#include "file_image.hpp"

namespace pvring::aio {

/// This kernel, or what guards it, lets this process have no io_uring. Another engine will do.
class uring_unavailable : public configuration_error {
 public:
  using configuration_error::configuration_error;
};

namespace detail {

class uring_kernel {
 public:
  struct command {
    std::uint8_t opcode = IORING_OP_NOP;
    std::uint32_t flags = 0;  // the operation's
    std::uint32_t length = 0;
    std::uint64_t address = 0;
    std::uint64_t offset = 0;
  };
  static constexpr std::uint32_t most_in_flight = 32768;  // the kernel's IORING_MAX_ENTRIES

  /// \throws uring_unavailable, configuration_error, std::system_error with the remedy
  uring_kernel(const file_image& image, int file, context_options options)
      : wake_(counters_.other_calls),
        file_(file),
        block_device_(image.is_block_device()),
        polled_(options.reap == reap_mode::polled) {
    if (polled_) {
      check_polling(image);
    }
    open_ring(options.capacity);
    try {
      fixed_file_ = ::io_uring_register_files(&ring_, &file_, 1) == 0;
      watch(ring_.ring_fd);
      watch(wake_.fd());
    } catch (...) {
      ::io_uring_queue_exit(&ring_);
      throw;
    }
  }

  /// Whether this process may have a ring at all. \throws uring_unavailable, std::system_error
  static void try_out() {
    io_uring ring{};
    set_up(ring, 1, 0, 0);
    ::io_uring_queue_exit(&ring);
  }

  uring_kernel(const uring_kernel&) = delete;
  uring_kernel& operator=(const uring_kernel&) = delete;

  /// Returns when the kernel is done with every buffer, and with the file.
  ~uring_kernel() {
    while (in_flight_ != 0) {
      wait_for_one();
    }
    // The ring itself goes later, in the background, and would hold these until then: the file's
    // locks, and pages that count as locked.
    if (fixed_file_) {
      ::io_uring_unregister_files(&ring_);
    }
    if (!region_.empty()) {
      ::io_uring_unregister_buffers(&ring_);
    }
    ::io_uring_queue_exit(&ring_);
  }

  /// One run of bytes inside `region` needs no page looked up from now on. Where the kernel does
  /// not allow that, all goes on as before.
  void register_region(std::span<std::byte> region) noexcept {
    const iovec whole{region.data(), region.size()};
    if (region.empty() || !region_.empty()) {
      return;
    }
    if (const int error = ::io_uring_register_buffers(&ring_, &whole, 1); error == 0) {
      region_ = region;
    } else if (static std::atomic<bool> said{false};
               !said.exchange(true, std::memory_order_relaxed)) {
      log::write(log::level::info,
                 "buffers of " + std::to_string(region.size()) +
                     " bytes cannot be registered with io_uring (" +
                     std::generic_category().message(-error) +
                     "; raise RLIMIT_MEMLOCK): each transfer's pages are looked up anew");
    }
  }

  // --- commands
  // --------------------------------------------------------------------------------------------

  void prepare_transfer(command& one, const cursor::piece& piece, std::uint64_t offset,
                        bool writes) noexcept {
    if (!piece.entries.empty()) {
      const auto vector = writes ? IORING_OP_WRITEV : IORING_OP_READV;
      one = {.opcode = static_cast<std::uint8_t>(vector),
             .length = static_cast<std::uint32_t>(piece.entries.size()),
             .address = number(piece.entries.data()),
             .offset = offset};
      return;
    }
    const bool known = in_region(piece);
    const auto reading = known ? IORING_OP_READ_FIXED : IORING_OP_READ;
    const auto writing = known ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE;
    one = {.opcode = static_cast<std::uint8_t>(writes ? writing : reading),
           .length = static_cast<std::uint32_t>(piece.bytes),
           .address = number(piece.address),
           .offset = offset};
  }

  static void prepare_flush(command& one) noexcept {
    one = {.opcode = IORING_OP_FSYNC, .flags = IORING_FSYNC_DATASYNC};
  }

  bool prepare_range(command& one, operation kind, std::uint64_t offset,
                     std::uint64_t length) const noexcept {
    const bool zero = kind == operation::write_zeroes;
    // On a block device a hole is zeroes by definition, and refused where the device cannot promise
    // them; a discard asks for less.
    if (polled_ || (block_device_ && !zero)) {
      return false;
    }
    // fallocate's length is where others have an address, its mode where they have a length.
    one = {.opcode = IORING_OP_FALLOCATE,
           .length = zero ? std::uint32_t{FALLOC_FL_ZERO_RANGE}
                          : std::uint32_t{FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
           .address = length,
           .offset = offset};
    return true;
  }

  /// What the kernel did not take is withdrawn from the ring, so it has nothing of it. Nothing but
  /// a ring that is broken as a whole makes the call fail: an entry's own fault is its result.
  [[nodiscard]] long submit(std::span<command*> waiting) noexcept {
    for (const command* one : waiting) {
      io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
      if (entry == nullptr) {
        break;  // cannot be: there is one for each that can wait
      }
      fill(*entry, *one);
    }
    const unsigned given = ::io_uring_sq_ready(&ring_);
    int result = 0;
    do {
      counters_.submit_calls.add();
      result = ::io_uring_submit(&ring_);
    } while (result == -EINTR);
    const unsigned left = ::io_uring_sq_ready(&ring_);
    withdraw(left);
    const unsigned taken = given - std::min(left, given);
    in_flight_ += taken;
    if (taken != 0) {
      return static_cast<long>(taken);
    }
    // Results wait for room in the completion ring: reaping makes it.
    return result == -EBUSY ? -EAGAIN : std::min(result, 0);
  }

  // --- results
  // ---------------------------------------------------------------------------------------------

  template <class F>
  std::size_t harvest(F&& f) noexcept {
    if (in_flight_ == 0) {
      return 0;
    }
    std::size_t found = 0;
    if (polled_) {
      ask();
    }
    found += consume(f);
    // Results that did not fit, or that the kernel keeps until this thread is in it anyway.
    while (in_flight_ != 0 && kernel_keeps_results()) {
      ask();
      const std::size_t more = consume(f);
      found += more;
      if (more == 0) {
        break;
      }
    }
    return found;
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] bool sees_results() const noexcept {
    return in_flight_ != 0 &&
           (polled_ || ::io_uring_cq_ready(&ring_) != 0 || kernel_keeps_results());
  }
  [[nodiscard]] static constexpr bool only_signals_tell() noexcept { return false; }

  // The ring's descriptor is readable while it holds results: nothing is signalled for them, and
  // nothing has to be read. The helper's signals are beside it in one set.
  [[nodiscard]] int fd() const noexcept { return both_.get(); }
  [[nodiscard]] wake_signals& wake() noexcept { return wake_; }
  [[nodiscard]] aio::counters& counters() noexcept { return counters_; }

  [[nodiscard]] bool file_is_fixed() const noexcept { return fixed_file_; }
  [[nodiscard]] bool buffers_are_fixed() const noexcept { return !region_.empty(); }
  [[nodiscard]] bool polled() const noexcept { return polled_; }

 private:
  [[nodiscard]] static std::uint64_t number(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address);
  }

  void fill(io_uring_sqe& entry, const command& one) const noexcept {
    const int file = fixed_file_ ? 0 : file_;  // its index among the ring's files
    ::io_uring_prep_rw(one.opcode, &entry, file, nullptr, one.length, one.offset);
    entry.addr = one.address;
    entry.flags = fixed_file_ ? IOSQE_FIXED_FILE : 0;
    entry.rw_flags = static_cast<int>(one.flags);  // one place for every operation's
    entry.user_data = number(&one);
  }

  [[nodiscard]] bool in_region(const cursor::piece& piece) const noexcept {
    const std::uint64_t at = number(piece.address);
    const std::uint64_t start = number(region_.data());
    return at >= start && at - start < region_.size() &&
           piece.bytes <= region_.size() - (at - start);
  }

  /// Takes back the last `count` entries. The kernel reads the ring's tail only inside the call:
  /// nobody else looks at it.
  void withdraw(unsigned count) noexcept {
    if (count != 0) {
      ring_.sq.sqe_tail -= count;
      ring_.sq.sqe_head = ring_.sq.sqe_tail;  // liburing's note of what it has published
      ::io_uring_smp_store_release(ring_.sq.ktail, ring_.sq.sqe_tail);
    }
  }

  template <class F>
  std::size_t consume(F& f) noexcept {
    unsigned head = 0;
    unsigned found = 0;
    const io_uring_cqe* result = nullptr;
    io_uring_for_each_cqe(&ring_, head, result) {
      ++found;
      in_flight_ -=
          f(static_cast<std::uintptr_t>(result->user_data), std::int64_t{result->res}) ? 1 : 0;
    }
    ::io_uring_cq_advance(&ring_, found);
    return found;
  }

  [[nodiscard]] bool kernel_keeps_results() const noexcept {
    constexpr unsigned kept = IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN;
    // relaxed: it says only that a call is worth while, and the call orders what it brings.
    return (std::atomic_ref(*ring_.sq.kflags).load(std::memory_order_relaxed) & kept) != 0;
  }

  void ask() noexcept {
    counters_.reap_calls.add();
    (void)::io_uring_get_events(&ring_);
  }

  /// At the end: results are counted, nobody is told of them.
  void wait_for_one() noexcept {
    io_uring_cqe* result = nullptr;
    counters_.reap_calls.add();
    const int error = ::io_uring_wait_cqe(&ring_, &result);
    if (error == 0) {
      ::io_uring_cqe_seen(&ring_, result);
      --in_flight_;
    } else if (error != -EINTR) {
      // To go now would leave buffers to the kernel. It needs no call to complete what it has.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void check_polling(const file_image& image) const {
    const std::string refused =
        "image " + std::string(image.name()) + ": its completions cannot be polled, ";
    if (!image.direct()) {
      throw configuration_error(refused +
                                "as it is not open for direct I/O: allow that, or choose another "
                                "way to reap");
    }
    struct ::stat what {};
    if (::fstat(file_, &what) != 0 || !can_be_polled(what)) {
      throw configuration_error(refused +
                                "as its device has no queues for that (nvme.poll_queues=N on the "
                                "kernel's command line makes some): choose another way to reap");
    }
  }

  void open_ring(std::uint32_t capacity) {
    const unsigned always = polled_ ? IORING_SETUP_IOPOLL : 0U;
    // With both a completion does not interrupt this thread: it finds what is there, or is woken.
    const unsigned better = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    set_up(ring_, capacity, always, better);
  }

  static void set_up(io_uring& ring, std::uint32_t capacity, unsigned always, unsigned better) {
    io_uring_params params{};
    params.flags = always | better;
    int error = ::io_uring_queue_init_params(capacity, &ring, &params);
    if (error == -EINVAL && better != 0) {  // an older kernel
      params = {};
      params.flags = always;
      error = ::io_uring_queue_init_params(capacity, &ring, &params);
    }
    if (error < 0) {
      throw_setup(-error, capacity);
    }
    if ((params.features & IORING_FEAT_NODROP) == 0) {
      ::io_uring_queue_exit(&ring);
      throw uring_unavailable(
          "io_uring: this kernel's may lose completions (it is older than Linux 5.5): use the "
          "engine libaio");
    }
  }

  [[noreturn]] static void throw_setup(int error, std::uint32_t capacity) {
    const std::string what = "io_uring for " + std::to_string(capacity) + " transfers: ";
    switch (error) {
      case ENOSYS:
        throw uring_unavailable(what +
                                "this kernel has none, or a sandbox hides it: use the engine "
                                "libaio");
      case EPERM:
      case EACCES: {
        const std::uint64_t level = number_in("/proc/sys/kernel/io_uring_disabled", 0);
        throw uring_unavailable(
            what + "forbidden to this process, " +
            (level != 0
                 ? "kernel.io_uring_disabled is " + std::to_string(level) + ": set it to 0 (sysctl)"
                 : std::string("by a sandbox's filter or a security policy: allow it")) +
            ", or use the engine libaio");
      }
      case ENOMEM:
        throw std::system_error(error, std::generic_category(),
                                what +
                                    "no memory that may be locked is left: raise "
                                    "RLIMIT_MEMLOCK, or use the engine libaio");
      default:
        throw std::system_error(error, std::generic_category(), what + "cannot be set up");
    }
  }

  void watch(int fd) {
    if (!both_) {
      both_.reset(::epoll_create1(EPOLL_CLOEXEC));
    }
    epoll_event event{};
    event.events = EPOLLIN;
    if (!both_ || ::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll set of an io_uring context");
    }
  }

  aio::counters counters_;
  wake_signals wake_;
  const int file_;
  const bool block_device_;
  const bool polled_;
  bool fixed_file_ = false;
  io_uring ring_{};
  unique_fd both_;
  std::span<std::byte> region_;
  std::size_t in_flight_ = 0;
};

static_assert(async_kernel<uring_kernel>);

/// Tells before anything is opened. \throws uring_unavailable, std::system_error
inline void require_uring() { uring_kernel::try_out(); }

}  // namespace detail
}  // namespace pvring::aio
