// expect: use of deleted function .*taken\(const .*taken
// SPDX-License-Identifier: MIT
// A request that was taken is fetched and owed for on the spot; keeping it would keep a pointer
// into the ring.
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

pvring::ring::obligation<wire> look(pvring::ring::taken<wire>& request) {
  wire::request copy{};
#ifdef PVRING_CONTROL
  request.fetch(copy);
#else
  pvring::ring::taken<wire> kept = request;
  kept.fetch(copy);
#endif
  return request.owe(wire::echo_of(copy, true));
}
