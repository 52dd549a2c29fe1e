// SPDX-License-Identifier: MIT
// Who may use a grant, and whether somebody does. The granting side and the mapping side meet here
// without a lock: each publishes what it is about to do and then looks at what the other published.
#pragma once

#include <time.h>

#include <cstdint>

#include "registry.hpp"

namespace pvring::platform::detail {

/// The status of an access to a grant by `self`, and the frame where it is `okay`.
struct grant_check {
  std::int16_t status = grant_status::okay;
  std::uint32_t frame = 0;
};

/// Xen answers -1 for most of these; telling them apart costs nothing and makes better messages.
[[nodiscard]] inline grant_check check_grant(const shared_state& state, std::uint32_t domain,
                                             grant_reference reference, domain_id self,
                                             bool write) noexcept {
  if (reference >= state.options().grants_per_domain) {
    return {grant_status::bad_reference};
  }
  const std::uint64_t word = shared(state.grant(domain, reference)).load();
  if ((word & grant_word::valid) == 0) {
    return {grant_status::bad_reference};
  }
  if (grant_word::peer(word) != self || (write && (word & grant_word::writable) == 0)) {
    return {grant_status::permission_denied};
  }
  return {grant_status::okay, grant_word::frame(word)};
}

/// Marks a grant as mapped once more by `handle`, before its entry is checked. False: it is mapped
/// too often.
[[nodiscard]] inline bool add_mark(const shared_state& state, std::uint32_t domain,
                                   grant_reference reference, std::uint32_t handle,
                                   std::uint32_t generation) noexcept {
  const auto mark = shared(state.mark(domain, reference, handle));
  const std::uint32_t old = mark.load(std::memory_order_relaxed);
  const std::uint32_t times = map_mark::of(old, generation) ? map_mark::times(old) : 0;
  if (times == 0xffffU) {
    return false;
  }
  // seq_cst: the granting side must see the mark, or we must see that it has ended the grant.
  mark.store(map_mark::make(generation, times + 1));
  return true;
}

inline void drop_mark(const shared_state& state, std::uint32_t domain, grant_reference reference,
                      std::uint32_t handle, std::uint32_t generation) noexcept {
  const auto mark = shared(state.mark(domain, reference, handle));
  const std::uint32_t times = map_mark::times(mark.load(std::memory_order_relaxed));
  // release: the pages were unmapped before.
  mark.store(times == 1 ? 0 : map_mark::make(generation, times - 1), std::memory_order_release);
}

/// Whether a live process has the grant mapped.
[[nodiscard]] inline bool is_grant_mapped(const shared_state& state, std::uint32_t domain,
                                          grant_reference reference) noexcept {
  for (std::uint32_t h = 0, n = state.options().grant_handles; h < n; ++h) {
    const std::uint32_t mark = shared(state.mark(domain, reference, h)).load();
    if (map_mark::times(mark) == 0) {
      continue;
    }
    slot_owner& owner = state.grants(h).owner;
    if (shared(owner.in_use).load() != 0 && map_mark::of(mark, shared(owner.generation).load()) &&
        is_alive(process_of(owner))) {
      return true;
    }
  }
  return false;
}

/// Waits until every copy that may have looked at the domain's grants before now is over. False:
/// one takes too long.
[[nodiscard]] inline bool wait_for_copies(const shared_state& state,
                                          std::uint32_t domain) noexcept {
  constexpr int short_looks = 200;
  constexpr int long_looks = 10'000;  // 100 µs apart: a second in all
  for (std::uint32_t h = 0, n = state.options().grant_handles; h < n; ++h) {
    grant_slot& slot = state.grants(h);
    const std::uint64_t seen = shared(slot.copying).load();
    if ((seen & 0xffU) != domain + 1) {
      continue;
    }
    for (int looks = 0;
         shared(slot.copying).load() == seen && !(looks > short_looks && is_abandoned(slot.owner));
         ++looks) {
      if (looks > short_looks + long_looks) {
        return false;
      }
      if (looks > short_looks) {
        const timespec pause{0, 100'000};
        (void)::nanosleep(&pause, nullptr);
      }
    }
  }
  return true;
}

/// Ends a grant, unless somebody has it mapped: then it stays as it was and the page must not be
/// reused.
[[nodiscard]] inline bool end_grant(const shared_state& state, std::uint32_t domain,
                                    grant_reference reference) noexcept {
  const auto entry = shared(state.grant(domain, reference));
  const std::uint64_t word = entry.load();
  if ((word & grant_word::valid) == 0 || is_grant_mapped(state, domain, reference)) {
    return false;
  }
  // Withdraw it first and look again: a map that marked it meanwhile either sees that, or we see
  // the mark.
  entry.store(0);
  if (is_grant_mapped(state, domain, reference) || !wait_for_copies(state, domain)) {
    entry.store(word);
    return false;
  }
  return true;
}

}  // namespace pvring::platform::detail
