// SPDX-License-Identifier: MIT
// A frontend for benchmarks: one ring and the pages of its requests, granted once and used again
// and again, as blkfront does with persistent grants. It skips the handshake, so that what is
// measured is the data path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "pvring/platform/emulated.hpp"
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/front_ring.hpp"

namespace bench {

namespace blkif = pvring::protocol::blkif;

inline constexpr std::size_t page_bytes = pvring::platform::page_size;
inline constexpr pvring::domain_id backend_domain = 0;

struct guest_shape {
  std::size_t ring_pages = 1;
  std::uint32_t requests = 32;             ///< in flight at most
  std::size_t largest_bytes = page_bytes;  ///< of a request
  pvring::domain_id domain = 1;
};

/// Pages of memory that a host for guests of this shape needs.
[[nodiscard]] inline std::uint32_t pages_for(const guest_shape& shape) {
  const std::size_t data = (shape.largest_bytes + page_bytes - 1) / page_bytes;
  const std::size_t tables =
      (data + blkif::segments_per_indirect_page - 1) / blkif::segments_per_indirect_page;
  return static_cast<std::uint32_t>(shape.ring_pages + shape.requests * (data + tables) + 64);
}

/// \param guests that will live on it
[[nodiscard]] inline pvring::platform::emulated_host make_host(const guest_shape& shape,
                                                               std::uint32_t guests = 1) {
  const std::uint32_t pages = pages_for(shape);
  return pvring::platform::emulated_host::create({.domains = guests + 1,
                                                  .pages_per_domain = pages,
                                                  .grants_per_domain = pages + 64,
                                                  .grant_handles = guests + 3,
                                                  .event_handles = 2 * guests + 6,
                                                  .store_connections = 4});
}

/// One thread uses it. A request is known by its tag, 0 to `requests` - 1, and always uses the
/// tag's own pages.
class guest {
 public:
  using wire = blkif::wire<blkif::abi::x86_64>;
  using front_ring = pvring::ring::front_ring<wire>;

  guest(const pvring::platform::emulated_host& host, const guest_shape& shape)
      : shape_(shape),
        domain_(host.create_domain(shape.domain)),
        events_(domain_.open_events()),
        port_(events_.alloc_unbound(backend_domain)) {
    ring_memory_ = {domain_.allocate_pages(shape.ring_pages), shape.ring_pages * page_bytes};
    for (std::size_t i = 0; i < shape.ring_pages; ++i) {
      ring_references_.push_back(grant(ring_memory_.data() + i * page_bytes));
    }
    ring_.emplace(ring_memory_);
    const std::size_t pages = (shape.largest_bytes + page_bytes - 1) / page_bytes;
    const std::size_t tables =
        (pages + blkif::segments_per_indirect_page - 1) / blkif::segments_per_indirect_page;
    tags_.resize(shape.requests);
    for (request_pages& t : tags_) {
      t.data = domain_.allocate_pages(pages);
      for (std::size_t i = 0; i < pages; ++i) {
        t.references.push_back(grant(t.data + i * page_bytes));
      }
      t.table = domain_.allocate_pages(tables);
      for (std::size_t i = 0; i < tables; ++i) {
        t.table_references.push_back(grant(t.table + i * page_bytes));
      }
      auto* segments = reinterpret_cast<blkif::segment*>(t.table);
      for (std::size_t i = 0; i < pages; ++i) {
        segments[i] = {.gref = t.references[i], .first_sect = 0, .last_sect = 7, .reserved = {}};
      }
    }
  }

  [[nodiscard]] front_ring& ring() noexcept { return *ring_; }
  [[nodiscard]] std::span<std::byte> ring_memory() const noexcept { return ring_memory_; }
  [[nodiscard]] std::span<const pvring::platform::grant_reference> ring_references()
      const noexcept {
    return ring_references_;
  }
  [[nodiscard]] pvring::platform::port port() const noexcept { return port_; }
  [[nodiscard]] pvring::domain_id id() const noexcept { return shape_.domain; }
  [[nodiscard]] const guest_shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<std::byte> data(std::uint32_t tag) noexcept {
    return {tags_[tag].data, shape_.largest_bytes};
  }
  [[nodiscard]] pvring::platform::emulated_events& events() noexcept { return events_; }

  /// Puts a read or write of `bytes` bytes, whole sectors, with the tag's pages. \pre the ring has
  /// space
  void put(std::uint32_t tag, std::uint8_t operation, std::uint64_t sector,
           std::size_t bytes) noexcept {
    const auto& of = tags_[tag];
    const auto segments = static_cast<std::uint16_t>((bytes + page_bytes - 1) / page_bytes);
    const auto last =
        static_cast<std::uint8_t>((bytes - (segments - 1U) * page_bytes) / blkif::sector_bytes - 1);
    outgoing_.id = tag;
    outgoing_.sector_number = pvring::untrusted(sector);
    outgoing_.nr_segments = pvring::untrusted(segments);
    if (segments <= blkif::max_direct_segments) {
      outgoing_.operation = operation;
      for (std::uint16_t i = 0; i < segments; ++i) {
        outgoing_.direct[i] = {.gref = of.references[i],
                               .first_sect = 0,
                               .last_sect = i + 1 == segments ? last : blkif::last_sector_of_page,
                               .reserved = {}};
      }
    } else {
      outgoing_.operation = blkif::operation::indirect;
      outgoing_.indirect_operation = operation;
      auto* entries = reinterpret_cast<blkif::segment*>(of.table);
      // Only the last segment differs from one request of a tag to the next; it is set back when
      // its answer is taken.
      entries[segments - 1].last_sect = last;
      std::copy_n(of.table_references.begin(), wire::pages_for(segments), outgoing_.indirect_grefs);
    }
    tags_[tag].last_segment = static_cast<std::uint16_t>(segments - 1);
    ring_->put(outgoing_);
  }

  /// Puts a read or write of `segments` pages with `sectors` sectors of each, from its start. \pre
  /// the ring has space
  void put_segments(std::uint32_t tag, std::uint8_t operation, std::uint64_t sector,
                    std::uint16_t segments, std::uint8_t sectors) noexcept {
    const auto& of = tags_[tag];
    outgoing_.id = tag;
    outgoing_.sector_number = pvring::untrusted(sector);
    outgoing_.nr_segments = pvring::untrusted(segments);
    const bool direct = segments <= blkif::max_direct_segments;
    outgoing_.operation = direct ? operation : blkif::operation::indirect;
    outgoing_.indirect_operation = operation;
    auto* const entries = direct ? outgoing_.direct : reinterpret_cast<blkif::segment*>(of.table);
    for (std::uint16_t i = 0; i < segments; ++i) {
      entries[i] = {.gref = of.references[i],
                    .first_sect = 0,
                    .last_sect = static_cast<std::uint8_t>(sectors - 1),
                    .reserved = {}};
    }
    std::copy_n(of.table_references.begin(), direct ? 0 : wire::pages_for(segments),
                outgoing_.indirect_grefs);
    tags_[tag].last_segment = 0;
    ring_->put(outgoing_);
  }

  /// Shows what was put; kicks the backend where it wants that. Returns whether it did.
  bool publish() noexcept {
    if (!ring_->publish()) {
      return false;
    }
    events_.notify(port_);
    return true;
  }

  /// Takes the answers that are there, `each(tag, okay)`, and returns how many.
  template <class Each>
  std::size_t take(Each&& each) noexcept {
    return ring_->take(ring_->size(), [&](const wire::response& response) {
      const auto tag = static_cast<std::uint32_t>(response.id);
      if (tag < tags_.size() && shape_.largest_bytes > blkif::max_direct_segments * page_bytes) {
        auto* entries = reinterpret_cast<blkif::segment*>(tags_[tag].table);
        entries[tags_[tag].last_segment].last_sect = blkif::last_sector_of_page;
      }
      each(tag, response.status == static_cast<std::int16_t>(blkif::status::okay));
    });
  }

  /// Asks for a notification of the next answer, as an interrupt handler does before it returns.
  /// True: there is one already.
  [[nodiscard]] bool arm() noexcept {
    while (events_.pending()) {
    }
    const bool there = ring_->arm();
    events_.unmask(port_);
    return there;
  }

 private:
  struct request_pages {
    std::byte* data = nullptr;
    std::byte* table = nullptr;  // segments of indirect requests
    std::vector<pvring::platform::grant_reference> references;
    std::vector<pvring::platform::grant_reference> table_references;
    std::uint16_t last_segment = 0;
  };

  pvring::platform::grant_reference grant(const std::byte* page) {
    return domain_.grant(backend_domain, page, pvring::platform::access::read_write);
  }

  guest_shape shape_;
  pvring::platform::emulated_guest domain_;
  pvring::platform::emulated_events events_;
  pvring::platform::port port_;
  std::vector<pvring::platform::grant_reference> ring_references_;
  std::span<std::byte> ring_memory_;
  std::optional<front_ring> ring_;
  std::vector<request_pages> tags_;
  wire::request outgoing_{};
};

}  // namespace bench
