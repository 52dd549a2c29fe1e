// expect: constraint failure|does not satisfy
// SPDX-License-Identifier: MIT
// The data path does not throw, so a protocol may not either.
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

using wire = pvring::protocol::blkif::wire<pvring::protocol::blkif::abi::x86_64>;
using ring_type = pvring::ring::back_ring<wire>;

struct throwing : wire {
  template <class Source>
  static void fetch(Source slot, request& into) {
    wire::fetch(slot, into);
  }
};

#ifdef PVRING_CONTROL
pvring::ring::back_ring<wire>* ring = nullptr;
#else
pvring::ring::back_ring<throwing>* ring = nullptr;
#endif
