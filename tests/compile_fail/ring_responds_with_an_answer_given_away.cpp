// expect: cannot bind rvalue reference of type .*answer
// SPDX-License-Identifier: MIT
// An answer is given away: the ring does not take one that somebody keeps.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

void finish(ring_type& ring, pvring::ring::answer<wire>& response) {
#ifdef PVRING_CONTROL
  ring.respond(std::move(response));
#else
  ring.respond(response);
#endif
}
