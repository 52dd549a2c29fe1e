// SPDX-License-Identifier: MIT
// The numbers that a device's states and a grant operation's statuses have on the wire, against
// Xen's public headers.
#include <gtest/gtest.h>
#include <xen/grant_table.h>
#include <xen/io/xenbus.h>

#include <array>
#include <type_traits>
#include <utility>

#include "pvring/base/error.hpp"
#include "pvring/platform/grant_mapper.hpp"
#include "pvring/protocol/xenbus.hpp"

namespace {

using pvring::protocol::xenbus_state;
namespace grant_status = pvring::platform::grant_status;

constexpr std::array<std::pair<xenbus_state, int>, 9> states{{
    {xenbus_state::unknown, XenbusStateUnknown},
    {xenbus_state::initialising, XenbusStateInitialising},
    {xenbus_state::init_wait, XenbusStateInitWait},
    {xenbus_state::initialised, XenbusStateInitialised},
    {xenbus_state::connected, XenbusStateConnected},
    {xenbus_state::closing, XenbusStateClosing},
    {xenbus_state::closed, XenbusStateClosed},
    {xenbus_state::reconfiguring, XenbusStateReconfiguring},
    {xenbus_state::reconfigured, XenbusStateReconfigured},
}};

TEST(XenbusOnTheWire, StatesHaveXensNumbers) {
  for (const auto& [ours, vendor] : states) {
    EXPECT_EQ(static_cast<int>(ours), vendor);
    EXPECT_EQ(pvring::protocol::to_digit(ours) - '0', vendor);
  }
}

static_assert(grant_status::okay == GNTST_okay);
static_assert(grant_status::general_error == GNTST_general_error);
static_assert(grant_status::bad_domain == GNTST_bad_domain);
static_assert(grant_status::bad_reference == GNTST_bad_gntref);
static_assert(grant_status::permission_denied == GNTST_permission_denied);
static_assert(grant_status::bad_copy_argument == GNTST_bad_copy_arg);
static_assert(grant_status::try_again == GNTST_eagain);
static_assert(std::is_same_v<decltype(pvring::platform::copy_operation::status),
                             decltype(gnttab_copy::status)>);
static_assert(std::is_same_v<pvring::platform::grant_reference, grant_ref_t>);
static_assert(
    std::is_same_v<decltype(pvring::platform::copy_operation::offset), decltype(gnttab_copy::len)>);
static_assert(
    std::is_same_v<decltype(pvring::platform::copy_operation::length), decltype(gnttab_copy::len)>);
static_assert(std::is_same_v<pvring::domain_id, domid_t>);

}  // namespace
