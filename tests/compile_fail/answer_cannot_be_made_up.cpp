// expect: answer\(.*private within this context
// SPDX-License-Identifier: MIT
// An answer comes from an obligation, which comes from a ring.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

namespace blkif = pvring::protocol::blkif;

void finish(ring_type& ring, pvring::ring::obligation<wire>&& duty) {
#ifdef PVRING_CONTROL
  ring.respond(std::move(duty).settle(blkif::status::okay));
#else
  ring.respond(pvring::ring::answer<wire>(wire::echo{5, 0}, blkif::status::okay));
#endif
}
