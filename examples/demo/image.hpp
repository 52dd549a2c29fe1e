// SPDX-License-Identifier: MIT
// The disk image that the demo serves: made from real files, or a copy of the user's. It ends with
// a tail that belongs to no file system, where the demo may write what it likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "progress.hpp"
#include "settings.hpp"

namespace demo {

/// The image file; removed at the end, unless it is to be kept.
class disk_image {
 public:
  /// Makes or copies it. \throws missing_tool, std::runtime_error saying what went wrong
  disk_image(const settings& wanted, progress& line);
  disk_image(const disk_image&) = delete;
  disk_image& operator=(const disk_image&) = delete;
  ~disk_image();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Where the tail begins.
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  /// Where it comes from, for the report.
  [[nodiscard]] const std::string& origin() const { return origin_; }

  /// `e2fsck -fn`, which changes nothing. True when the file system is clean; false when there is
  /// none, or when it was not clean from the beginning. \throws mismatch with e2fsck's words when
  /// it was, and is no more
  bool check_file_system() const;

 private:
  void make(const settings& wanted, progress& line);
  void copy(const settings& wanted, progress& line);
  /// \param read `void(std::uint64_t at, std::span<std::byte> into)`
  template <class Read>
  void copy(const settings& wanted, std::uint64_t bytes, progress& line, Read read);

  std::string path_;
  bool keep_;
  std::uint64_t bytes_ = 0;
  std::uint64_t tail_ = 0;
  bool clean_ = false;  // an ext4 file system, without fault when it came
  std::string origin_;
};

/// The file's SHA-256, read in the ordinary way, from its start to `bytes`.
[[nodiscard]] std::string digest_of_file(const std::string& path, std::uint64_t bytes);

/// Reads a part of a file in the ordinary way.
void read_file(const std::string& path, std::uint64_t offset, std::span<std::byte> into);

}  // namespace demo
