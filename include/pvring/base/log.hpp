// SPDX-License-Identifier: MIT
// Where the library's messages go: one function that the program may replace. A peer can cause
// messages at will, so those are rate-limited where they are made.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace pvring::log {

enum class level : std::uint8_t { debug, info, warning, error };

/// Receives every message, from any thread; it must not throw.
using sink = void (*)(level, std::string_view) noexcept;

namespace detail {
inline void to_stderr(level severity, std::string_view message) noexcept {
  constexpr std::string_view names[] = {"debug", "info", "warning", "error"};
  if (severity >= level::warning) {
    const std::string_view name = names[static_cast<std::size_t>(severity)];
    std::fprintf(stderr, "pvring %.*s: %.*s\n", static_cast<int>(name.size()), name.data(),
                 static_cast<int>(message.size()), message.data());
  }
}
inline std::atomic<sink> current{&to_stderr};
}  // namespace detail

/// Replaces the sink of the whole process; the one set at start prints warnings and errors to
/// stderr.
inline void set_sink(sink to) noexcept { detail::current.store(to, std::memory_order_release); }

/// Hands one message to the sink.
inline void write(level severity, std::string_view message) noexcept {
  detail::current.load(std::memory_order_acquire)(severity, message);
}

/// Lets `burst` messages through per `window`, and says how many it kept back. One per device and
/// kind.
class rate_limit {
 public:
  explicit rate_limit(unsigned burst = 5, std::chrono::steady_clock::duration window =
                                              std::chrono::seconds(10)) noexcept
      : burst_(burst), window_(window) {}

  /// Writes `message`, unless the window's burst is used up. One thread only.
  void write(level severity, std::string_view message) {
    const auto now = std::chrono::steady_clock::now();
    if (now - start_ >= window_) {
      start_ = now;
      used_ = 0;
      if (kept_back_ != 0) {
        log::write(severity, std::to_string(kept_back_) + " similar messages were kept back");
        kept_back_ = 0;
      }
    }
    if (used_ < burst_) {
      ++used_;
      log::write(severity, message);
    } else {
      ++kept_back_;
    }
  }

  [[nodiscard]] std::uint64_t kept_back() const noexcept { return kept_back_; }

 private:
  unsigned burst_;
  std::chrono::steady_clock::duration window_;
  std::chrono::steady_clock::time_point start_{};
  unsigned used_ = 0;
  std::uint64_t kept_back_ = 0;
};

}  // namespace pvring::log
