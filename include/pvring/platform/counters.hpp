// SPDX-License-Identifier: MIT
// What every platform's handles count, so that strategies and platforms can be compared. One
// thread, the one that uses the handle, counts; any thread may read.
#pragma once

#include "../base/counter.hpp"

namespace pvring::platform {

/// Returned by a grant handle's `counters()`. Calls that fail are counted like those that succeed.
struct grant_counters {
  counter map_calls;          ///< calls of `map`
  counter map_failures;       ///< of these, those that mapped nothing
  counter pages_mapped;       ///< pages of the calls that succeeded
  counter unmap_calls;        ///< calls of `unmap`
  counter pages_unmapped;     ///< pages of the calls that succeeded
  counter copy_calls;         ///< calls of `copy`
  counter copy_failures;      ///< of these, those that failed as a whole
  counter copy_operations;    ///< operations of all copy calls
  counter copy_bytes;         ///< bytes of the operations that copied
  counter copy_retries;       ///< operations repeated because the status was `try_again`
  counter copy_system_calls;  ///< system calls made by copies
  counter system_calls;       ///< system calls made in total
  counter hypercalls;  ///< hypercalls made, or what they would be on Xen: one for a map or unmap
                       ///< call; for a copy one per 16 operations, where an operation that crosses
                       ///< a local page is two
};

/// Returned by an event handle's `counters()`.
struct event_counters {
  counter notifies;        ///< calls of `notify` on a bound port
  counter kicks_received;  ///< ports that `pending` returned
  counter empty_looks;     ///< calls of `pending` that returned nothing
  counter unmasks;         ///< calls of `unmask` on a bound port
  counter refires;         ///< of these, those that fired at once
  counter system_calls;    ///< system calls made in total
  counter hypercalls;  ///< hypercalls made, or what they would be on Xen: one per notify, bind and
                       ///< unbind
};

}  // namespace pvring::platform
