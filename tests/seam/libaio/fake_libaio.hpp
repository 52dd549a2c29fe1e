// SPDX-License-Identifier: MIT
// A libaio whose every answer is scripted, with a completion ring laid out as the kernel's. Linked
// in place of the library, so that the engine's own code runs.
#pragma once

#include <libaio.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace fake {

/// One accepted iocb, with a copy of what it pointed to when it was accepted.
struct call {
  iocb* object = nullptr;
  iocb copy{};
  std::vector<iovec> buffers;
  void* ring = nullptr;  ///< of the context that it was given to
};

struct kernel {
  // --- the script ---
  std::deque<int> setup;       ///< results of io_setup; 0 when empty
  std::deque<long> submit;     ///< results of io_submit; takes all when empty
  std::deque<long> getevents;  ///< errors of io_getevents, or the most events that it returns
  std::uint32_t magic = 0xa10a10a1;
  std::uint32_t incompat_features = 0;
  std::uint32_t header_length = 32;
  std::uint32_t extra_places = 3;  ///< places in the ring beyond what was asked for
  bool late_signals = false;       ///< complete_next() leaves the signal to signal()
  bool at_once = false;            ///< perform and complete each iocb while it is submitted
  bool backwards = false;          ///< those of a call with at_once: the last one first
  std::function<std::optional<long>(const call&)>
      result;  ///< of a performed iocb, in place of the real one

  // --- what happened ---
  std::vector<call> accepted;  ///< everything, in order
  std::size_t completed = 0;   ///< of accepted, by complete_next()
  unsigned submit_calls = 0;
  unsigned getevents_calls = 0;
  unsigned setups = 0;
  unsigned destroys = 0;
  std::size_t in_flight_at_destroy = 0;
  std::vector<long> waited_for;  ///< the least events that each io_getevents asked for

  /// Completes the oldest accepted iocb that is not complete.
  void complete_next(long res);
  /// Signals the completion of an accepted iocb.
  static void signal(const call& what);
  /// Performs an accepted iocb on its file; what came of that.
  static long perform(const call& what);
  /// Performs it on its file, then completes it with what came of that.
  void perform_next();
  /// Performs and completes the iocbs accepted from the `first` on, the newest first.
  void perform_backwards(std::size_t first);
  /// Puts an event into the ring, whatever it says: that of the iocb's context, or the newest.
  void post(iocb* object, long res);
  [[nodiscard]] const call& last() const { return accepted.back(); }
};

/// The one kernel; a test replaces it.
inline std::unique_ptr<kernel> current = std::make_unique<kernel>();

}  // namespace fake
