// SPDX-License-Identifier: MIT
// A page that a control request names: read into a private copy, and written back where the request
// asks for that. Copied where the platform copies, else mapped for the moment.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../grant/arena.hpp"
#include "../platform/grant_mapper.hpp"
#include "../ring/shared_access.hpp"

namespace pvring::net {

/// One thread uses it; nothing allocates after construction. The copy stays until the next `read`.
template <platform::grant_mapper Mapper>
class peer_page {
 public:
  /// `mapper` outlives it. \throws std::system_error when there is no memory for a page
  peer_page(Mapper& mapper, domain_id domain) : mapper_(mapper), domain_(domain), memory_(1) {}

  /// The private copy; what no `read` has filled is what the last one left.
  [[nodiscard]] std::span<std::byte> bytes() noexcept {
    return memory_.region().first(platform::page_size);
  }

  /// Copies the first `length` bytes of the peer's page. False where it cannot be read.
  [[nodiscard]] bool read(platform::grant_reference reference, std::size_t length) noexcept {
    assert(length != 0 && length <= platform::page_size);
    if (mapper_.has_copy()) {
      return copy(platform::direction::from_peer, reference, length);
    }
    const platform::map_result result =
        mapper_.map(domain_, {&reference, 1}, platform::access::read_only);
    if (!result.pages) {
      return false;
    }
    constexpr std::size_t word = sizeof(std::uint64_t);
    ring::copy_once(memory_.page(0), result.pages.address, (length + word - 1) / word * word);
    return mapper_.unmap(result.pages) == 0;
  }

  /// Copies the first `length` bytes to the peer's page. False where it cannot be written.
  [[nodiscard]] bool write(platform::grant_reference reference, std::size_t length) noexcept {
    assert(length != 0 && length <= platform::page_size);
    if (mapper_.has_copy()) {
      return copy(platform::direction::to_peer, reference, length);
    }
    const platform::map_result result =
        mapper_.map(domain_, {&reference, 1}, platform::access::read_write);
    if (!result.pages) {
      return false;
    }
    std::memcpy(result.pages.address, memory_.page(0), length);
    return mapper_.unmap(result.pages) == 0;
  }

 private:
  bool copy(platform::direction way, platform::grant_reference reference,
            std::size_t length) noexcept {
    platform::copy_operation one{.local = memory_.page(0),
                                 .reference = reference,
                                 .offset = 0,
                                 .length = static_cast<std::uint16_t>(length)};
    return mapper_.copy(domain_, way, {&one, 1}) == 0 && one.status == platform::grant_status::okay;
  }

  Mapper& mapper_;
  domain_id domain_;
  grant::arena memory_;
};

}  // namespace pvring::net
