// SPDX-License-Identifier: MIT
// What went wrong with a device, said where an operator looks: in the log, and in the store node in
// which Linux's drivers say it. A store that refuses the text does not make matters worse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/log.hpp"
#include "../platform/store.hpp"
#include "node.hpp"

namespace pvring::xenbus {

/// One end's error text. A peer can cause errors at will, so the log lines are rate-limited and the
/// node holds the last one.
template <platform::store Store>
class error_report {
 public:
  /// \param name of the device, for log lines
  /// \param node as `device_path::backend_error` or `frontend_error` say
  error_report(Store& store, std::string name, std::string node)
      : store_(store), name_(std::move(name)), node_(std::move(node)), written_{node_} {}

  /// Logs `why` and writes it into the node.
  void say(std::string_view why) noexcept {
    try {
      const std::string_view text = why.substr(0, longest_text);
      log_.write(log::level::error, name_ + ": " + std::string(text));
      write(store_, node_, text);
    } catch (const std::exception& e) {
      log::write(log::level::debug, e.what());
    }
  }

  /// Writes it for the toolstack too, into the backend's directory. It looks there while it waits
  /// for InitWait, since a failed hotplug script leaves its reason there. A directory that was
  /// removed stays removed.
  void say_to_toolstack(std::string_view why, const std::string& directory) noexcept {
    try {
      store_.transact([&](typename Store::transaction& t) {
        if (read_if_allowed(t, join(directory, "state"))) {
          write(t, join(directory, "hotplug-error"), why.substr(0, longest_text));
        }
      });
    } catch (const std::exception& e) {
      log::write(log::level::debug, e.what());
    }
  }

  /// Removes what was written: the device works.
  void forget() noexcept {
    try {
      for (const std::string& node : std::exchange(written_, {})) {
        store_.remove(std::string_view(node));
      }
    } catch (const std::exception& e) {
      log::write(log::level::debug, e.what());
    }
  }

 private:
  // A node's value and its path share one message of 4 KiB.
  static constexpr std::size_t longest_text = 1024;

  template <platform::node_access Access>
  void write(Access& access, const std::string& node, std::string_view text) {
    write_if_changed(access, std::string_view(node), text);
    if (std::find(written_.begin(), written_.end(), node) == written_.end()) {
      written_.push_back(node);
    }
  }

  Store& store_;
  std::string name_;
  std::string node_;
  // The node from the start: an earlier process of this end may have left its text there.
  std::vector<std::string> written_;
  log::rate_limit log_;
};

}  // namespace pvring::xenbus
