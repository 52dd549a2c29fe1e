// SPDX-License-Identifier: MIT
// Reads a disk that is known by its URI, with the engine that serves such disks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "support/engines.hpp"

namespace demo {

class remote_disk {
 public:
  /// Opens it for reading only. \throws std::runtime_error saying what is wrong
  explicit remote_disk(const std::string& uri);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return image_.size(); }
  /// \throws std::system_error
  void read(std::uint64_t offset, std::span<std::byte> into);

 private:
  support::engines::image image_;
  support::engines::context context_;
};

}  // namespace demo
