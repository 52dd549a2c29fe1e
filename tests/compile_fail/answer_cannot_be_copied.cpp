// expect: use of deleted function .*answer\(const .*answer
// SPDX-License-Identifier: MIT
// One request, one answer: a copy would be a second one.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

void finish(ring_type& ring, pvring::ring::answer<wire>&& response) {
#ifdef PVRING_CONTROL
  pvring::ring::answer<wire> mine = std::move(response);
#else
  pvring::ring::answer<wire> mine = response;
#endif
  ring.respond(std::move(mine));
}
