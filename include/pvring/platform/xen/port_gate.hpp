// SPDX-License-Identifier: MIT
// Which ports of a handle may fire, on top of the kernel's own masks. The kernel masks a port only
// once it has fired, while ours are masked from the start.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "../event_channel.hpp"

namespace pvring::platform::detail {

/// A port that fires while it is masked here is kept, and fires when it is unmasked. From the event
/// that is kept until then, the kernel's mask is on as well, so nothing comes twice.
class port_gate {
 public:
  /// What `unmask` leaves to be done.
  enum class next { nothing, ask_kernel, fire };

  /// A new port, masked. Allocates.
  void add(port p) { ports_.insert(lower_bound(p), state{p}); }
  /// False where there is no such port.
  bool remove(port p) noexcept {
    const auto at = find(p);
    if (at == ports_.end()) {
      return false;
    }
    ready_ -= at->ready ? 1 : 0;
    ports_.erase(at);
    return true;
  }
  [[nodiscard]] bool contains(port p) noexcept { return find(p) != ports_.end(); }
  [[nodiscard]] bool is_kept(port p) noexcept {
    const auto at = find(p);
    return at != ports_.end() && at->kept;
  }

  /// The kernel says that the port has fired; true where the user shall know. Also for ports that
  /// are none: their last event may still be on its way.
  [[nodiscard]] bool arrived(port p) noexcept {
    const auto at = find(p);
    if (at == ports_.end()) {
      return false;
    }
    const bool fires = !at->masked;
    at->kept = at->kept || !fires;
    at->masked = true;
    return fires;
  }

  /// Lets a port fire again.
  [[nodiscard]] next unmask(port p) noexcept {
    const auto at = find(p);
    if (at == ports_.end() || at->ready) {
      return next::nothing;
    }
    if (at->kept) {
      at->kept = false;
      make_ready(*at);
      return next::fire;
    }
    at->masked = false;
    return next::ask_kernel;
  }

  /// What fired where nobody could be told (`arrived` said true) is found by `take_ready`.
  void defer(port p) noexcept {
    if (const auto at = find(p); at != ports_.end() && !at->ready) {
      make_ready(*at);
    }
  }

  [[nodiscard]] bool has_ready() const noexcept { return ready_ != 0; }
  /// A port that has fired without the kernel's knowing; masked from then on.
  [[nodiscard]] std::optional<port> take_ready() noexcept {
    if (ready_ == 0) {
      return std::nullopt;
    }
    const auto at =
        std::find_if(ports_.begin(), ports_.end(), [](const state& s) { return s.ready; });
    at->ready = false;
    --ready_;
    return at->number;
  }

 private:
  struct state {
    port number;
    bool masked = true;
    bool kept = false;   ///< fired while masked
    bool ready = false;  ///< to be returned next
  };
  using iterator = std::vector<state>::iterator;

  iterator lower_bound(port p) noexcept {
    return std::lower_bound(ports_.begin(), ports_.end(), p,
                            [](const state& s, port wanted) { return s.number < wanted; });
  }
  iterator find(port p) noexcept {
    const auto at = lower_bound(p);
    return at != ports_.end() && at->number == p ? at : ports_.end();
  }
  void make_ready(state& s) noexcept {
    s.ready = true;
    ++ready_;
  }

  std::vector<state> ports_;  // few, and sorted
  std::size_t ready_ = 0;
};

}  // namespace pvring::platform::detail
