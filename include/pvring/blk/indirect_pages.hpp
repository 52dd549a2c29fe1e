// SPDX-License-Identifier: MIT
// Where the segments of indirect requests come from and go to: pages of the frontend are read once,
// for all requests of a pass together, and their private copies are kept in tables that requests
// share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../base/counter.hpp"
#include "../grant/arena.hpp"
#include "../grant/run_allocator.hpp"
#include "../grant/strategy.hpp"
#include "../protocol/blkif.hpp"
#include "../ring/shared_access.hpp"

namespace pvring::blk {

/// Room for the pieces and buffers of indirect requests, handed out in runs: not every slot gets
/// the largest request's.
class segment_tables {
 public:
  /// \param slots of the ring  \param largest segments of an indirect request; 0: none are offered
  segment_tables(std::size_t slots, std::size_t largest)
      : runs_(units_for(slots, largest)),
        pieces_(runs_.units() * unit),
        buffers_(runs_.units() * unit) {}

  /// Room for `segments`, or nothing for now. \pre `segments` is at most the largest
  [[nodiscard]] std::optional<std::uint32_t> take(std::size_t segments) noexcept {
    return runs_.take(units(segments));
  }
  void give_back(std::uint32_t table, std::size_t segments) noexcept {
    runs_.give_back(table, units(segments));
  }

  [[nodiscard]] std::span<grant::piece> pieces(std::uint32_t table, std::size_t segments) noexcept {
    return {&pieces_[table * unit], segments};
  }
  [[nodiscard]] std::span<iovec> buffers(std::uint32_t table, std::size_t segments) noexcept {
    return {&buffers_[table * unit], segments};
  }

 private:
  static constexpr std::size_t unit = 16;   // segments
  static constexpr std::size_t usual = 32;  // segments of an indirect request of Linux

  static std::uint32_t units(std::size_t segments) noexcept {
    return static_cast<std::uint32_t>((segments + unit - 1) / unit);
  }
  static std::uint32_t units_for(std::size_t slots, std::size_t largest) noexcept {
    return largest == 0 ? 0 : std::max(units(slots * std::min(usual, largest)), units(largest) * 2);
  }

  grant::run_allocator runs_;
  std::vector<grant::piece> pieces_;
  std::vector<iovec> buffers_;
};

/// Reads segment pages. Copied where the platform copies, one call for all that were added; else
/// mapped, each page loaded once, and unmapped.
template <platform::grant_mapper Mapper>
class indirect_pages {
 public:
  indirect_pages(Mapper& mapper, domain_id domain, std::size_t largest)
      : mapper_(mapper),
        domain_(domain),
        room_(largest == 0 ? 0 : std::max(pages(largest), most_pages)),
        stride_(std::min(std::bit_ceil(largest * sizeof(protocol::blkif::segment)),
                         platform::page_size)) {
    if (room_ != 0) {
      scratch_.emplace(static_cast<std::uint32_t>((room_ * stride_ + platform::page_size - 1) /
                                                  platform::page_size));
      operations_.reserve(room_);
      jobs_.reserve(room_);
    }
  }

  /// Adds one request's pages; false when there is no room before the next run().
  [[nodiscard]] bool add(void* owner, std::span<const std::uint32_t> grefs,
                         std::uint16_t segments) noexcept {
    if (operations_.size() + grefs.size() > room_) {
      return false;
    }
    jobs_.push_back({owner, operations_.size(), grefs.size(), segments});
    std::size_t left = segments;
    for (const std::uint32_t gref : grefs) {
      const std::size_t here =
          std::min<std::size_t>(left, protocol::blkif::segments_per_indirect_page);
      operations_.push_back(
          {.local = scratch_->page(0) + operations_.size() * stride_,
           .reference = gref,
           .offset = 0,
           .length = static_cast<std::uint16_t>(here * sizeof(protocol::blkif::segment))});
      left -= here;
    }
    return true;
  }

  /// Reads all that was added and calls `each(owner, segments)` for every request; without segments
  /// where reading failed.
  template <class Each>
  void run(Each&& each) noexcept {
    if (jobs_.empty()) {
      return;
    }
    fetch(operations_);
    if (failed_ && jobs_.size() > 1) {
      // The call failed as a whole: only the culprit's own call fails again.
      for (const job& j : jobs_) {
        fetch(operations_of(j));
      }
    }
    for (const job& j : jobs_) {
      const std::span<platform::copy_operation> own = operations_of(j);
      const bool good =
          std::all_of(own.begin(), own.end(), [](const platform::copy_operation& operation) {
            return operation.status == platform::grant_status::okay;
          });
      // Pages of one request are neighbours in the scratch, and all but the last are full.
      const auto* first = reinterpret_cast<const protocol::blkif::segment*>(own.front().local);
      each(j.owner, std::span<const protocol::blkif::segment>(first, good ? j.segments : 0));
    }
    operations_.clear();
    jobs_.clear();
  }

  [[nodiscard]] const counter& calls() const noexcept { return calls_; }

 private:
  struct job {
    void* owner;
    std::size_t first;
    std::size_t count;
    std::uint16_t segments;
  };
  static constexpr std::size_t most_pages = 32;

  static constexpr std::size_t pages(std::size_t segments) noexcept {
    return (segments + protocol::blkif::segments_per_indirect_page - 1) /
           protocol::blkif::segments_per_indirect_page;
  }

  std::span<platform::copy_operation> operations_of(const job& j) noexcept {
    return {&operations_[j.first], j.count};
  }

  void fetch(std::span<platform::copy_operation> operations) noexcept {
    if (!mapper_.has_copy()) {
      failed_ = false;
      for (platform::copy_operation& operation : operations) {
        operation.status = map_and_copy(operation) ? platform::grant_status::okay
                                                   : platform::grant_status::general_error;
      }
      return;
    }
    calls_.add();
    failed_ = mapper_.copy(domain_, platform::direction::from_peer, operations) != 0;
    if (failed_) {
      for (platform::copy_operation& operation : operations) {
        operation.status = platform::grant_status::general_error;
      }
    }
  }

  bool map_and_copy(const platform::copy_operation& operation) noexcept {
    calls_.add(2);
    const platform::map_result result =
        mapper_.map(domain_, {&operation.reference, 1}, platform::access::read_only);
    if (!result.pages) {
      return false;
    }
    ring::copy_once(operation.local, result.pages.address, operation.length);
    return mapper_.unmap(result.pages) == 0;
  }

  Mapper& mapper_;
  domain_id domain_;
  std::size_t room_;
  std::size_t stride_;  // bytes of scratch per page of segments: a power of two, so that none
                        // crosses a local page
  bool failed_ = false;
  std::optional<grant::arena> scratch_;
  std::vector<platform::copy_operation> operations_;
  std::vector<job> jobs_;
  counter calls_;
};

}  // namespace pvring::blk
