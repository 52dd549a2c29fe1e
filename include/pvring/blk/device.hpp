// SPDX-License-Identifier: MIT
// A block device as its users name and configure it, and what its queues share: constants after
// connect, and one atomic for the size that a live resize changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../aio/engine.hpp"
#include "../base/error.hpp"
#include "../protocol/blkif.hpp"
#include "../wait/policy.hpp"

namespace pvring::blk {

/// The number of the virtual disk xvd<letter>, as it stands in store paths (major 202, 16 minors
/// per disk). \pre 'a' <= letter <= 'p'
[[nodiscard]] constexpr std::uint32_t xvd(char letter) noexcept {
  constexpr std::uint32_t major = 202;
  return major << 8U | static_cast<std::uint32_t>(letter - 'a') << 4U;
}

/// Which device to serve.
struct identity {
  domain_id domain = 0;      ///< the frontend's
  std::uint32_t device = 0;  ///< see xvd()
  domain_id backend_domain = 0;
  std::string type = "vbd";  ///< the directory below backend/; frontends do not care
};

/// How the names of a device's journals begin; the queue's number follows. For whoever cleans up
/// behind guests that went while nobody served them.
[[nodiscard]] inline std::string journal_prefix(const identity& device) {
  return device.type + '-' + std::to_string(device.backend_domain) + '-' +
         std::to_string(device.domain) + '-' + std::to_string(device.device) + '-';
}

/// Of a device.
inline constexpr std::uint32_t most_queues = 256;

/// Who runs the queues.
enum class threads : std::uint8_t {
  own,     ///< one pinned thread per queue
  caller,  ///< the user's event loop calls service()
};

struct options {
  std::uint32_t max_queues = 4;               ///< offered; 1 where barriers are offered
  std::uint32_t max_ring_page_order = 4;      ///< offered; 0 to 4: 1 to 16 pages
  std::uint32_t max_indirect_segments = 256;  ///< offered; 0: no indirect requests; at most 4096
  std::uint32_t sector_size = 512;            ///< exported; ring units stay 512 whatever it is
  bool read_only = false;                     ///< besides what the image says
  bool cdrom = false;
  bool removable = false;
  bool discard = true;   ///< where the image can
  bool barrier = false;  ///< write barriers besides flushes: one queue
  /// The only grant strategy to use, by its name; empty for the first of the composition that can
  /// run.
  std::string strategy{};
  /// Use granted pages as I/O buffers even where the image may touch them after completion or exit.
  bool allow_unsafe_mapping = false;
  std::size_t buffer_bytes =
      0;  ///< bounce buffers of a queue; 0: enough for a ring of direct requests
  std::size_t mapped_pages = 0;  ///< mapped by a queue at a time; 0: enough for the same
  std::uint32_t idle_milliseconds =
      60'000;                     ///< after which unused persistent mappings are given up; 0: never
  std::size_t pass_budget = 256;  ///< requests per pass
  aio::reap_mode reap = aio::reap_mode::user_space;
  /// Look for completions right after submitting; what is in the page cache is complete by then.
  /// Off only to compare.
  bool reap_after_submit = true;
  blk::threads threads = blk::threads::own;
  /// Where the queues' journals are, for a successor that takes the guest over after this process
  /// was killed: a directory of this user's alone, that survives the process and not the machine.
  /// Empty: no takeover. Needs a composition that keeps a journal, and a guarded image.
  std::string journal_directory{};
  wait::policy wait{};      ///< of the queues' own threads
  std::vector<int> cpus{};  ///< to pin queue i to cpus[i % size]; empty: not pinned
};

/// What was agreed and what is exported; the same for all queues.
struct shared_state {
  std::atomic<std::uint64_t> sectors{0};  ///< of 512 bytes
  std::uint32_t sector_size = 512;
  std::uint32_t max_indirect_segments = 0;  ///< 0: not offered
  std::uint32_t discard_granularity = 0;    ///< bytes; 0: not offered
  bool read_only = false;
  bool flush = false;
  bool barrier = false;
  /// Set for good when a flush has failed: what was acknowledged may be gone. From here on every
  /// flush is an error, and so is every write: Linux reports a failed flush to nobody and flushes
  /// no more, but a failed write it passes on. Queues set it.
  mutable std::atomic<bool> flush_failed{false};

  [[nodiscard]] bool takes_writes() const noexcept {
    return !read_only && !flush_failed.load(std::memory_order_relaxed);
  }
};

}  // namespace pvring::blk
