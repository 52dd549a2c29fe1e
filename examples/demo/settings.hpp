// SPDX-License-Identifier: MIT
// What the user asked of the demo, and the errors that end it with an exit code of their own. Every
// part of the demo includes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/engines.hpp"

namespace demo {

inline constexpr std::uint64_t mebibyte = 1024 * 1024;
inline constexpr std::uint32_t sector_bytes = 512;

struct settings {
  std::string image;  ///< the user's; empty: one is made
  std::string out = "demo-results";
  std::vector<std::string> strategies{"map_each", "persistent_pool", "batched_copy"};
  support::file_engine engine = support::file_engine::libaio;
  std::uint32_t queues = 2;
  std::uint32_t ring_pages = 4;
  std::uint32_t depth = 32;                 ///< requests that each queue has in flight
  std::chrono::duration<double> load{5.0};  ///< how long the mixed load runs, per strategy
  std::uint64_t seed = 1;
  bool smoke = false;
  bool buffered = false;  ///< the image through the page cache
  bool chart = true;
  bool keep_image = false;
  bool verbose = false;

  [[nodiscard]] std::uint64_t file_system_bytes() const { return (smoke ? 16 : 256) * mebibyte; }
  [[nodiscard]] std::uint64_t tail_bytes() const { return (smoke ? 4 : 32) * mebibyte; }
};

/// The disk did not hold what it has to, or the backend broke the protocol.
class mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A tool that the demo needs is not installed.
class missing_tool : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum exit_code : int { fine = 0, wrong_data = 1, cannot_run = 2, skipped = 77 };

}  // namespace demo
