// SPDX-License-Identifier: MIT
// The requests that a frontend queue has put into its ring: their pages, and what their responses
// have to say. The counterpart of what blkfront calls its shadow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../platform/emulated/guest.hpp"
#include "../protocol/blkif_abi.hpp"
#include "block_request.hpp"
#include "guest_pages.hpp"
#include "page_guard.hpp"

namespace pvring::testing {

/// A request that the backend has.
struct in_flight_request {
  bool busy = false;
  bool indirect = false;
  std::uint8_t operation = 0;  ///< what the response has to echo
  std::uint8_t flag = 0;
  block_tag tag = 0;
  std::uint64_t cookie = 0;
  std::uint64_t sector = 0;
  std::uint64_t sectors = 0;
  std::vector<block_completion::part> parts;
  std::vector<granted_page> pages;          ///< of the parts
  std::vector<granted_page> segment_pages;  ///< of an indirect request's segments

  /// Its end, without data.
  [[nodiscard]] block_completion completion() const noexcept {
    block_completion end;
    end.tag = tag;
    end.cookie = cookie;
    end.operation = operation;
    end.sector = sector;
    end.sectors = sectors;
    return end;
  }
};

/// Whether what lies around the segments is as `set_guard` left it.
[[nodiscard]] inline bool is_guarded(const in_flight_request& r) {
  return std::all_of(r.parts.begin(), r.parts.end(), [](const block_completion::part& p) {
    return is_guarded(p.page, p.where.offset(), p.where.bytes());
  });
}

/// One thread uses it.
class in_flight_table {
 public:
  /// The guest outlives it.
  in_flight_table(platform::emulated_guest& guest, domain_id backend) : pages_(guest, backend) {}

  /// Makes room for `slots` requests. \pre it is empty
  void open(std::size_t slots) {
    requests_.resize(slots);
    for (std::size_t i = slots; i-- != 0;) {
      free_.push_back(static_cast<std::uint16_t>(i));
    }
  }
  void set_persistent(bool persistent) noexcept { pages_.set_persistent(persistent); }

  /// Forgets all requests and frees all pages. Returns how many pages are still mapped, those
  /// included that were given up since the last time.
  [[nodiscard]] std::size_t close() {
    const std::size_t before = std::exchange(told_, pages_.lost());
    const std::size_t given_up = pages_.lost() - before;
    const std::size_t mapped = pages_.clear();
    told_ = pages_.lost();
    requests_.clear();
    free_.clear();
    return mapped + given_up;
  }

  [[nodiscard]] std::size_t slots() const noexcept { return requests_.size(); }
  [[nodiscard]] std::size_t room() const noexcept { return free_.size(); }

  /// Takes pages for a request and grants them. Nothing where there are not enough.
  [[nodiscard]] in_flight_request* begin(const block_request& from, bool indirect) {
    if (free_.empty()) {
      return nullptr;
    }
    in_flight_request& r = requests_[free_.back()];
    if (!take_pages(r, from, indirect)) {
      return nullptr;
    }
    free_.pop_back();
    r.busy = true;
    r.indirect = indirect;
    r.operation = from.operation;
    r.flag = from.flag;
    r.cookie = from.cookie;
    r.sector = from.sector;
    r.sectors = from.sectors;
    if (from.operation != protocol::blkif::operation::discard) {
      r.sectors = 0;
      for (const block_segment& part : from.segments) {
        r.sectors += part.sectors();
      }
    }
    // Linux's mark is the slot's number alone. With a count besides, a response to an earlier
    // request is told from one to this, and the upper half of the field is in use.
    r.tag = ++count_ << 16U | static_cast<std::uint64_t>(&r - requests_.data());
    return &r;
  }

  /// What goes into the ring; fills the pages that hold an indirect request's segments.
  [[nodiscard]] static protocol::blkif::request encode(const in_flight_request& r) {
    namespace blkif = protocol::blkif;
    blkif::request wire{};
    wire.id = r.tag;
    wire.operation = r.indirect ? blkif::operation::indirect : r.operation;
    wire.indirect_operation = r.operation;
    wire.flag = r.flag;
    wire.sector_number = untrusted(r.sector);
    wire.nr_sectors = untrusted(r.sectors);
    wire.nr_segments = untrusted(static_cast<std::uint16_t>(r.parts.size()));
    for (std::size_t i = 0; i < r.segment_pages.size(); ++i) {
      wire.indirect_grefs[i] = r.segment_pages[i].reference;
    }
    for (std::size_t i = 0; i < r.parts.size(); ++i) {
      const block_segment& where = r.parts[i].where;
      const blkif::segment one{r.pages[i].reference, where.first_sect, where.last_sect, {}};
      if (r.indirect) {
        const granted_page& page = r.segment_pages[i / blkif::segments_per_indirect_page];
        const std::size_t at = i % blkif::segments_per_indirect_page * sizeof one;
        std::memcpy(page.address + at, &one, sizeof one);
      } else {
        wire.direct[i] = one;
      }
    }
    return wire;
  }

  /// The request that an id names, or the reason why it names none.
  [[nodiscard]] in_flight_request* find(std::uint64_t id, std::string& why_not) {
    const std::size_t index = id & 0xffffU;
    if (index >= requests_.size()) {
      why_not = "the unknown id " + std::to_string(id);
      return nullptr;
    }
    in_flight_request& r = requests_[index];
    if (!r.busy || r.tag != id) {
      why_not = "the id " + std::to_string(id) + ", which is not in flight";
      return nullptr;
    }
    return &r;
  }

  /// Ends the grants of a request. False where one is still mapped and must not be.
  [[nodiscard]] bool end_grants(in_flight_request& r) {
    bool ended = true;
    for (std::vector<granted_page>* pages : {&r.pages, &r.segment_pages}) {
      for (granted_page& page : *pages) {
        ended = pages_.end(page) && ended;
      }
    }
    return ended;
  }

  /// Gives pages back: backwards, so that the next request of a persistent pool gets the same ones
  /// in the same order.
  void give_back(std::vector<granted_page>& pages) {
    for (std::size_t i = pages.size(); i-- != 0;) {
      pages_.give_back(pages[i]);
    }
    pages.clear();
  }

  /// Its slot can be used again. \pre its pages were taken out or given back
  void retire(in_flight_request& r) {
    r.busy = false;
    free_.push_back(static_cast<std::uint16_t>(&r - requests_.data()));
  }

  template <class F>
  void for_each(F&& f) {
    for (in_flight_request& r : requests_) {
      if (r.busy) {
        f(r);
      }
    }
  }

 private:
  bool take_pages(in_flight_request& r, const block_request& from, bool indirect) {
    namespace blkif = protocol::blkif;
    const auto how = from.operation == blkif::operation::read ? platform::access::read_write
                                                              : platform::access::read_only;
    const std::size_t lists = indirect
                                  ? (from.segments.size() + blkif::segments_per_indirect_page - 1) /
                                        blkif::segments_per_indirect_page
                                  : 0;
    r.pages.clear();
    r.segment_pages.clear();
    r.parts.clear();
    for (const block_segment& where : from.segments) {
      if (!take_page(r.pages, how)) {
        return take_none(r);
      }
      r.parts.push_back({r.pages.back().address, where});
    }
    for (std::size_t i = 0; i < lists; ++i) {
      if (!take_page(r.segment_pages, platform::access::read_only)) {
        return take_none(r);
      }
    }
    return true;
  }

  bool take_page(std::vector<granted_page>& into, platform::access how) {
    const auto page = pages_.take(how);
    if (page) {
      into.push_back(*page);
    }
    return page.has_value();
  }

  bool take_none(in_flight_request& r) {
    (void)end_grants(r);
    give_back(r.segment_pages);
    give_back(r.pages);
    return false;
  }

  guest_pages pages_;
  std::vector<in_flight_request> requests_;
  std::vector<std::uint16_t> free_;
  std::uint64_t count_ = 0;
  std::size_t told_ = 0;  // of the pages that were given up, those that close() told of
};

/// Whether a request has to be indirect where direct ones have up to 11 segments.
/// \param most segments of an indirect one; 0: there are none
/// \throws std::invalid_argument for what no frontend could put
[[nodiscard]] inline bool needs_indirect(const block_request& request, std::uint32_t most) {
  namespace blkif = protocol::blkif;
  for (const block_segment& s : request.segments) {
    if (s.first_sect > s.last_sect || s.last_sect > blkif::last_sector_of_page) {
      throw std::invalid_argument("a segment from sector " + std::to_string(s.first_sect) + " to " +
                                  std::to_string(s.last_sect) + " of its page");
    }
  }
  const std::size_t count = request.segments.size();
  const bool indirect = request.indirect || count > blkif::max_direct_segments;
  if (indirect && count > most) {
    throw std::invalid_argument("a request of " + std::to_string(count) +
                                " segments, where indirect ones may have " + std::to_string(most));
  }
  return indirect;
}

}  // namespace pvring::testing
