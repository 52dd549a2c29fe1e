// SPDX-License-Identifier: MIT
// A fuzzer's bytes, read as the decisions of a peer; and what has to hold whatever they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace pvring::test {

/// Bytes one after the other; zeroes where there are no more.
class fuzz_input {
 public:
  explicit fuzz_input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ended() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return ended() ? 0 : bytes_[at_++]; }
  /// Less than `count`.
  std::size_t pick(std::size_t count) { return byte() % count; }
  std::uint32_t word() {
    return byte() | std::uint32_t{byte()} << 8U | std::uint32_t{byte()} << 16U |
           std::uint32_t{byte()} << 24U;
  }
  void fill(std::byte* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = static_cast<std::byte>(byte());
    }
  }
  /// Up to `longest` characters.
  std::string text(std::size_t longest) {
    std::string out(pick(longest + 1), '\0');
    for (char& c : out) {
      c = static_cast<char>(byte());
    }
    return out;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// Ends the process where something does not hold: assert() is not there in every build.
inline void require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
  }
}

}  // namespace pvring::test
