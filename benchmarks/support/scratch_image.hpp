// SPDX-License-Identifier: MIT
// An image for benchmarks whose every sector says which one it is, so that whatever was read can be
// checked by looking at it. It lies on tmpfs where there is one, and goes away with its object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace bench {

inline constexpr std::size_t sector_bytes = 512;

/// The word that sector `number` begins with.
[[nodiscard]] constexpr std::uint64_t sector_mark(std::uint64_t number) noexcept {
  return (number + 1) * 0x9e3779b97f4a7c15ULL;
}

/// Gives `data` what belongs at `sector`: a mark at the start of each sector, the rest is left as
/// it is.
inline void mark_sectors(std::span<std::byte> data, std::uint64_t sector) noexcept {
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= data.size(); at += sector_bytes) {
    const std::uint64_t mark = sector_mark(sector + at / sector_bytes);
    std::memcpy(data.data() + at, &mark, sizeof mark);
  }
}

/// Whether `data` begins with the mark of `sector`: cheap enough for inside of a measured loop.
[[nodiscard]] inline bool begins_with_sector(const std::byte* data, std::uint64_t sector) noexcept {
  std::uint64_t mark = 0;
  std::memcpy(&mark, data, sizeof mark);
  return mark == sector_mark(sector);
}

/// Whether all sectors of `data` are those that belong at `sector`.
[[nodiscard]] inline bool are_sectors(std::span<const std::byte> data,
                                      std::uint64_t sector) noexcept {
  for (std::size_t at = 0; at < data.size(); at += sector_bytes) {
    if (!begins_with_sector(data.data() + at, sector + at / sector_bytes)) {
      return false;
    }
  }
  return true;
}

/// A file of marked sectors.
class scratch_image {
 public:
  /// \throws std::system_error
  explicit scratch_image(std::uint64_t bytes);
  scratch_image(const scratch_image&) = delete;
  scratch_image& operator=(const scratch_image&) = delete;
  ~scratch_image();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t sectors() const noexcept { return bytes_ / sector_bytes; }
  /// Whether it is in memory: then reading it never waits for a disk.
  [[nodiscard]] bool on_tmpfs() const noexcept { return on_tmpfs_; }

 private:
  std::string path_;
  std::uint64_t bytes_;
  bool on_tmpfs_ = false;
};

/// A loop device on an image, for as long as the object lives: asynchronous, which a file on tmpfs
/// is not.
class loop_device {
 public:
  /// Where there can be none (no root, no loop devices), `path()` is empty and `why()` says so.
  explicit loop_device(const scratch_image& on);
  loop_device(const loop_device&) = delete;
  loop_device& operator=(const loop_device&) = delete;
  ~loop_device();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// Whether the device itself bypasses the page cache.
  [[nodiscard]] bool direct() const noexcept { return direct_; }

 private:
  std::string path_;
  std::string why_;
  bool direct_ = false;
  int device_ = -1;
};

/// A cheap generator of offsets; the same seed gives the same sequence.
class offsets {
 public:
  explicit offsets(std::uint64_t seed) noexcept : state_(seed * 2 + 1) {}
  [[nodiscard]] std::uint64_t next() noexcept {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return state_;
  }
  /// Below `limit`, which is less than 2^32.
  [[nodiscard]] std::uint64_t below(std::uint64_t limit) noexcept {
    return ((next() >> 32U) * limit) >> 32U;
  }

 private:
  std::uint64_t state_;
};

}  // namespace bench
