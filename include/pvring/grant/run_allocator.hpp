// SPDX-License-Identifier: MIT
// Hands out runs of consecutive units (pages of an arena, entries of a table) from a bitmap, next
// fit. It allocates once, when it is made, and finds single units in a few instructions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pvring::grant {

class run_allocator {
 public:
  explicit run_allocator(std::uint32_t units)
      : units_(units), free_(units), words_((units + 63) / 64, 0) {
    // A set bit is a free unit; bits past the end stay clear, so they are never found.
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      words_[unit / 64] |= bit(unit);
    }
  }

  [[nodiscard]] std::uint32_t units() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t free_units() const noexcept { return free_; }

  /// `count` consecutive units, or nothing where no such run is free. \pre `count != 0`
  [[nodiscard]] std::optional<std::uint32_t> take(std::uint32_t count) noexcept {
    if (count > free_) {
      return std::nullopt;
    }
    std::optional<std::uint32_t> found = find(next_, units_, count);
    if (!found && next_ != 0) {
      // A run may start before the hint and reach past it.
      found = find(0, units_, count);
    }
    if (found) {
      mark(*found, count, false);
      free_ -= count;
      next_ = *found + count < units_ ? *found + count : 0;
    }
    return found;
  }

  /// Gives `count` units back. \pre they are taken
  void give_back(std::uint32_t first, std::uint32_t count) noexcept {
    mark(first, count, true);
    free_ += count;
    if (free_ == units_) {
      next_ = 0;  // an empty arena starts over, and its lines are warm
    }
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t unit) noexcept {
    return std::uint64_t{1} << (unit % 64);
  }

  // The first run of `count` free units that starts in [from, to). Steps over whole words, so the
  // time is bounded by the number of words and runs in them.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t from, std::uint32_t to,
                                                  std::uint32_t count) const noexcept {
    std::uint32_t at = from;
    while (at < to) {
      const std::uint64_t ahead = words_[at / 64] >> (at % 64);
      if (ahead == 0) {
        at = (at / 64 + 1) * 64;
        continue;
      }
      at += static_cast<std::uint32_t>(std::countr_zero(ahead));
      const std::uint32_t length = run_length(at, count);
      if (length >= count) {
        return at;
      }
      at += length;
    }
    return std::nullopt;
  }

  // How many units are free from `first` on, counted up to `enough`.
  [[nodiscard]] std::uint32_t run_length(std::uint32_t first, std::uint32_t enough) const noexcept {
    std::uint32_t length = 0;
    while (length < enough && first + length < units_) {
      const std::uint32_t at = first + length;
      const auto ones = static_cast<std::uint32_t>(std::countr_one(words_[at / 64] >> (at % 64)));
      const std::uint32_t left_in_word = 64 - at % 64;
      length += ones < left_in_word ? ones : left_in_word;
      if (ones < left_in_word) {
        break;
      }
    }
    return length;
  }

  void mark(std::uint32_t first, std::uint32_t count, bool free) noexcept {
    for (std::uint32_t done = 0; done < count;) {
      const std::uint32_t at = first + done;
      const std::uint32_t left = 64 - at % 64;
      const std::uint32_t here = count - done < left ? count - done : left;
      const std::uint64_t mask = (here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1)
                                 << (at % 64);
      words_[at / 64] = free ? words_[at / 64] | mask : words_[at / 64] & ~mask;
      done += here;
    }
  }

  std::uint32_t units_;
  std::uint32_t free_;
  std::uint32_t next_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace pvring::grant
