// SPDX-License-Identifier: MIT
// A platform opens the three kinds of handles; it is what a composition names. Its handles outlive
// nothing: the platform object must outlive them all.
#pragma once

#include <concepts>

#include "../base/config.hpp"
#include "event_channel.hpp"
#include "grant_mapper.hpp"
#include "store.hpp"

namespace pvring::platform {

/// A platform. `open_*` throw std::system_error whose message says what is missing and the remedy;
/// they may be called from any thread, and each handle belongs to the thread that uses it.
///
/// - `open_grants(quota)`: a handle that maps at most `quota` pages at a time.
/// - `map_wait_is_bounded`: false where a peer can hold up a map call (Xen: a paged-out page).
template <class P>
concept host = std::same_as<typename P::policy_kind, policy_kind::platform> &&
               grant_mapper<typename P::grant_handle> && event_channel<typename P::event_handle> &&
               store<typename P::store_handle> && requires(P& p, std::size_t quota) {
                 { p.open_grants(quota) } -> std::same_as<typename P::grant_handle>;
                 { p.open_events() } -> std::same_as<typename P::event_handle>;
                 { p.open_store() } -> std::same_as<typename P::store_handle>;
                 { P::map_wait_is_bounded } -> std::convertible_to<bool>;
               };

}  // namespace pvring::platform
