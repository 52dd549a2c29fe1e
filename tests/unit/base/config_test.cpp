// SPDX-License-Identifier: MIT
// A composition names one policy of each kind, and a policy in another kind's place is refused.
#include "pvring/base/config.hpp"

#include <gtest/gtest.h>

namespace {

namespace kind = pvring::policy_kind;

template <class Kind>
struct policy {
  using policy_kind = Kind;
};

template <class Platform, class Grants, class Engine, class Observe, class Journal>
struct composition {
  using platform = Platform;
  using grants = Grants;
  using engine = Engine;
  using observe = Observe;
  using journal = Journal;
};
using some_platform = policy<kind::platform>;
using some_grants = policy<kind::grants>;
using some_engine = policy<kind::engine>;
using some_observer = policy<kind::observer>;
using some_journal = policy<kind::journal>;

using pvring::backend_config;
static_assert(backend_config<
              composition<some_platform, some_grants, some_engine, some_observer, some_journal>>);
static_assert(!backend_config<
              composition<some_grants, some_grants, some_engine, some_observer, some_journal>>);
static_assert(!backend_config<
              composition<some_platform, some_engine, some_engine, some_observer, some_journal>>);
static_assert(!backend_config<
              composition<some_platform, some_grants, some_grants, some_observer, some_journal>>);
static_assert(!backend_config<
              composition<some_platform, some_grants, some_engine, some_engine, some_journal>>);
static_assert(!backend_config<
              composition<some_platform, some_grants, some_engine, some_observer, some_observer>>);
static_assert(
    !backend_config<composition<int, some_grants, some_engine, some_observer, some_journal>>);

struct without_engine {
  using platform = some_platform;
  using grants = some_grants;
  using observe = some_observer;
  using journal = some_journal;
};
struct without_journal {
  using platform = some_platform;
  using grants = some_grants;
  using engine = some_engine;
  using observe = some_observer;
};
static_assert(!backend_config<without_engine>);
static_assert(!backend_config<without_journal>);
static_assert(!backend_config<int>);

// What is not named keeps its default: here the test only sees that the names are inherited.
struct only_engine : pvring::default_config {
  using engine = some_engine;
};
static_assert(std::same_as<only_engine::platform, pvring::default_config::platform>);
static_assert(std::same_as<only_engine::grants, pvring::default_config::grants>);
static_assert(std::same_as<only_engine::observe, pvring::observe::none>);
static_assert(std::same_as<only_engine::journal, pvring::ring::no_journal>);
static_assert(std::same_as<only_engine::engine, some_engine>);

}  // namespace
