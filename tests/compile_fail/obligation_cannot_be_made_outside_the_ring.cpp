// expect: obligation\(.*private within this context
// SPDX-License-Identifier: MIT
// Only a request that the ring has handed out obliges: no duty without a slot to answer into.
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

pvring::ring::obligation<wire> owe(pvring::ring::taken<wire>& request, const wire::echo& to) {
#ifdef PVRING_CONTROL
  return request.owe(to);
#else
  (void)request;
  return pvring::ring::obligation<wire>(to);
#endif
}
