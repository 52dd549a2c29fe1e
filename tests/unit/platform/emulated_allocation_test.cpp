// SPDX-License-Identifier: MIT
// After a handle is open, its data path allocates nothing.
#include <cstdlib>
#include <new>

#include "emulated_fixture.hpp"

namespace {
thread_local std::uint64_t allocations = 0;
}

// Not inlined: GCC would see a free of what it takes for another operator's memory.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size != 0 ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace pvring::platform::test {
namespace {

class EmulatedAllocation : public EmulatedMachine {};

TEST_F(EmulatedAllocation, TheDataPathAllocatesNothing) {
  const auto r = grant_pages(16);
  const std::vector<grant_reference> scattered{r[3], r[1], r[2], r[9]};
  emulated_grants grants = dom0.open_grants(32);
  emulated_events frontend = guest.open_events();
  emulated_events backend = dom0.open_events();
  const port front = frontend.alloc_unbound(0);
  const port back = backend.bind(guest_id, front);
  std::vector<char> local(page_size);
  std::vector<copy_operation> ops(2000, piece(local.data(), r[0], 0, 100));
  ops[7].reference = 4000;

  const std::uint64_t before = allocations;
  for (int i = 0; i < 50; ++i) {
    const map_result one = grants.map(guest_id, r, access::read_write);
    const map_result two = grants.map(guest_id, scattered, access::read_only);
    const map_result over = grants.map(guest_id, r, access::read_only);
    const bool ended = guest.end_grant(r[3]);
    const int error = grants.copy(guest_id, direction::from_peer, ops);
    frontend.notify(front);
    backend.unmask(back);
    const auto fired = backend.pending();
    const auto nothing = backend.pending();
    backend.notify(back);
    const bool unmapped = grants.unmap(one.pages) == 0 && grants.unmap(two.pages) == 0;
    ASSERT_TRUE(one.error == 0 && two.error == 0 && over.error == ENOSPC && !ended && error == 0 &&
                fired && !nothing && unmapped);
  }
  EXPECT_EQ(allocations, before);
  const grant_reference again = guest.grant(0, memory, access::read_write);
  EXPECT_TRUE(guest.end_grant(again));
  EXPECT_EQ(allocations, before) << "nor does a frontend that grants and ends";
}

}  // namespace
}  // namespace pvring::platform::test
