// expect: static assertion failed
// SPDX-License-Identifier: MIT
// A policy in another kind's place is refused where the composition is written, not deep inside a
// queue.
#include "pvring/base/config.hpp"

struct some_engine {
  using policy_kind = pvring::policy_kind::engine;
};
struct some_grants {
  using policy_kind = pvring::policy_kind::grants;
};
struct some_platform {
  using policy_kind = pvring::policy_kind::platform;
};
struct some_observer {
  using policy_kind = pvring::policy_kind::observer;
};
struct some_journal {
  using policy_kind = pvring::policy_kind::journal;
};

struct config {
  using platform = some_platform;
#ifdef PVRING_CONTROL
  using grants = some_grants;
#else
  using grants = some_engine;
#endif
  using engine = some_engine;
  using observe = some_observer;
  using journal = some_journal;
};
static_assert(pvring::backend_config<config>);
