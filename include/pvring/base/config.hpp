// SPDX-License-Identifier: MIT
// A composition is one named struct that inherits these defaults and names what differs. Policies
// are only declared here, so that a composition costs nothing to include; a backend's header brings
// their definitions.
#pragma once

#include <concepts>

namespace pvring {

namespace platform {
class emulated;
class xen;
}  // namespace platform
namespace grant {
struct batched_copy;
struct persistent_pool;
struct map_each;
template <class... Strategies>
struct first_usable;
}  // namespace grant
namespace aio {
struct libaio;
}
namespace observe {
struct none;
}
namespace ring {
struct no_journal;
}

/// What kind of policy a type is; each policy says so with `using policy_kind = ...`, and that
/// keeps an engine from being named as a grant strategy.
namespace policy_kind {
struct platform {};
struct grants {};
struct engine {};
struct observer {};
struct journal {};
}  // namespace policy_kind

/// The composition that a backend has unless its config says otherwise.
// Fully qualified, as a member must not change what its own declaration's names mean.
struct default_config {
  /// Where grants, event channels and the store come from.
  using platform = pvring::platform::emulated;
  /// How the backend gets at the peer's pages: the first that platform and frontend allow.
  using grants =
      pvring::grant::first_usable<pvring::grant::batched_copy, pvring::grant::persistent_pool,
                                  pvring::grant::map_each>;
  /// What performs the I/O.
  using engine = pvring::aio::libaio;
  /// What is recorded of each request.
  using observe = pvring::observe::none;
  /// What survives of a ring when its backend is killed.
  using journal = pvring::ring::no_journal;
};

namespace detail {
template <class Policy, class Kind>
concept policy_of_kind = std::same_as<typename Policy::policy_kind, Kind>;
}

/// A struct that names one policy of each kind. It cannot see a misspelt member: that only adds a
/// name.
template <class Config>
concept backend_config = detail::policy_of_kind<typename Config::platform, policy_kind::platform> &&
                         detail::policy_of_kind<typename Config::grants, policy_kind::grants> &&
                         detail::policy_of_kind<typename Config::engine, policy_kind::engine> &&
                         detail::policy_of_kind<typename Config::observe, policy_kind::observer> &&
                         detail::policy_of_kind<typename Config::journal, policy_kind::journal>;

}  // namespace pvring
