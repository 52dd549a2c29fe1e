// SPDX-License-Identifier: MIT
// What a strict frontend's queue is set up with, and what it counts. Values that the frontend and
// its users see without the queue itself.
#pragma once

#include <cstdint>

#include "../base/counter.hpp"
#include "../protocol/blkif.hpp"

namespace pvring::testing {

/// Counted by a strict_queue; any thread may read.
struct strict_queue_counters {
  counter requests;             ///< put into the ring
  counter responses;            ///< taken from it
  counter lost;                 ///< requests that were never answered
  counter publications;         ///< of requests, each of any number
  counter kicks_sent;           ///< of those, the ones that the backend wanted to be notified of
  counter interrupts;           ///< events received
  counter spurious_interrupts;  ///< of those, the ones without a response
};

/// What the frontend agreed with its backend for all queues.
struct strict_queue_setup {
  protocol::blkif::abi abi = protocol::blkif::abi::native;
  std::uint32_t ring_pages = 1;
  bool persistent = false;
  std::uint16_t max_indirect_segments = 0;
  std::uint32_t ring_start = 0;  ///< where the ring's indices begin
  bool guard_pages = false;      ///< see strict_options
};

}  // namespace pvring::testing
