// SPDX-License-Identifier: MIT
// One pass of a queue, compiled with and without an observer; check_none.py compares the
// instructions. PVRING_OBSERVER names the policy; without it there is no call to one, and no member
// for one.
#include <cstddef>
#include <cstdint>
#include <span>

#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/back_ring.hpp"

#ifdef PVRING_OBSERVER
#include "pvring/observe/histogram.hpp"
#include "pvring/observe/none.hpp"
#define OBSERVED(...) __VA_ARGS__
#else
#define OBSERVED(...)
#endif

namespace {

namespace blkif = pvring::protocol::blkif;
using wire = blkif::wire<blkif::abi::x86_64>;

struct queue {
  explicit queue(std::span<std::byte> memory) : ring(memory) {}

  pvring::ring::back_ring<wire> ring;
  std::uint64_t served = 0;
  OBSERVED([[no_unique_address]] pvring::observe::PVRING_OBSERVER::recorder recorder{32};)
  bool stopped = false;
};

}  // namespace

extern "C" bool one_pass(queue* of, std::uint32_t budget) {
  std::uint32_t slots[32];
  std::uint32_t count = 0;
  of->ring.take(budget < 32 ? budget : 32, [&](pvring::ring::taken<wire>& request) {
    blkif::request copy;
    request.fetch(copy);
    OBSERVED(of->recorder.stage(count, pvring::observe::stage::seen);)
    slots[count] = copy.operation;
    ++count;
    OBSERVED(of->recorder.stage(count, pvring::observe::stage::acquired);)
    of->ring.respond(
        request.owe(wire::echo_of(copy, true))
            .settle(copy.operation == 0 ? blkif::status::okay : blkif::status::not_supported));
    OBSERVED(of->recorder.stage(count, pvring::observe::stage::responded);)
  });
  // Loops that only feed an observer are left out where it keeps nothing: an empty one costs no
  // time, but compilers lay out what is around it differently.
  OBSERVED(if constexpr (pvring::observe::PVRING_OBSERVER::recorder::active) {
    for (std::uint32_t i = 0; i < count; ++i) {
      of->recorder.stage(slots[i], pvring::observe::stage::completed);
    }
  })
  of->served += count;
  const bool notify = of->ring.publish();
  OBSERVED(of->recorder.published(notify);)
  OBSERVED(of->recorder.pass(count, count);)
  of->stopped = of->ring.broken() != pvring::protocol_error::none;
  return notify;
}

extern "C" std::size_t size_of_queue() { return sizeof(queue); }
