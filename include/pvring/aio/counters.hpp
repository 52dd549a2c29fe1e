// SPDX-License-Identifier: MIT
// What every engine context counts, so that engines and reap policies can be compared.
#pragma once

#include "../base/counter.hpp"

namespace pvring::aio {

/// Returned by a context's `counters()`.
struct counters {
  counter submit_calls;   ///< system calls that submitted
  counter reap_calls;     ///< system calls that looked for completions
  counter other_calls;    ///< system calls on the wake-up descriptor
  counter transfers;      ///< transfers submitted
  counter continuations;  ///< short transfers that were continued
  counter deferred;       ///< transfers that the kernel had no room for at first
};

}  // namespace pvring::aio
