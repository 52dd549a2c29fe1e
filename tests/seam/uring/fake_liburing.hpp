// SPDX-License-Identifier: MIT
// A liburing whose every answer is scripted, on rings laid out as the kernel's. Linked in place of
// the library, so that the engine's own code and the library's inline functions run.
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace fake {

/// What an entry says.
struct request {
  std::uint8_t opcode = 0;
  std::uint8_t flags = 0;
  int fd = -1;
  std::uint64_t off = 0;
  std::uint64_t addr = 0;
  std::uint32_t len = 0;
  std::uint32_t rw_flags = 0;
  std::uint16_t buf_index = 0;
  std::uint64_t user_data = 0;
};

/// One consumed entry, with a copy of what it pointed to when it was consumed.
struct call {
  request entry{};
  std::vector<iovec> buffers;
  io_uring* ring = nullptr;
};

struct kernel {
  // --- the script ---
  std::deque<int> setup;     ///< results of io_uring_queue_init_params; 0 when empty
  std::deque<int> submit;    ///< how many a submission takes, or its error; all when empty
  std::deque<int> waits;     ///< errors of waiting; 0 when empty
  int register_files = 0;    ///< result
  int register_buffers = 0;  ///< result
  unsigned features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
  unsigned refused_flags = 0;  ///< of a setup, which is refused with EINVAL
  bool at_once = false;        ///< perform and complete each entry while it is submitted
  bool backwards = false;      ///< those of a call with at_once: the last one first
  bool hold = false;           ///< keep results back until somebody asks for events
  std::function<std::optional<int>(const call&)>
      result;  ///< of a performed entry, in place of the real one

  // --- what happened ---
  std::vector<call> accepted;  ///< everything, in order
  std::size_t completed = 0;   ///< of accepted
  unsigned setups = 0;
  unsigned exits = 0;
  unsigned submit_calls = 0;
  unsigned asked = 0;  ///< calls that asked for events
  std::size_t in_flight_at_exit = 0;
  std::vector<iovec> registered_buffers;
  std::map<const io_uring*, int> registered_files;
  unsigned setup_flags = 0;

  /// Completes the oldest accepted entry that is not complete.
  void complete_next(int res);
  /// Performs it on its file, then completes it with what came of that.
  void perform_next();
  /// Puts a result into a ring, whatever it says.
  void post(io_uring* ring, std::uint64_t about, int res);
  [[nodiscard]] int perform(const call& what) const;
  [[nodiscard]] const call& last() const { return accepted.back(); }
  /// Lets the descriptor of a ring say whether results are in it. A real ring's needs no telling.
  static void settle();
};

/// The one kernel; a test replaces it.
inline std::unique_ptr<kernel> current = std::make_unique<kernel>();

}  // namespace fake
