// SPDX-License-Identifier: MIT
// The kernel's half of an AIO context: made, given iocbs, asked for events, destroyed. It counts
// what it calls and what the kernel has of ours, and knows both ways to find an event.
#pragma once

#include <libaio.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <span>
#include <string>
#include <system_error>

#include "counters.hpp"
#include "detail/cursor.hpp"
#include "detail/kernel_context.hpp"
#include "detail/sysfs.hpp"
#include "detail/wake_signals.hpp"
#include "engine.hpp"
#include "file_image.hpp"
#include "libaio_ring.hpp"

namespace pvring::aio::detail {

class libaio_kernel {
 public:
  using command = iocb;
  static constexpr std::uint32_t most_in_flight = std::numeric_limits<int>::max();

  /// \throws std::system_error with the remedy
  libaio_kernel(const file_image&, int file, context_options options)
      : file_(file), wake_(counters_.other_calls) {
    const int error = ::io_setup(static_cast<int>(options.capacity), &context_);
    if (error < 0) {
      throw_setup(-error, options.capacity);
    }
    if (options.reap == reap_mode::user_space) {
      ring_ = completion_ring(context_);
    }
  }

  libaio_kernel(const libaio_kernel&) = delete;
  libaio_kernel& operator=(const libaio_kernel&) = delete;

  /// Returns when the kernel is done with every buffer.
  ~libaio_kernel() {
    while (in_flight_ != 0) {
      const long n = get_events(in_flight_);
      if (n <= 0) {
        break;  // io_destroy waits as well, on every kernel that still matters
      }
      in_flight_ -= std::min(in_flight_, static_cast<std::size_t>(n));
    }
    ::io_destroy(context_);
  }

  void prepare_transfer(iocb& control, const cursor::piece& piece, std::uint64_t offset,
                        bool writes) noexcept {
    if (piece.entries.empty()) {
      prepare(control, writes ? IO_CMD_PWRITE : IO_CMD_PREAD);
      control.u.c.buf = piece.address;
      control.u.c.nbytes = piece.bytes;
    } else {
      prepare(control, writes ? IO_CMD_PWRITEV : IO_CMD_PREADV);
      // The kernel only reads the array; the interface is older than const.
      control.u.c.buf = const_cast<iovec*>(piece.entries.data());
      control.u.c.nbytes = piece.entries.size();
    }
    control.u.c.offset = static_cast<long long>(offset);
  }
  void prepare_flush(iocb& control) noexcept { prepare(control, IO_CMD_FDSYNC); }
  bool prepare_range(iocb&, operation, std::uint64_t, std::uint64_t) noexcept { return false; }

  /// Gives the kernel the first of `waiting`: how many it took, or a negative errno. EINTR is
  /// repeated.
  [[nodiscard]] long submit(std::span<iocb*> waiting) noexcept {
    long n = 0;
    do {
      counters_.submit_calls.add();
      n = ::io_submit(context_, static_cast<long>(waiting.size()), waiting.data());
    } while (n == -EINTR);
    n = std::min(n, static_cast<long>(waiting.size()));
    in_flight_ += n > 0 ? static_cast<std::size_t>(n) : 0;
    return n;
  }

  /// Hands every event that is there to `f(iocb, result)`, which says whether it is about an iocb
  /// of ours; returns how many events there were.
  template <class F>
  std::size_t harvest(F&& f) noexcept {
    if (in_flight_ == 0) {
      return 0;
    }
    const auto one = [&](const io_event& event) noexcept {
      in_flight_ -=
          f(reinterpret_cast<std::uintptr_t>(event.obj), static_cast<std::int64_t>(event.res)) ? 1
                                                                                               : 0;
    };
    std::size_t taken = ring_.usable() ? ring_.consume(one) : 0;
    if (!ring_.usable()) {
      // The kernel's ring may hold more than one call returns: until it returns less than it could.
      long n = events_per_call;
      while (n == events_per_call && in_flight_ != 0) {
        n = get_events(0);
        for (long i = 0; i < n; ++i) {
          one(events_[i]);
        }
        taken += n > 0 ? static_cast<std::size_t>(n) : 0;
      }
    }
    wake_.expect(taken);  // every iocb carries the descriptor
    return taken;
  }

  /// iocbs that the kernel has of ours.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] bool reads_ring() const noexcept { return ring_.usable(); }
  /// Whether events are known to be there without asking the kernel.
  [[nodiscard]] bool sees_results() const noexcept { return ring_.usable() && !ring_.empty(); }
  [[nodiscard]] bool only_signals_tell() const noexcept {
    return !ring_.usable() && in_flight_ != 0;
  }

  [[nodiscard]] int fd() const noexcept { return wake_.fd(); }
  [[nodiscard]] wake_signals& wake() noexcept { return wake_; }

  [[nodiscard]] aio::counters& counters() noexcept { return counters_; }

 private:
  static constexpr long events_per_call = 128;

  /// A fresh iocb: nothing of an earlier use stays in it.
  void prepare(iocb& control, int opcode) noexcept {
    control = iocb{};
    control.aio_lio_opcode = static_cast<short>(opcode);
    control.aio_fildes = file_;
    ::io_set_eventfd(&control, wake_.fd());
  }

  /// Waits for `least` events, or as many as one call returns; 0: takes what is there. A negative
  /// errno is not EINTR.
  long get_events(std::size_t least) noexcept {
    timespec now{};
    int n = 0;
    do {
      counters_.reap_calls.add();
      // After a signal nothing was taken, so the same number is still to be waited for.
      n = ::io_getevents(context_, std::min(static_cast<long>(least), events_per_call),
                         events_per_call, events_, least == 0 ? &now : nullptr);
    } while (n == -EINTR);
    return n;
  }

  [[noreturn]] static void throw_setup(int error, std::uint32_t capacity) {
    std::string what = "io_setup for " + std::to_string(capacity) + " transfers";
    if (error == EAGAIN) {
      const std::uint64_t used = number_in("/proc/sys/fs/aio-nr", 0);
      what += ": the system's AIO contexts are used up; raise /proc/sys/fs/aio-max-nr (now " +
              std::to_string(number_in("/proc/sys/fs/aio-max-nr", 0)) + ", in use " +
              std::to_string(used) + ") to at least " + std::to_string(used + capacity);
    } else if (error == ENOSYS) {
      what += ": this kernel has no asynchronous I/O (CONFIG_AIO); choose another engine";
    }
    throw std::system_error(error, std::generic_category(), what);
  }

  const int file_;
  aio::counters counters_;
  wake_signals wake_;
  io_context_t context_ = nullptr;
  completion_ring ring_;
  std::size_t in_flight_ = 0;
  io_event events_[events_per_call];
};

static_assert(async_kernel<libaio_kernel>);

}  // namespace pvring::aio::detail
