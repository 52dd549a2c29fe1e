// SPDX-License-Identifier: MIT
// How a backend gets at the pages that a request grants: what every strategy has in common. A lease
// ties one request to its pages; it swallows the duty to answer, and gives it back only for the
// proof that the pages were released.
#pragma once

#include <sys/uio.h>

#include <boost/intrusive/slist.hpp>
#include <boost/intrusive/slist_hook.hpp>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "../base/config.hpp"
#include "../base/counter.hpp"
#include "../platform/grant_mapper.hpp"
#include "../ring/answer.hpp"

namespace pvring::grant {

/// A part of one granted page, already validated: offset + length is at most 4096 and length is not
/// 0.
struct piece {
  platform::grant_reference reference = 0;
  std::uint32_t mark = 0;    ///< the strategy's own
  std::uint16_t offset = 0;  ///< bytes
  std::uint16_t length = 0;  ///< bytes
};

/// What a strategy keeps of one request. The queue fills the first three members and owns the
/// storage behind both spans; it may not change anything between acquire and release.
struct lease_state {
  platform::direction direction = platform::direction::from_peer;
  std::span<piece> pieces;
  std::span<iovec> storage;  ///< room for one entry per piece

  std::uint32_t buffers =
      0;          ///< out: entries of `storage` in use; neighbours that touch are one entry
  int error = 0;  ///< out: 0 or a negative errno
  platform::mapping pages;  ///< the strategy's own
  std::uint32_t first = 0;  ///< the strategy's own
  bool held = false;        ///< the strategy's own
  bool kept = false;        ///< the strategy's own: its pages are mapped for longer than for it
  boost::intrusive::slist_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>
      hook;

  /// The request's bytes in local memory, in order.
  [[nodiscard]] std::span<iovec> local() const noexcept { return storage.first(buffers); }

  /// Adds a piece of local memory, merged into the last entry where it touches it in this address
  /// space. Nothing but that is a reason to merge: neighbouring frames or references are not
  /// neighbouring memory.
  void append(std::byte* address, std::size_t length) noexcept {
    if (buffers != 0) {
      iovec& last = storage[buffers - 1];
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == address) {
        last.iov_len += length;
        return;
      }
    }
    storage[buffers++] = {address, length};
  }
};

using lease_list = boost::intrusive::slist<
    lease_state,
    boost::intrusive::member_hook<lease_state, decltype(lease_state::hook), &lease_state::hook>,
    boost::intrusive::constant_time_size<false>, boost::intrusive::cache_last<true>>;

namespace detail {
class strategy_base;
}

/// Proof that a lease's pages are released. Only strategies make it.
class released {
 public:
  released(const released&) = delete;
  released& operator=(const released&) = delete;

  /// The lease that was released.
  [[nodiscard]] lease_state& lease() const noexcept { return *lease_; }
  /// 0, or the negative errno of acquiring or releasing.
  [[nodiscard]] int error() const noexcept { return lease_->error; }

 private:
  friend class detail::strategy_base;
  explicit released(lease_state& lease) noexcept : lease_(&lease) {}
  lease_state* lease_;
};

/// What a strategy's `bind` derives from: `prove(lease)` makes the `released` that release and
/// finish_releases call back with, once the lease holds nothing any more.
using strategy_base = detail::strategy_base;

/// A request's hold on its pages. \tparam Protocol the ring's protocol
template <class Protocol>
class lease : public lease_state {
 public:
  /// Takes the duty over; from here on it comes back for a proof only. Nothing else changes: what
  /// acquiring came to is known already.
  void bind(ring::obligation<Protocol>&& duty) noexcept { duty_ = std::move(duty); }

  [[nodiscard]] ring::answer<Protocol> settle(const released& proof,
                                              typename Protocol::status status) noexcept {
    assert(&proof.lease() == this);
    (void)proof;
    return std::move(duty_).settle(status);
  }

 private:
  ring::obligation<Protocol> duty_;
};

/// What acquiring came to.
enum class acquired : std::uint8_t {
  ready,   ///< the bytes are there
  queued,  ///< they are once finish_acquires has run
  wait,    ///< no room now; ask again, in order, after something was released
  failed,  ///< lease_state::error says why; release it all the same
};

/// What a bound strategy is made for. A request is refused room only while other leases are out,
/// provided that `budget_bytes` or `quota_pages` is at least `max_pieces` pages: the queue checks
/// that at connect.
struct strategy_options {
  domain_id domain = 0;
  std::uint32_t max_pieces = 11;  ///< of the largest request
  std::uint32_t max_leases = 32;  ///< out at a time
  std::size_t budget_bytes = 0;   ///< of bounce buffers; 0: the strategy's default
  std::size_t quota_pages = 0;    ///< mapped at a time; 0: the strategy's default
  std::uint32_t idle_milliseconds =
      60'000;  ///< after which an unused persistent mapping is given up; 0: never
  bool scatter =
      true;  ///< the engine takes several buffers per transfer, aligned to at most 512 bytes
};

/// What every bound strategy counts.
struct counters {
  counter calls;       ///< map, unmap and copy calls
  counter operations;  ///< pages mapped, unmapped or pieces copied
  counter hits;        ///< pieces found in a pool
  counter misses;      ///< pieces that were mapped
  counter evictions;   ///< pages unmapped to make room or for idling
  counter failures;    ///< calls that failed as a whole
  counter waits;       ///< requests that found no room
};

/// What is known when a strategy is chosen.
struct circumstances {
  bool has_copy = false;             ///< the platform copies
  bool frontend_persistent = false;  ///< the frontend agreed to feature-persistent
  bool mapping_safe = false;         ///< the image lets go of buffers at completion and at exit
};

namespace detail {
/// What all strategies are made of.
class strategy_base {
 public:
  [[nodiscard]] const grant::counters& counters() const noexcept { return counters_; }

 protected:
  template <class F>
  static void prove(lease_state& lease, F& each) noexcept {
    each(released(lease));
  }
  grant::counters counters_;
};

struct any_release {
  void operator()(const released&) const noexcept {}
};
struct any_acquire {
  void operator()(lease_state&) const noexcept {}
};
}  // namespace detail

/// A strategy bound to a platform's grant handle. One thread uses it. Within a pass, in this order:
///
/// - `acquire(lease)` for each request; `finish_acquires(f)` once: runs what was queued, calls
/// `f(lease_state&)` for each
///   lease that was `queued`, its `error` set where it failed.
/// - `release(lease, ok, f)` for each request that is done (`ok`: whether what was read is to reach
/// the peer); calls
///   `f(const released&)` now or in `finish_releases(f)`, exactly once. Whatever acquire returned
///   but `wait` is released.
/// - `trim(now)`: gives up what idled too long, and returns when to ask again, in milliseconds of
/// the caller's clock; 0 for never.
/// - `clear()`: unmaps everything kept. \pre no lease is out.
///
/// None of it allocates. `mapped`: whether bytes are shared memory that the peer can still write.
template <class S>
concept bound_strategy = requires(S& s, lease_state& lease, detail::any_release on_release,
                                  detail::any_acquire on_acquire) {
  { S::mapped } -> std::convertible_to<bool>;
  { s.acquire(lease) } noexcept -> std::same_as<acquired>;
  { s.finish_acquires(on_acquire) } noexcept -> std::same_as<void>;
  { s.release(lease, true, on_release) } noexcept -> std::same_as<void>;
  { s.finish_releases(on_release) } noexcept -> std::same_as<void>;
  { s.trim(std::uint64_t{}) } noexcept -> std::same_as<std::uint64_t>;
  { s.clear() } noexcept -> std::same_as<void>;
  { s.leases() } noexcept -> std::same_as<std::uint32_t>;
  { s.counters() } noexcept -> std::same_as<const counters&>;
};

/// Whether a frontend takes a strategy's answer for the word that its pages are unmapped. The
/// strategy says so as `answer_frees_grants`; see map_each for what follows.
template <class G>
inline constexpr bool answer_frees_grants = false;
template <class G>
  requires requires { G::answer_frees_grants; }
inline constexpr bool answer_frees_grants<G> = G::answer_frees_grants;

/// A grant strategy: a policy that a backend binds to its platform.
///
/// - `usable(circumstances)`: whether it can run; `needs_frontend`: whether that depends on the
/// frontend's answer.
/// - `bind<Mapper>`: the bound strategy, made from `(Mapper&, strategy_options)`.
template <class G, class Mapper>
concept strategy =
    std::same_as<typename G::policy_kind, policy_kind::grants> &&
    bound_strategy<typename G::template bind<Mapper>> &&
    std::constructible_from<typename G::template bind<Mapper>, Mapper&, strategy_options> &&
    requires(circumstances known) {
      { G::name } -> std::convertible_to<std::string_view>;
      { G::needs_frontend } -> std::convertible_to<bool>;
      { G::usable(known) } noexcept -> std::same_as<bool>;
    };

}  // namespace pvring::grant
