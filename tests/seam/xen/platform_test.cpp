// SPDX-License-Identifier: MIT
// The platform opens a handle of its own for each queue.
#include "fixture.hpp"

namespace seam {
namespace {

static_assert(host<xen>);
static_assert(!xen::map_wait_is_bounded);

TEST_F(xen_seam, each_queue_has_its_own_descriptors) {
  xen host;
  {
    auto first = host.open_grants(4);
    auto second = host.open_grants(4);
    auto events = host.open_events();
    auto store = host.open_store();
    EXPECT_THAT(machine().order,
                ElementsAre("open gntdev", "open gntdev", "open evtchn", "open store"));
  }
  EXPECT_EQ(machine().order.size(), 8U);
}

}  // namespace
}  // namespace seam
