// SPDX-License-Identifier: MIT
// A block request as a test describes it, and its completion as the test sees it. Both speak of
// sectors of 512 bytes and of parts of pages; which pages those are is the frontend's business.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../protocol/blkif.hpp"

namespace pvring::testing {

/// The part of one page that a request uses, in sectors, both ends included.
struct block_segment {
  std::uint8_t first_sect = 0;
  std::uint8_t last_sect = protocol::blkif::last_sector_of_page;

  [[nodiscard]] constexpr std::uint32_t sectors() const noexcept {
    return last_sect - first_sect + 1U;
  }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return std::size_t{sectors()} * protocol::blkif::sector_bytes;
  }
  [[nodiscard]] constexpr std::size_t offset() const noexcept {
    return std::size_t{first_sect} * protocol::blkif::sector_bytes;
  }
};

/// Appends segments for `sectors` sectors that lie in memory one after the other, the first of them
/// at sector `first_sect` of its page: as a buffer that need not begin at a page.
inline void append_segments(std::vector<block_segment>& to, std::uint64_t sectors,
                            std::uint8_t first_sect = 0) {
  while (sectors != 0) {
    const auto here = static_cast<std::uint8_t>(
        std::min<std::uint64_t>(sectors, protocol::blkif::sectors_per_page - first_sect));
    to.push_back({first_sect, static_cast<std::uint8_t>(first_sect + here - 1)});
    sectors -= here;
    first_sect = 0;
  }
}

/// The same as a new list.
[[nodiscard]] inline std::vector<block_segment> segments_for(std::uint64_t sectors,
                                                             std::uint8_t first_sect = 0) {
  std::vector<block_segment> list;
  append_segments(list, sectors, first_sect);
  return list;
}

/// What a request asks for. The segments are only looked at until `submit` returns.
struct block_request {
  std::uint8_t operation =
      protocol::blkif::operation::read;  ///< any number; for indirect the inner one
  std::uint64_t sector = 0;
  std::span<const block_segment> segments{};
  std::uint64_t sectors = 0;  ///< of a discard
  std::uint8_t flag = 0;      ///< of a discard
  bool indirect = false;      ///< also where the segments would fit into the request itself
  std::uint64_t cookie = 0;   ///< the submitter's own; comes back with the completion
};

/// Names a request of one queue, for as long as the queue exists.
using block_tag = std::uint64_t;

/// The end of a request. Valid while the callback that gets it runs.
class block_completion {
 public:
  /// A part of a guest's page that belongs to the request.
  struct part {
    std::byte* page = nullptr;
    block_segment where;
  };

  block_tag tag = 0;
  std::uint64_t cookie = 0;    ///< as submitted
  std::uint8_t operation = 0;  ///< likewise
  bool answered = true;        ///< false: the backend went away without an answer
  std::int16_t status = 0;     ///< as on the wire
  std::uint64_t sector = 0;
  std::uint64_t sectors = 0;
  std::span<const part> parts{};  ///< of a read that was okay: what it read

  [[nodiscard]] bool okay() const noexcept {
    return answered && status == static_cast<std::int16_t>(protocol::blkif::status::okay);
  }
  [[nodiscard]] bool is(protocol::blkif::status expected) const noexcept {
    return answered && status == static_cast<std::int16_t>(expected);
  }

  /// Calls `f(offset, bytes)` for each part of what was read, in order; `offset` counts bytes from
  /// the request's start.
  template <class F>
  void for_each_part(F&& f) const {
    std::size_t offset = 0;
    for (const part& p : parts) {
      f(offset, std::span<const std::byte>(p.page + p.where.offset(), p.where.bytes()));
      offset += p.where.bytes();
    }
  }

  /// Copies what was read. \pre `to` has room for all of it
  void copy_to(std::span<std::byte> to) const {
    for_each_part([to](std::size_t offset, std::span<const std::byte> bytes) {
      std::memcpy(to.data() + offset, bytes.data(), bytes.size());
    });
  }
};

}  // namespace pvring::testing
