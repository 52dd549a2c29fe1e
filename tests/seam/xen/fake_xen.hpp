// SPDX-License-Identifier: MIT
// Xen's libraries with every answer scripted, behaving by default as on Linux. Linked in place of
// them, so that the platform's own code runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <pvring/platform/xen/library.hpp>

namespace fake {

using segment = xengnttab_grant_copy_segment_t;
/// Errors of the next calls, in order; 0, and an empty queue, mean success.
using script = std::deque<int>;

/// The next error of a script: sets errno, and returns whether there is one.
inline bool fails(script& next) {
  if (next.empty()) {
    return false;
  }
  const int error = next.front();
  next.pop_front();
  errno = error;
  return error != 0;
}

struct grant_driver {
  // --- the script ---
  script open;
  script map;
  script unmap;
  script copy;
  bool has_copy = true;
  std::map<std::uint32_t, std::vector<char>> granted;  ///< pages by reference
  std::function<std::int16_t(const segment&)>
      status;                         ///< of a segment, in place of what its reference says
  unsigned segments_looked_at = ~0U;  ///< of each call; the others keep their status
  unsigned messages_per_failure = 1;

  // --- what happened ---
  struct map_call {
    std::uint32_t domain;
    std::vector<std::uint32_t> references;
    int protection;
  };
  std::vector<map_call> maps;
  std::vector<std::pair<void*, std::uint32_t>> unmaps;
  std::vector<std::vector<segment>> copies;
  std::map<void*, std::uint32_t> mapped;
  xentoollog_logger* logger = nullptr;
};

struct share_driver {
  script open;
  script share;
  script unshare;
  std::uint32_t next_reference = 100;
  std::map<void*, std::uint32_t> shared;
  std::vector<std::pair<std::uint32_t, bool>> shares;  ///< domain, and whether it may write
};

struct event_driver {
  // --- the script ---
  script open;
  script bind;
  script notify;
  script pending;
  script unmask;
  bool raises_on_bind = true;  ///< as Xen does, since kicks may have come before
  std::uint32_t next_port = 10;

  // --- what happened ---
  std::set<std::uint32_t> bound;
  std::set<std::uint32_t> masked;                              ///< by the kernel, having fired
  std::set<std::uint32_t> kicked;                              ///< while masked
  std::vector<std::pair<std::uint32_t, std::uint32_t>> binds;  ///< domain and remote port
  std::vector<std::uint32_t> notified;
  std::vector<std::uint32_t> unmasked;
  std::vector<std::uint32_t> unbound;
  unsigned reads = 0;

  /// The peer kicks.
  void kick(std::uint32_t port);
  /// An entry in the device's queue, whatever the port's state.
  void enqueue(std::uint32_t port) const;
  int pipe[2] = {-1, -1};
};

struct store_daemon {
  // --- the script ---
  script open;
  script commit;
  std::map<std::string, script> calls;  ///< by name: "read", "write", "rm", "directory", "watch"...
  bool dead = false;                    ///< the connection is lost
  int dead_error = EBADF;               ///< what calls say then
  bool dead_for_domain_path = true;
  std::map<std::string, std::string> nodes;

  // --- what happened ---
  std::map<std::string, std::vector<xs_permissions>> permissions;
  std::vector<std::pair<std::string, std::string>> watches;
  std::deque<std::pair<std::string, std::string>> events;
  std::vector<std::string> ends;  ///< of transactions: "commit", "abort"
  unsigned starts = 0;
  std::uint32_t transaction = 0;
  std::map<std::string, std::string> changed;  ///< in the transaction; "" stands for nothing
  int pipe[2] = {-1, -1};

  /// A watch fires.
  void fire(const std::string& path, const std::string& token);
  bool refuses(const std::string& call);
};

struct machine {
  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  ~machine();

  grant_driver grants;
  share_driver shares;
  event_driver events;
  store_daemon store;
  std::vector<std::string> order;  ///< of opening and closing
};

/// The one machine; a test replaces it.
inline std::unique_ptr<machine> current = std::make_unique<machine>();

/// Says something as a library would.
void say(xentoollog_logger* to, xentoollog_level level, int error, const char* context,
         const char* format, ...) __attribute__((format(printf, 5, 6)));

}  // namespace fake
