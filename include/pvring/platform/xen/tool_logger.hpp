// SPDX-License-Identifier: MIT
// Takes what Xen's libraries have to say. A guest can make them say it at will (every map of a bad
// reference is a message), so it is rate-limited.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string_view>

#include "../../base/log.hpp"
#include "library.hpp"

namespace pvring::platform::detail {

/// One per handle, and must outlive it: the library keeps the pointer until it is closed. One
/// thread, the handle's.
class tool_logger : private xentoollog_logger {
 public:
  tool_logger() noexcept : xentoollog_logger{&receive, nullptr, &nothing_to_free} {}
  tool_logger(const tool_logger&) = delete;
  tool_logger& operator=(const tool_logger&) = delete;

  /// What the libraries' open functions take.
  [[nodiscard]] xentoollog_logger* get() noexcept { return this; }
  [[nodiscard]] std::uint64_t kept_back() const noexcept { return limit_.kept_back(); }

  /// A message of our own about the same handle, under the same limit.
  void write(log::level severity, std::string_view message) noexcept {
    try {
      limit_.write(severity, message);
    } catch (const std::exception&) {
      // Out of memory for the count of kept-back messages: the message is not worth dying for.
    }
  }

 private:
  static void receive(xentoollog_logger* to, xentoollog_level level, int error, const char* context,
                      const char* format, std::va_list arguments) {
    // Anything less would use up the burst that failures need.
    if (level < XTL_WARN) {
      return;
    }
    // The library's caller is told by errno what went wrong, after this.
    const int saved = errno;
    char text[256];
    (void)std::vsnprintf(text, sizeof text, format, arguments);
    char message[384];
    const char* about = context != nullptr ? context : "xen";
    if (error >= 0) {
      (void)std::snprintf(message, sizeof message, "%s: %s (errno %d)", about, text, error);
    } else {
      (void)std::snprintf(message, sizeof message, "%s: %s", about, text);
    }
    static_cast<tool_logger*>(to)->write(
        level >= XTL_CRITICAL ? log::level::error : log::level::warning, message);
    errno = saved;
  }
  static void nothing_to_free(xentoollog_logger*) {}

  log::rate_limit limit_;
};

}  // namespace pvring::platform::detail
