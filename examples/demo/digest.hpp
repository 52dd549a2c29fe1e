// SPDX-License-Identifier: MIT
// SHA-256 of a stream of bytes. The disk's content as read through the ring is compared with the
// file's by it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace demo {

class sha256 {
 public:
  sha256();
  ~sha256();
  sha256(const sha256&) = delete;
  sha256& operator=(const sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  /// The digest in hexadecimal; call it once, at the end.
  [[nodiscard]] std::string finish();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace demo
