// SPDX-License-Identifier: MIT
// The handshake on the emulated platform's store: two domains, real permissions, real descriptors.
#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>
#include <system_error>

#include "pvring/platform/emulated.hpp"
#include "pvring/xenbus/backend_port.hpp"
#include "pvring/xenbus/toolstack.hpp"
#include "recording_device.hpp"
#include "recording_frontend.hpp"

namespace pvring::xenbus {
namespace {

using store_type = platform::emulated_store;
static_assert(platform::store<store_type>);

class small_device {
 public:
  using transaction = store_type::transaction;

  small_device(store_type& store, device_path path) : store_(store), path_(std::move(path)) {}

  void advertise(transaction& t) { t.write(path_.backend() + "/multi-queue-max-queues", "4"); }
  void connect() {
    queues = read_queues(store_, path_.frontend(), path_.identity().frontend_domain, {4, 4}).size();
    mapped = true;
  }
  void publish(transaction& t) { t.write(path_.backend() + "/sectors", std::to_string(sectors)); }
  void begin_disconnect() noexcept {}
  [[nodiscard]] bool drained() const noexcept { return true; }
  void finish_disconnect() noexcept { mapped = false; }
  void resized(transaction& t) { publish(t); }

  std::uint64_t sectors = 2048;
  std::size_t queues = 0;
  bool mapped = false;

 private:
  store_type& store_;
  device_path path_;
};

// In a domain of its own as well as in the toolstack's.
struct OnEmulatedStore : testing::TestWithParam<domain_id> {
  test::silence quiet;
  platform::emulated_host host = platform::emulated_host::create();
  platform::emulated_guest guest = host.create_domain(3);
  std::optional<platform::emulated_guest> driver_domain =
      GetParam() == 0 ? std::nullopt : std::optional(host.create_domain(GetParam()));
  store_type toolstack = platform::emulated(host).open_store();
  store_type store = platform::emulated(host, GetParam()).open_store();
  store_type guest_store = guest.open_store();

  device_path path = create_device(
      toolstack, describe_vbd({GetParam(), 3, "vbd", 51712}, {.parameters = "disk.img"}));
  small_device device{store, path};
  backend_port<store_type, small_device> back{store, device,
                                              resolve_from_backend(store, path.identity())};
  test::recording_frontend<store_type> front_device{guest_store, path};
  frontend_port<store_type, test::recording_frontend<store_type>> front{
      guest_store, front_device, resolve_from_frontend(guest_store, path.identity())};

  void settle() {
    for (int i = 0; i < 200; ++i) {
      pollfd ends[] = {{back.fd(), POLLIN, 0}, {front.fd(), POLLIN, 0}};
      if (::poll(ends, 2, 0) == 0) {
        return;
      }
      if (ends[0].revents != 0) {
        back.process();
      }
      if (ends[1].revents != 0) {
        front.process();
      }
    }
    FAIL() << "the two ends never come to rest";
  }
  [[nodiscard]] bool connected() const { return back.connected() && front.connected(); }
};

TEST_P(OnEmulatedStore, BothEndsComeToConnected) {
  front_device.queues = 4;
  front_device.page_order = 2;
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(device.queues, 4U);
  EXPECT_EQ(front_device.sectors, 2048U);
}

TEST_P(OnEmulatedStore, NeitherEndMayWriteTheOthersNodes) {
  settle();
  EXPECT_THROW(guest_store.write(path.backend() + "/sectors", "1"), std::system_error);
  if (GetParam() != 0) {
    EXPECT_THROW(store.write(path.frontend() + "/state", "1"), std::system_error);
  }
  EXPECT_TRUE(connected());
}

TEST_P(OnEmulatedStore, TheFrontendClosesComesBackAndIsResized) {
  settle();
  front.close();
  settle();
  EXPECT_TRUE(front.released());
  EXPECT_FALSE(device.mapped);
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
  device.sectors = 4096;
  EXPECT_TRUE(back.announce_resize());
  settle();
  EXPECT_EQ(front_device.sectors, 4096U);
}

TEST_P(OnEmulatedStore, UnplugEndsBothEnds) {
  settle();
  request_unplug(toolstack, path);
  settle();
  EXPECT_TRUE(back.finished());
  EXPECT_TRUE(front.released());
  EXPECT_FALSE(device.mapped);
}

TEST_P(OnEmulatedStore, ForcedRemovalEndsBothEndsAndLeavesNothing) {
  settle();
  force_remove(toolstack, path);
  settle();
  EXPECT_TRUE(back.finished());
  EXPECT_TRUE(front.released());
  EXPECT_EQ(toolstack.read(path.backend()), std::nullopt);
  EXPECT_EQ(toolstack.read(path.frontend()), std::nullopt);
}

TEST_P(OnEmulatedStore, AnErrorIsWrittenWhereTheBackendMayWrite) {
  settle();
  back.fail(protocol_error::request_producer_overrun);
  settle();
  EXPECT_EQ(toolstack.read(path.backend_error()), "request producer overran the ring");
  EXPECT_TRUE(front.released());
  front.reopen();
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(toolstack.read(path.backend_error()), std::nullopt);
}

// Case 106: one domain's storm is not another's failure.
TEST_P(OnEmulatedStore, AStormOfTheFrontendNeitherBlocksNorReconnects) {
  settle();
  for (int i = 0; i < 2000; ++i) {
    guest_store.write(path.frontend() + "/state", "4");
    guest_store.write(path.frontend() + "/ring-ref", std::to_string(i));
    if (i % 100 == 0) {
      back.process();
    }
  }
  settle();
  EXPECT_TRUE(connected());
  EXPECT_EQ(front_device.count("connect"), 1);
}

INSTANTIATE_TEST_SUITE_P(Domains, OnEmulatedStore, testing::Values(domain_id{0}, domain_id{2}));

}  // namespace
}  // namespace pvring::xenbus
