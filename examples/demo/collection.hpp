// SPDX-License-Identifier: MIT
// Gathers real files for the image's file system: as many as fit, from wherever there are some.
#pragma once

#include <cstdint>
#include <filesystem>

#include "progress.hpp"

namespace demo {

/// Copies files into a folder until they take as much room as they may.
class collection {
 public:
  collection(std::filesystem::path to, std::uint64_t bytes, progress& line);

  /// Adds what is below `from` and can be read; links are left out.
  void add(const std::filesystem::path& from);

  [[nodiscard]] std::uint64_t files() const { return files_; }
  [[nodiscard]] std::uint64_t folders() const { return folders_; }

 private:
  void copy(const std::filesystem::path& file);

  std::filesystem::path to_;
  std::uint64_t left_;
  progress& line_;
  std::uint64_t files_ = 0;
  std::uint64_t folders_ = 0;
};

}  // namespace demo
