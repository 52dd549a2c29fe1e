// SPDX-License-Identifier: MIT
// What ties a queue to its frontend: the mapped pages of a ring, and the bound port of a channel.
// Each is undone with the object.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "../platform/event_channel.hpp"
#include "../platform/grant_mapper.hpp"

namespace pvring::xenbus {

/// A ring's pages, mapped as long as the object lives, and unmapped with the count that they were
/// mapped with. The handle outlives it.
template <platform::grant_mapper Mapper>
class ring_mapping {
 public:
  /// \param directory of the nodes that name the pages, for the message
  /// \throws std::system_error naming domain and reference
  ring_mapping(Mapper& grants, domain_id domain,
               std::span<const platform::grant_reference> references, std::string_view directory)
      : grants_(grants) {
    const auto result = grants.map(domain, references, platform::access::read_write);
    if (!result.pages) {
      throw std::system_error(
          result.error, std::generic_category(),
          "mapping the ring of domain " + std::to_string(domain) + ", " +
              std::to_string(references.size()) + " pages from grant reference " +
              std::to_string(references.front()) + " (" + std::string(directory) +
              "); the frontend has to grant them for writing");
    }
    pages_ = result.pages;
  }
  ring_mapping(const ring_mapping&) = delete;
  ring_mapping& operator=(const ring_mapping&) = delete;
  ~ring_mapping() { (void)grants_.unmap(pages_); }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {pages_.address, pages_.count * platform::page_size};
  }

 private:
  Mapper& grants_;
  platform::mapping pages_;
};

/// A port that is bound to the frontend's as long as the object lives. The handle outlives it.
template <platform::event_channel Events>
struct bound_port {
  /// \throws std::system_error naming domain and port
  bound_port(Events& handle, domain_id domain, platform::port remote)
      : events(handle), number(handle.bind(domain, remote)) {}
  bound_port(const bound_port&) = delete;
  bound_port& operator=(const bound_port&) = delete;
  ~bound_port() { events.unbind(number); }

  Events& events;
  platform::port number;
};

}  // namespace pvring::xenbus
