// SPDX-License-Identifier: MIT
// Maps each request's pages with one call and unmaps them with another before its answer. Zero copy
// without any help from the frontend, at the price of two calls per request.
#pragma once

#include <algorithm>
#include <cerrno>
#include <vector>

#include "strategy.hpp"

namespace pvring::grant {

struct map_each {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "map_each";
  static constexpr bool needs_frontend = false;
  /// A frontend takes an answer for the word that its pages are unmapped. A backend that takes over
  /// cannot give it: Linux unmaps what a killed process had mapped only when no I/O holds the pages
  /// any more, which may be after its end, and nobody can ask whether it is done.
  static constexpr bool answer_frees_grants = true;

  [[nodiscard]] static constexpr bool usable(const circumstances& known) noexcept {
    return known.mapping_safe;
  }

  template <platform::grant_mapper Mapper>
  class bind;
};

template <platform::grant_mapper Mapper>
class map_each::bind : public detail::strategy_base {
 public:
  static constexpr bool mapped = true;

  bind(Mapper& mapper, const strategy_options& options)
      : mapper_(mapper),
        domain_(options.domain),
        quota_(std::max<std::size_t>(options.quota_pages != 0
                                         ? options.quota_pages
                                         : std::size_t{options.max_leases} * options.max_pieces,
                                     options.max_pieces)),
        references_(options.max_pieces) {}

  [[nodiscard]] acquired acquire(lease_state& lease) noexcept {
    const std::size_t count = lease.pieces.size();
    if (pages_ + count > quota_ && leases_ != 0) {
      counters_.waits.add();
      return acquired::wait;
    }
    for (std::size_t i = 0; i < count; ++i) {
      references_[i] = lease.pieces[i].reference;
    }
    // The peer's data of a write is only looked at; what a read brings has to be stored.
    const auto access = lease.direction == platform::direction::to_peer
                            ? platform::access::read_write
                            : platform::access::read_only;
    counters_.calls.add();
    const platform::map_result result = mapper_.map(domain_, {references_.data(), count}, access);
    if (!result.pages) {
      counters_.failures.add();
      if (result.error == ENOSPC && leases_ != 0) {
        counters_.waits.add();
        return acquired::wait;
      }
      lease.error = -EIO;
      lease.pages = {};
      ++leases_;
      return acquired::failed;
    }
    counters_.operations.add(count);
    counters_.misses.add(count);
    lease.pages = result.pages;
    for (std::size_t i = 0; i < count; ++i) {
      lease.append(result.pages.address + i * platform::page_size + lease.pieces[i].offset,
                   lease.pieces[i].length);
    }
    pages_ += count;
    ++leases_;
    return acquired::ready;
  }

  template <class F>
  void finish_acquires(F&& /*each*/) noexcept {}

  template <class F>
  void release(lease_state& lease, bool /*ok*/, F&& each) noexcept {
    if (lease.pages) {
      counters_.calls.add();
      counters_.operations.add(lease.pages.count);
      if (mapper_.unmap(lease.pages) != 0) [[unlikely]] {
        // The peer would find its page still mapped, so this is no success whatever the I/O came
        // to.
        counters_.failures.add();
        lease.error = -EIO;
      }
      pages_ -= lease.pages.count;
      lease.pages = {};
    }
    --leases_;
    prove(lease, each);
  }

  template <class F>
  void finish_releases(F&& /*each*/) noexcept {}

  [[nodiscard]] std::uint64_t trim(std::uint64_t /*now*/) noexcept { return 0; }
  void clear() noexcept {}
  [[nodiscard]] std::uint32_t leases() const noexcept { return leases_; }

 private:
  Mapper& mapper_;
  domain_id domain_;
  std::size_t quota_;
  std::size_t pages_ = 0;
  std::uint32_t leases_ = 0;
  std::vector<platform::grant_reference> references_;
};

}  // namespace pvring::grant
