// expect: cannot convert .*obligation.* to .*answer
// SPDX-License-Identifier: MIT
// A ring takes nothing but an answer: not the duty to give one, and not its parts. While grants
// are held, there is no answer.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

void finish(ring_type& ring, pvring::ring::obligation<wire>&& duty) {
#ifdef PVRING_CONTROL
  ring.respond(std::move(duty).settle(pvring::protocol::blkif::status::okay));
#else
  ring.respond(std::move(duty));
#endif
}
