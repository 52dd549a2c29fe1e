// SPDX-License-Identifier: MIT
// A number that a peer supplied and nobody has checked. It can be bounded, or echoed back to the
// peer it came from; it cannot be calculated with, so a forgotten check does not compile.
#pragma once

#include <concepts>
#include <optional>

namespace pvring {

/// \tparam T an unsigned integer as the wire carries it
template <std::unsigned_integral T>
class untrusted {
 public:
  untrusted() = default;
  explicit constexpr untrusted(T value) noexcept : value_(value) {}

  /// The value where it is at most `most`, else nothing.
  [[nodiscard]] constexpr std::optional<T> at_most(T most) const noexcept {
    return value_ <= most ? std::optional<T>(value_) : std::nullopt;
  }

  /// The value where it is in [least, most], else nothing.
  [[nodiscard]] constexpr std::optional<T> within(T least, T most) const noexcept {
    return value_ >= least && value_ <= most ? std::optional<T>(value_) : std::nullopt;
  }

  /// The value for the two uses that need no bound: giving it back to its peer, and naming it in a
  /// message.
  [[nodiscard]] constexpr T echo() const noexcept { return value_; }

 private:
  T value_{};
};

}  // namespace pvring
