// SPDX-License-Identifier: MIT
// Keeps pages mapped from one request to the next, where the frontend promised to use the same ones
// again. A look-up is all that a request costs once the pool is warm; a request with misses costs
// one map call.
#pragma once

#include <algorithm>
#include <bit>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/unordered_set.hpp>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "strategy.hpp"

namespace pvring::grant {

struct persistent_pool {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "persistent_pool";
  static constexpr bool needs_frontend = true;

  [[nodiscard]] static constexpr bool usable(const circumstances& known) noexcept {
    return known.frontend_persistent && known.mapping_safe;
  }

  template <platform::grant_mapper Mapper>
  class bind;
};

/// What was mapped by one call can be unmapped only whole, so a call's pages form a group: users
/// are counted per group, and an unused group is in the list of those that may go, the longest
/// unused first. A page that was mapped read-only is never handed out for a read request, which
/// stores into it.
template <platform::grant_mapper Mapper>
class persistent_pool::bind : public detail::strategy_base {
 public:
  static constexpr bool mapped = true;

  bind(Mapper& mapper, const strategy_options& options)
      : mapper_(mapper),
        domain_(options.domain),
        idle_(options.idle_milliseconds),
        cap_(static_cast<std::uint32_t>(std::max<std::size_t>(
            options.quota_pages != 0 ? options.quota_pages : std::size_t{options.max_leases} * 11,
            options.max_pieces))),
        references_(options.max_pieces),
        misses_(options.max_pieces),
        pages_(cap_),
        groups_(cap_),
        buckets_(std::bit_ceil(std::size_t{cap_} * 2)),
        index_(typename index::bucket_traits(buckets_.data(), buckets_.size())) {
    for (std::uint32_t i = cap_; i-- != 0;) {
      free_pages_.push_front(pages_[i]);
      free_groups_.push_front(groups_[i]);
    }
  }
  bind(const bind&) = delete;
  bind& operator=(const bind&) = delete;
  ~bind() { clear(); }

  [[nodiscard]] acquired acquire(lease_state& lease) noexcept {
    std::size_t missing = look_up(lease);
    if (missing != 0) [[unlikely]] {
      while (mapped_ + missing > cap_ && !unused_.empty()) {
        evict(unused_.front());
      }
      if (mapped_ + missing > cap_) {
        let_go(lease, lease.pieces.size());
        if (leases_ != 0) {
          counters_.waits.add();
          return acquired::wait;
        }
        // This request alone pins groups that are larger than what it needs of them. With nobody
        // else about, start over: the cap is at least the largest request.
        clear();
        missing = look_up(lease);
      }
      const acquired outcome = map_missing(lease, missing);
      if (outcome != acquired::ready) {
        return outcome;
      }
    }
    counters_.hits.add(lease.pieces.size() - missing);
    for (const piece& part : lease.pieces) {
      lease.append(pages_[part.mark].address + part.offset, part.length);
    }
    lease.held = true;
    ++leases_;
    return acquired::ready;
  }

  template <class F>
  void finish_acquires(F&& /*each*/) noexcept {}

  template <class F>
  void release(lease_state& lease, bool /*ok*/, F&& each) noexcept {
    if (lease.held) {
      lease.held = false;
      let_go(lease, lease.pieces.size());
    }
    --leases_;
    prove(lease, each);
  }

  template <class F>
  void finish_releases(F&& /*each*/) noexcept {}

  /// Gives up groups that were unused for the idle time. \param now milliseconds of a monotonic
  /// clock
  [[nodiscard]] std::uint64_t trim(std::uint64_t now) noexcept {
    now_ = now;
    if (idle_ == 0) {
      return 0;
    }
    while (!unused_.empty() && unused_.front().since + idle_ <= now) {
      evict(unused_.front());
    }
    return unused_.empty() ? 0 : unused_.front().since + idle_;
  }

  void clear() noexcept {
    while (!unused_.empty()) {
      evict(unused_.front());
    }
  }

  [[nodiscard]] std::uint32_t leases() const noexcept { return leases_; }

  /// Pages mapped now, used or not.
  [[nodiscard]] std::uint32_t pages() const noexcept { return mapped_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // normal_link: hooks are relinked for every request, and a debug check of each costs more than
  // the look-up.
  using link = boost::intrusive::link_mode<boost::intrusive::normal_link>;

  struct group;
  struct page {
    boost::intrusive::unordered_set_member_hook<link> hash_hook;
    boost::intrusive::slist_member_hook<link> hook;  // free, or of its group
    std::byte* address = nullptr;
    group* owner = nullptr;
    platform::grant_reference reference = 0;
    bool writable = false;
  };
  using page_list = boost::intrusive::slist<
      page, boost::intrusive::member_hook<page, decltype(page::hook), &page::hook>,
      boost::intrusive::constant_time_size<false>>;
  struct group {
    boost::intrusive::list_member_hook<link> unused_hook;
    boost::intrusive::slist_member_hook<link> free_hook;
    platform::mapping mapping;
    page_list pages;
    std::uint32_t users = 0;
    std::uint64_t since = 0;
  };
  struct reference_of {
    using type = platform::grant_reference;
    const type& operator()(const page& p) const noexcept { return p.reference; }
  };
  struct hash {
    // References are small and dense; a multiplication spreads them over the upper bits, and the
    // fold brings those down.
    std::size_t operator()(platform::grant_reference reference) const noexcept {
      const std::uint64_t mixed = reference * 0x9e3779b97f4a7c15ULL;
      return static_cast<std::size_t>(mixed ^ (mixed >> 32U));
    }
  };
  using index = boost::intrusive::unordered_multiset<
      page, boost::intrusive::member_hook<page, decltype(page::hash_hook), &page::hash_hook>,
      boost::intrusive::key_of_value<reference_of>, boost::intrusive::hash<hash>,
      boost::intrusive::power_2_buckets<true>, boost::intrusive::constant_time_size<false>>;

  // Marks every piece with its page, and counts the group as used; returns how many have none.
  // Those are in misses_.
  std::size_t look_up(lease_state& lease) noexcept {
    const bool store = lease.direction == platform::direction::to_peer;
    std::size_t missing = 0;
    for (std::size_t i = 0; i < lease.pieces.size(); ++i) {
      piece& part = lease.pieces[i];
      page* found = find(part.reference, store);
      if (found == nullptr) [[unlikely]] {
        part.mark = none;
        misses_[missing++] = static_cast<std::uint32_t>(i);
        continue;
      }
      part.mark = static_cast<std::uint32_t>(found - pages_.data());
      use(*found->owner);
    }
    return missing;
  }

  page* find(platform::grant_reference reference, bool store) noexcept {
    auto at = index_.find(reference);
    // The same reference can be there twice: read-only, and writable since something had to be
    // stored.
    while (at != index_.end() && at->reference == reference) {
      if (!store || at->writable) {
        return &*at;
      }
      ++at;
    }
    return nullptr;
  }

  void use(group& g) noexcept {
    if (g.users++ == 0) {
      unused_.erase(unused_.iterator_to(g));
    }
  }

  void let_go(lease_state& lease, std::size_t count) noexcept {
    for (piece& part : lease.pieces.first(count)) {
      if (part.mark == none) {
        continue;
      }
      group& g = *pages_[part.mark].owner;
      if (--g.users == 0) {
        g.since = now_;
        unused_.push_back(g);
      }
      part.mark = none;
    }
  }

  // One call for all misses of a request. Writable even for a write: a page comes back for other
  // requests. Where the frontend granted it for reading only, that is tried too.
  acquired map_missing(lease_state& lease, std::size_t missing) noexcept {
    for (std::size_t i = 0; i < missing; ++i) {
      references_[i] = lease.pieces[misses_[i]].reference;
    }
    bool writable = true;
    platform::map_result result = map(missing, platform::access::read_write);
    if (!result.pages && result.error != ENOSPC &&
        lease.direction == platform::direction::from_peer) {
      writable = false;
      result = map(missing, platform::access::read_only);
    }
    if (!result.pages) {
      counters_.failures.add();
      let_go(lease, lease.pieces.size());
      if (result.error == ENOSPC && leases_ != 0) {
        counters_.waits.add();
        return acquired::wait;
      }
      lease.error = -EIO;
      lease.held = false;
      ++leases_;
      return acquired::failed;
    }
    counters_.operations.add(missing);
    counters_.misses.add(missing);
    group& g = free_groups_.front();
    free_groups_.pop_front();
    g.mapping = result.pages;
    for (std::size_t i = 0; i < missing; ++i) {
      page& p = free_pages_.front();
      free_pages_.pop_front();
      p.address = result.pages.address + i * platform::page_size;
      p.owner = &g;
      p.reference = references_[i];
      p.writable = writable;
      g.pages.push_front(p);
      index_.insert(p);
      lease.pieces[misses_[i]].mark = static_cast<std::uint32_t>(&p - pages_.data());
    }
    g.users = static_cast<std::uint32_t>(missing);
    mapped_ += static_cast<std::uint32_t>(missing);
    return acquired::ready;
  }

  platform::map_result map(std::size_t count, platform::access access) noexcept {
    counters_.calls.add();
    return mapper_.map(domain_, {references_.data(), count}, access);
  }

  void evict(group& g) noexcept {
    unused_.erase(unused_.iterator_to(g));
    while (!g.pages.empty()) {
      page& p = g.pages.front();
      g.pages.pop_front();
      index_.erase(index_.iterator_to(p));
      free_pages_.push_front(p);
    }
    counters_.calls.add();
    counters_.operations.add(g.mapping.count);
    counters_.evictions.add(g.mapping.count);
    if (mapper_.unmap(g.mapping) != 0) [[unlikely]] {
      counters_.failures.add();
    }
    mapped_ -= g.mapping.count;
    free_groups_.push_front(g);
  }

  Mapper& mapper_;
  domain_id domain_;
  std::uint32_t idle_;
  std::uint32_t cap_;
  std::uint32_t mapped_ = 0;
  std::uint32_t leases_ = 0;
  std::uint64_t now_ = 0;
  std::vector<platform::grant_reference> references_;
  std::vector<std::uint32_t> misses_;
  std::vector<page> pages_;
  std::vector<group> groups_;
  std::vector<typename index::bucket_type> buckets_;
  index index_;
  page_list free_pages_;
  boost::intrusive::slist<
      group, boost::intrusive::member_hook<group, decltype(group::free_hook), &group::free_hook>,
      boost::intrusive::constant_time_size<false>>
      free_groups_;
  boost::intrusive::list<
      group,
      boost::intrusive::member_hook<group, decltype(group::unused_hook), &group::unused_hook>,
      boost::intrusive::constant_time_size<false>>
      unused_;
};

}  // namespace pvring::grant
