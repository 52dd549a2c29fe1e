// SPDX-License-Identifier: MIT
// How a queue waits: by event, by polling, or by polling as long as that pays. The policy is a
// run-time value, read once per idle pass; `window` is the state that an adaptive policy keeps for
// each source.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "../base/error.hpp"

namespace pvring::wait {

/// Sleep whenever there is no work. One kick of the peer and one wake-up for each batch.
struct event {};

/// Never sleep: a whole CPU, no kicks.
struct busy {};

/// Look on for a while before sleeping. How long is learnt for each source: see `window`.
struct adaptive {
  std::chrono::nanoseconds start =
      std::chrono::microseconds(20);  ///< length of a window that opens
  unsigned grow = 2;                  ///< factor by which it grows
  unsigned shrink = 2;                ///< divisor by which it shrinks
  std::chrono::nanoseconds max =
      std::chrono::microseconds(200);  ///< longest window; waits beyond are not worth polling
  std::chrono::nanoseconds idle =
      std::chrono::milliseconds(10);  ///< a wait this long closes the window at once
};

enum class policy_kind : std::uint8_t { event, busy, adaptive };

/// A wait policy.
class policy {
 public:
  policy() noexcept = default;  ///< adaptive, with its defaults
  policy(wait::event) noexcept : kind_(policy_kind::event) {}
  policy(wait::busy) noexcept : kind_(policy_kind::busy) {}
  /// \throws configuration_error naming the option and its value
  policy(const wait::adaptive& options) : options_(options) { validate(); }

  /// Reads `event`, `busy`, `adaptive`, or
  /// `adaptive:start=20us,grow=2,shrink=2,max=200us,idle=10ms` (any of the options).
  /// \throws configuration_error naming the option and its value
  [[nodiscard]] static policy parse(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    if (name == "adaptive") {
      wait::adaptive options;
      if (colon != std::string_view::npos) {
        read_options(text.substr(colon + 1), options);
      }
      return policy(options);
    }
    if (name != "event" && name != "busy") {
      refuse("'" + std::string(name) + "' is none of event, busy, adaptive");
    }
    if (colon != std::string_view::npos) {
      refuse("'" + std::string(name) + "' takes no options, but has '" +
             std::string(text.substr(colon + 1)) + "'");
    }
    return name == "event" ? policy(wait::event{}) : policy(wait::busy{});
  }

  [[nodiscard]] policy_kind kind() const noexcept { return kind_; }
  /// Meaningful for an adaptive policy.
  [[nodiscard]] const wait::adaptive& options() const noexcept { return options_; }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw configuration_error("wait policy: " + why);
  }

  static void read_options(std::string_view list, wait::adaptive& into) {
    while (true) {
      const std::size_t comma = list.find(',');
      const std::string_view item = list.substr(0, comma);
      const std::size_t equals = item.find('=');
      if (equals == std::string_view::npos) {
        refuse("'" + std::string(item) + "' is not of the form option=value");
      }
      read_option(item.substr(0, equals), item.substr(equals + 1), into);
      if (comma == std::string_view::npos) {
        return;
      }
      list.remove_prefix(comma + 1);
    }
  }

  static void read_option(std::string_view option, std::string_view value, wait::adaptive& into) {
    if (option == "start") {
      into.start = duration(option, value);
    } else if (option == "max") {
      into.max = duration(option, value);
    } else if (option == "idle") {
      into.idle = duration(option, value);
    } else if (option == "grow") {
      into.grow = factor(option, value);
    } else if (option == "shrink") {
      into.shrink = factor(option, value);
    } else {
      refuse("'" + std::string(option) + "' (with value '" + std::string(value) +
             "') is none of the options start, grow, shrink, max, idle");
    }
  }

  static std::chrono::nanoseconds duration(std::string_view option, std::string_view value) {
    std::uint32_t count = 0;  // at most 4.3e9, so that no unit overflows 64 bits
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
    const std::string_view unit = value.substr(static_cast<std::size_t>(end - value.data()));
    if (error == std::errc{}) {
      if (unit == "ns") {
        return std::chrono::nanoseconds(count);
      }
      if (unit == "us") {
        return std::chrono::microseconds(count);
      }
      if (unit == "ms") {
        return std::chrono::milliseconds(count);
      }
      if (unit == "s") {
        return std::chrono::seconds(count);
      }
    }
    refuse(std::string(option) + "='" + std::string(value) +
           "' is not a whole number followed by ns, us, ms or s");
  }

  static unsigned factor(std::string_view option, std::string_view value) {
    unsigned count = 0;
    const char* const last = value.data() + value.size();
    const auto [end, error] = std::from_chars(value.data(), last, count);
    if (error != std::errc{} || end != last) {
      refuse(std::string(option) + "='" + std::string(value) + "' is not a whole number");
    }
    return count;
  }

  static std::string named(std::string_view option, std::chrono::nanoseconds value) {
    return std::string(option) + "=" + std::to_string(value.count()) + "ns";
  }

  void validate() const {
    using namespace std::chrono_literals;
    if (options_.start <= 0ns) {
      refuse(named("start", options_.start) + ": must be more than 0");
    }
    if (options_.max < options_.start) {
      refuse(named("max", options_.max) + ": must be at least " + named("start", options_.start));
    }
    if (options_.max > 1s) {
      refuse(named("max", options_.max) +
             ": must be at most 1s; the policy that never sleeps is busy");
    }
    if (options_.idle < options_.max) {
      refuse(named("idle", options_.idle) + ": must be at least " + named("max", options_.max));
    }
    if (options_.grow < 2 || options_.grow > 1024) {
      refuse("grow=" + std::to_string(options_.grow) + ": must be a factor from 2 to 1024");
    }
    if (options_.shrink < 2 || options_.shrink > 1024) {
      refuse("shrink=" + std::to_string(options_.shrink) + ": must be a divisor from 2 to 1024");
    }
  }

  policy_kind kind_ = policy_kind::adaptive;
  wait::adaptive options_{};
};

/// How `parse` would read it, with every option.
[[nodiscard]] inline std::string to_string(const policy& of) {
  if (of.kind() != policy_kind::adaptive) {
    return of.kind() == policy_kind::event ? "event" : "busy";
  }
  const adaptive& o = of.options();
  return "adaptive:start=" + std::to_string(o.start.count()) + "ns,grow=" + std::to_string(o.grow) +
         ",shrink=" + std::to_string(o.shrink) + ",max=" + std::to_string(o.max.count()) +
         "ns,idle=" + std::to_string(o.idle.count()) + "ns";
}

/// How long it is worth polling for one source, learnt from how long its work let itself be waited
/// for. A wait starts with the queue's first pass that finds nothing, and ends with the pass that
/// finds work.
///
/// It starts closed (event mode). Work within `max` opens it, and lets it grow while more than half
/// of it was needed; a longer wait, or polling in vain while another source brought the work,
/// shrinks it. Shorter than `start` is closed, so polling that does not pay gives up by itself
/// after a few waits. It keeps no clock.
class window {
 public:
  window() noexcept = default;

  /// 0: closed.
  [[nodiscard]] std::chrono::nanoseconds length() const noexcept { return length_; }

  /// Whether to look on after waiting for `waited`.
  [[nodiscard]] bool open(std::chrono::nanoseconds waited) const noexcept {
    return waited < length_;
  }

  /// The source brought work after `waited`, by polling or by a wake-up.
  void brought_work(std::chrono::nanoseconds waited, const adaptive& options) noexcept {
    if (waited > options.max) {
      waited >= options.idle ? close() : shrink(options);
    } else if (waited * 2 >= length_) {
      // Polling paid with little to spare, or would have paid: at zero length every short wait
      // counts as that.
      length_ =
          length_.count() == 0 ? options.start : std::min(options.max, length_ * options.grow);
    }
  }

  /// Another source brought work after `waited`; polling for this one was in vain only if its
  /// window ran out.
  void brought_nothing(std::chrono::nanoseconds waited, const adaptive& options) noexcept {
    if (length_.count() != 0 && !open(waited)) {
      shrink(options);
    }
  }

 private:
  void close() noexcept { length_ = std::chrono::nanoseconds(0); }
  void shrink(const adaptive& options) noexcept {
    length_ /= options.shrink;
    if (length_ < options.start) {
      close();
    }
  }

  std::chrono::nanoseconds length_{0};
};

}  // namespace pvring::wait
