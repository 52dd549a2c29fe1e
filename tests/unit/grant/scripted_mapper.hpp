// SPDX-License-Identifier: MIT
// A grant handle without a platform: peer pages are ordinary memory, results follow a script, and
// every call is recorded. For what a strategy does; that a platform does what it should is tested
// elsewhere.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "pvring/platform/grant_mapper.hpp"

namespace pvring::test {

class scripted_mapper {
 public:
  struct peer_page {
    std::vector<std::byte> bytes = std::vector<std::byte>(platform::page_size);
    bool writable = true;
  };

  // ---- the script
  std::map<platform::grant_reference, peer_page> peer;  // what is not here is a bad reference
  std::deque<int> map_errors;                           // consumed call by call; 0: as usual
  std::deque<int> copy_errors;
  std::map<platform::grant_reference, std::int16_t> statuses;
  bool copies = true;

  // ---- the record
  struct map_call {
    std::vector<platform::grant_reference> references;
    platform::access access;
  };
  std::vector<map_call> maps;
  std::vector<platform::mapping> unmaps;
  std::vector<std::vector<platform::copy_operation>> copy_calls;
  std::vector<platform::direction> copy_directions;
  std::size_t mapped_pages = 0;

  // ---- grant_mapper
  [[nodiscard]] bool has_copy() const noexcept { return copies; }
  [[nodiscard]] std::size_t batch_limit() const noexcept { return 1024; }

  platform::map_result map(domain_id /*domain*/,
                           std::span<const platform::grant_reference> references,
                           platform::access access) noexcept {
    maps.push_back({{references.begin(), references.end()}, access});
    if (!map_errors.empty()) {
      const int error = map_errors.front();
      map_errors.pop_front();
      if (error != 0) {
        return {{}, error};
      }
    }
    for (const auto reference : references) {
      const auto at = peer.find(reference);
      if (at == peer.end() || (access == platform::access::read_write && !at->second.writable)) {
        return {{}, EINVAL};
      }
    }
    // Contiguous, as a platform's is; the peer's bytes are copied, as no test here looks through a
    // mapping.
    auto region = std::make_unique<std::byte[]>(references.size() * platform::page_size);
    for (std::size_t i = 0; i < references.size(); ++i) {
      std::memcpy(region.get() + i * platform::page_size, peer[references[i]].bytes.data(),
                  platform::page_size);
    }
    const platform::mapping pages{region.get(), static_cast<std::uint32_t>(references.size())};
    live_.emplace(pages.address, std::pair(std::move(region), pages.count));
    mapped_pages += pages.count;
    return {pages, 0};
  }

  int unmap(platform::mapping pages) noexcept {
    unmaps.push_back(pages);
    const auto at = live_.find(pages.address);
    if (at == live_.end() || at->second.second != pages.count) {
      return EINVAL;
    }
    mapped_pages -= pages.count;
    live_.erase(at);
    return 0;
  }

  int copy(domain_id /*domain*/, platform::direction way,
           std::span<platform::copy_operation> operations) noexcept {
    copy_calls.emplace_back(operations.begin(), operations.end());
    copy_directions.push_back(way);
    if (!copy_errors.empty()) {
      const int error = copy_errors.front();
      copy_errors.pop_front();
      if (error != 0) {
        return error;
      }
    }
    for (platform::copy_operation& operation : operations) {
      const auto local = reinterpret_cast<std::uintptr_t>(operation.local) % platform::page_size;
      crossed |= local + operation.length > platform::page_size;
      const auto scripted = statuses.find(operation.reference);
      const auto page = peer.find(operation.reference);
      if (scripted != statuses.end()) {
        operation.status = scripted->second;
      } else if (page == peer.end()) {
        operation.status = platform::grant_status::bad_reference;
      } else {
        std::byte* remote = page->second.bytes.data() + operation.offset;
        if (way == platform::direction::from_peer) {
          std::memcpy(operation.local, remote, operation.length);
        } else {
          std::memcpy(remote, operation.local, operation.length);
        }
        operation.status = platform::grant_status::okay;
      }
    }
    return 0;
  }

  bool crossed = false;  // an operation left its local page

 private:
  std::map<std::byte*, std::pair<std::unique_ptr<std::byte[]>, std::uint32_t>> live_;
};
static_assert(platform::grant_mapper<scripted_mapper>);

}  // namespace pvring::test
