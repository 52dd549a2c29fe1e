// expect: use of deleted function .*obligation\(const .*obligation
// SPDX-License-Identifier: MIT
// A duty that is copied is discharged twice.
#include <utility>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

pvring::ring::obligation<wire> hand_on(pvring::ring::obligation<wire>& duty) {
#ifdef PVRING_CONTROL
  return std::move(duty);
#else
  return duty;
#endif
}
