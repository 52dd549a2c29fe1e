// SPDX-License-Identifier: MIT
// What a disk has to contain, sector by sector, kept by whoever puts the requests: every sector of
// every read can be checked, while writes and discards are going on elsewhere. A model belongs to
// one thread and to one range of sectors.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../protocol/blkif.hpp"

namespace pvring::testing {

/// Stands for the content of one sector. It tells contents apart that differ by accident; it is no
/// protection against somebody who wants them to look the same.
using content_id = std::uint64_t;

/// \param sector 512 bytes
[[nodiscard]] inline content_id content_of(std::span<const std::byte> sector) noexcept {
  assert(sector.size() == protocol::blkif::sector_bytes);
  // Two lanes, so that the multiplications do not wait for each other.
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;
  std::array<std::uint64_t, 2> lanes{1, 2};
  for (std::size_t at = 0; at < sector.size(); at += sizeof lanes) {
    std::array<std::uint64_t, 2> words;
    std::memcpy(words.data(), sector.data() + at, sizeof words);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = std::rotl((lanes[i] ^ words[i]) * odd, 29);
    }
  }
  const std::uint64_t mixed = (lanes[0] ^ std::rotl(lanes[1], 32)) * odd;
  return mixed ^ (mixed >> 32U);
}

/// Fills `bytes`, whole sectors from `sector` on, with a content of which every sector is unlike
/// any other's, and unlike that of another `version`.
inline void make_content(std::span<std::byte> bytes, std::uint64_t sector,
                         std::uint64_t version) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += protocol::blkif::sector_bytes, ++sector) {
    std::uint64_t state = (sector + 1) * 0xbf58476d1ce4e5b9U ^ (version + 1) * 0x94d049bb133111ebU;
    // The first two words can be read in a dump.
    std::array<std::uint64_t, protocol::blkif::sector_bytes / sizeof(std::uint64_t)> words;
    words[0] = sector;
    words[1] = version;
    for (std::size_t i = 2; i < words.size(); ++i) {
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      words[i] = state;
    }
    std::memcpy(bytes.data() + at, words.data(), sizeof words);
  }
}

/// A sector that does not contain what it has to.
struct block_mismatch {
  std::uint64_t sector = 0;
  content_id found = 0;
  content_id expected = 0;
  std::string what;
};

/// What a sector may contain after a discard that succeeded.
enum class after_discard : std::uint8_t {
  anything,       ///< as the protocol has it
  old_or_zeroes,  ///< as files and most disks have it: nobody else's data shows up
};

/// One thread uses it. The ranges of requests lie in the model's own range.
///
/// Requests of one range are in flight at the same time only where their order does not matter:
/// `begin_...` refuses the others, and then the request is not to be put. What was begun is ended,
/// whatever came of it.
class block_model {
 public:
  /// Nothing is known of the content: what is read first is taken for right.
  block_model(std::uint64_t first_sector, std::uint64_t sectors,
              after_discard discarded = after_discard::anything)
      : first_(first_sector),
        discarded_(discarded),
        states_(sectors),
        claims_(sectors),
        contents_(sectors),
        next_(sectors) {
    zeroes_ = content_of(std::array<std::byte, protocol::blkif::sector_bytes>{});
  }

  [[nodiscard]] std::uint64_t first_sector() const noexcept { return first_; }
  [[nodiscard]] std::uint64_t sectors() const noexcept { return states_.size(); }
  [[nodiscard]] bool contains(std::uint64_t sector, std::uint64_t count) const noexcept {
    return sector >= first_ && count <= sectors() && sector - first_ <= sectors() - count;
  }

  // --- requests ----------------------------------------------------------------------------------

  /// False where a write or a discard of one of these sectors is in flight.
  [[nodiscard]] bool begin_read(std::uint64_t sector, std::uint64_t count) {
    if (!all_claims(sector, count, [](std::uint8_t c) { return c < changing - 1; })) {
      return false;
    }
    for_each(sector, count, [this](std::size_t i) { ++claims_[i]; });
    return true;
  }
  void end_read(std::uint64_t sector, std::uint64_t count) {
    for_each(sector, count, [this](std::size_t i) { --claims_[i]; });
  }

  /// False where anything else is in flight for one of these sectors.
  [[nodiscard]] bool begin_write(std::uint64_t sector, std::uint64_t count) {
    if (!all_claims(sector, count, [](std::uint8_t c) { return c == 0; })) {
      return false;
    }
    for_each(sector, count, [this](std::size_t i) { claims_[i] = changing; });
    return true;
  }
  /// Says what a write that was begun carries. All of it is said before the write ends.
  void carries(std::uint64_t sector, std::span<const std::byte> bytes) {
    for_each_sector(sector, bytes, [this](std::size_t i, std::span<const std::byte> one) {
      next_[i] = content_of(one);
    });
  }
  /// \param okay whether the write was answered as okay; if not, each of its sectors may be old, new, or torn
  void end_write(std::uint64_t sector, std::uint64_t count, bool okay) {
    for_each(sector, count, [&](std::size_t i) {
      claims_[i] = 0;
      states_[i] = okay ? state::known : state::undetermined;
      contents_[i] = next_[i];
    });
  }

  /// Ends a write or a discard that was begun and then not put: nothing has changed.
  void cancel(std::uint64_t sector, std::uint64_t count) {
    for_each(sector, count, [this](std::size_t i) { claims_[i] = 0; });
  }

  /// As `begin_write`.
  [[nodiscard]] bool begin_discard(std::uint64_t sector, std::uint64_t count) {
    return begin_write(sector, count);
  }
  /// A discard is a hint: whatever it was answered, it may have been done, in part or not at all.
  void end_discard(std::uint64_t sector, std::uint64_t count) {
    for_each(sector, count, [this](std::size_t i) {
      claims_[i] = 0;
      const bool old_is_known = states_[i] == state::known || states_[i] == state::discarded;
      states_[i] = discarded_ == after_discard::old_or_zeroes && old_is_known ? state::discarded
                                                                              : state::undetermined;
    });
  }

  // --- content -----------------------------------------------------------------------------------

  /// Compares what was read, whole sectors from `sector` on, and returns the first that is wrong.
  /// Between begin and end of the read, or while nothing is in flight.
  [[nodiscard]] std::optional<block_mismatch> check(std::uint64_t sector,
                                                    std::span<const std::byte> bytes) {
    std::optional<block_mismatch> wrong;
    for_each_sector(sector, bytes, [&](std::size_t i, std::span<const std::byte> one) {
      const content_id found = content_of(one);
      switch (states_[i]) {
        case state::unseen:
          states_[i] = state::known;
          contents_[i] = found;
          ++learnt_;
          return;
        case state::undetermined:
          ++undetermined_;
          return;
        case state::known:
        case state::discarded:
          break;
      }
      ++verified_;
      if (found != contents_[i] && !(states_[i] == state::discarded && found == zeroes_) &&
          !wrong) {
        wrong = {first_ + i, found, contents_[i], describe(i, one, found)};
      }
    });
    return wrong;
  }

  /// Forgets what a sector contains, for a disk that was changed by somebody else.
  void forget(std::uint64_t sector, std::uint64_t count) {
    for_each(sector, count, [this](std::size_t i) { states_[i] = state::unseen; });
  }

  /// Sectors that were compared; whose content was taken for right; that may contain anything.
  [[nodiscard]] std::uint64_t verified() const noexcept { return verified_; }
  [[nodiscard]] std::uint64_t learnt() const noexcept { return learnt_; }
  [[nodiscard]] std::uint64_t undetermined() const noexcept { return undetermined_; }

 private:
  enum class state : std::uint8_t { unseen, known, discarded, undetermined };

  static constexpr std::uint8_t changing = 255;  // a claim below counts readers

  template <class F>
  void for_each(std::uint64_t sector, std::uint64_t count, F&& f) {
    assert(contains(sector, count));
    const auto start = static_cast<std::size_t>(sector - first_);
    for (std::size_t i = start; i < start + count; ++i) {
      f(i);
    }
  }
  template <class F>
  void for_each_sector(std::uint64_t sector, std::span<const std::byte> bytes, F&& f) {
    constexpr std::size_t size = protocol::blkif::sector_bytes;
    for_each(sector, bytes.size() / size, [&, start = sector - first_](std::size_t i) {
      f(i, bytes.subspan((i - start) * size, size));
    });
  }
  template <class Fits>
  [[nodiscard]] bool all_claims(std::uint64_t sector, std::uint64_t count, Fits&& fits) const {
    assert(contains(sector, count));
    const auto start = claims_.begin() + static_cast<std::ptrdiff_t>(sector - first_);
    return std::all_of(start, start + static_cast<std::ptrdiff_t>(count), fits);
  }

  [[nodiscard]] std::string describe(std::size_t i, std::span<const std::byte> one,
                                     content_id found) const {
    std::array<std::uint64_t, 2> head;
    std::memcpy(head.data(), one.data(), sizeof head);
    std::string text = "sector " + std::to_string(first_ + i) + " has wrong content";
    if (found == zeroes_) {
      text += ": zeroes";
    } else if (head[0] != first_ + i && contains(head[0], 1)) {
      text += ": what looks like version " + std::to_string(head[1]) + " of sector " +
              std::to_string(head[0]);
    } else if (head[0] == first_ + i) {
      text += ": what looks like its version " + std::to_string(head[1]);
    }
    return text;
  }

  std::uint64_t first_;
  after_discard discarded_;
  content_id zeroes_ = 0;
  std::vector<state> states_;
  std::vector<std::uint8_t> claims_;
  std::vector<content_id> contents_;
  std::vector<content_id> next_;  // of the write in flight
  std::uint64_t verified_ = 0;
  std::uint64_t learnt_ = 0;
  std::uint64_t undetermined_ = 0;
};

/// A range divided into one model for each of `parts` queues. \param unit sectors that stay
/// together
[[nodiscard]] inline std::vector<block_model> share_out(
    std::uint64_t first_sector, std::uint64_t sectors, std::uint32_t parts,
    std::uint64_t unit = protocol::blkif::sectors_per_page,
    after_discard discarded = after_discard::anything) {
  std::vector<block_model> models;
  models.reserve(parts);
  const std::uint64_t each = sectors / parts / unit * unit;
  for (std::uint32_t i = 0; i < parts; ++i) {
    const std::uint64_t start = first_sector + i * each;
    models.emplace_back(start, i + 1 == parts ? first_sector + sectors - start : each, discarded);
  }
  return models;
}

}  // namespace pvring::testing
