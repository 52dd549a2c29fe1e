// expect: passing .*obligation.* as .this. argument discards
// SPDX-License-Identifier: MIT
// Settling consumes the duty, and the call has to say so.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

pvring::ring::answer<wire> finish(pvring::ring::obligation<wire>& duty) {
#ifdef PVRING_CONTROL
  return std::move(duty).settle(pvring::protocol::blkif::status::okay);
#else
  return duty.settle(pvring::protocol::blkif::status::okay);
#endif
}
