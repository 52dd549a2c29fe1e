// SPDX-License-Identifier: MIT
// The block backend as its users see it: options that cannot be, what is exported, live resize,
// unplug, and its end with I/O in flight.
#include "pvring/blk/backend.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "pvring/observe/full.hpp"
#include "pvring/testing/delayed_engine.hpp"
#include "pvring/testing/scripted_frontend.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {
namespace {

using namespace std::chrono_literals;
namespace operation = protocol::blkif::operation;

static_assert(backend_config<default_config>);
static_assert(!backend_config<int>);
struct engine_for_grants : default_config {
  using grants = aio::memory;
};
static_assert(!backend_config<engine_for_grants>);

struct slow_config : default_config {
  using engine = testing::delayed_engine;
};

std::string refusal_of(const blk::options& options) {
  const auto machine = platform::emulated_host::create();
  platform::emulated host(machine);
  aio::memory_image image(1 << 20U);
  try {
    const blk::backend<memory_config> disk(host, {.domain = 1, .device = blk::xvd('a')}, image,
                                           options);
  } catch (const configuration_error& refused) {
    return refused.what();
  }
  return "";
}

TEST(blk_options, that_cannot_be_are_refused_by_name_and_with_a_remedy) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_NE(refusal_of({.max_queues = 0}).find("max_queues is 0: use 1 to 256"), std::string::npos);
  EXPECT_NE(refusal_of({.max_queues = 2, .barrier = true}).find("barrier"), std::string::npos);
  EXPECT_NE(refusal_of({.max_ring_page_order = 5}).find("max_ring_page_order is 5"),
            std::string::npos);
  EXPECT_NE(refusal_of({.max_indirect_segments = 4097}).find("4096"), std::string::npos);
  EXPECT_NE(refusal_of({.sector_size = 1024}).find("sector_size is 1024"), std::string::npos);
  EXPECT_NE(refusal_of({.buffer_bytes = 4096}).find("1048576"), std::string::npos)
      << "256 segments have to fit";
  EXPECT_NE(refusal_of({.mapped_pages = 255}).find("256 pages"), std::string::npos);
  EXPECT_NE(refusal_of({.pass_budget = 0}).find("pass_budget"), std::string::npos);
  EXPECT_NE(refusal_of({.journal_directory = "/run/x"}).find("journal_directory is /run/x"),
            std::string::npos)
      << "this composition keeps none";
  EXPECT_NE(refusal_of({.strategy = "flipping"}).find("batched_copy, persistent_pool, map_each"),
            std::string::npos);
}

TEST(blk_identity, numbers_xvd_disks_as_the_toolstack_does) {
  EXPECT_EQ(blk::xvd('a'), 51712U);
  EXPECT_EQ(blk::xvd('b'), 51728U);
}

TEST(blk_backend, exports_what_image_and_options_come_to) {
  aio::memory_image image(1000 * 512);
  served_disk<memory_config> disk(image, {.read_only = true, .removable = true}, {});
  const testing::strict_device& seen = disk.frontend().device();
  EXPECT_EQ(seen.sectors, 1000U);
  EXPECT_EQ(seen.sector_size, 512U);
  EXPECT_EQ(seen.info, protocol::blkif::info::read_only | protocol::blkif::info::removable);
  EXPECT_FALSE(seen.discard) << "a read-only device offers none";
  EXPECT_FALSE(seen.persistent) << "advertised only where it would be used";
  EXPECT_EQ(disk.perform(0, {.operation = operation::write,
                             .segments = std::array{testing::block_segment{}}}),
            -1);
  EXPECT_EQ(disk.perform(0, {.operation = operation::read,
                             .segments = std::array{testing::block_segment{}}}),
            0);
  disk.close();
}

TEST(blk_backend, exports_a_cdrom_as_read_only) {
  aio::memory_image image(1000 * 512);
  served_disk<memory_config> disk(image, {.cdrom = true}, {});
  EXPECT_EQ(disk.frontend().device().info,
            protocol::blkif::info::read_only | protocol::blkif::info::cdrom);
  disk.close();
}

// Case 39.
TEST(blk_backend, counts_sectors_of_512_bytes_whatever_sector_size_it_exports) {
  aio::memory_image image(80 * 512);
  served_disk<memory_config> disk(image, {.sector_size = 4096}, {});
  EXPECT_EQ(disk.frontend().device().sectors, 80U);
  EXPECT_EQ(disk.frontend().device().sector_size, 4096U);
  const auto page = testing::segments_for(8);
  const auto part = testing::segments_for(1);
  EXPECT_EQ(disk.perform(0, {.operation = operation::read, .sector = 8, .segments = page}), 0);
  EXPECT_EQ(disk.perform(0, {.operation = operation::read, .sector = 72, .segments = page}), 0);
  EXPECT_EQ(disk.perform(0, {.operation = operation::read, .sector = 8, .segments = part}), -1);
  disk.close();
}

// Nobody kicks meanwhile: what it waits for has to be there already.
TEST(blk_backend, can_be_destroyed_while_connected_and_idle) {
  for (const blk::threads who : {blk::threads::own, blk::threads::caller}) {
    const auto machine = platform::emulated_host::create();
    const auto guest = machine.create_domain(guest_domain);
    platform::emulated host(machine);
    platform::emulated_store toolstack = host.open_store();
    const xenbus::device_identity device{
        .frontend_domain = guest_domain, .type = "vbd", .device = blk::xvd('a')};
    xenbus::create_device(toolstack, xenbus::describe_vbd(device, {}));
    aio::memory_image image(1 << 20U);
    std::optional<blk::backend<memory_config>> disk;
    disk.emplace(host, blk::identity{.domain = guest_domain, .device = device.device}, image,
                 blk::options{.threads = who});
    testing::scripted_frontend front(machine, device);
    front.write_good_nodes();
    front.go(protocol::xenbus_state::initialised);
    for (int i = 0; i < 10 && !disk->connected(); ++i) {
      disk->process();
    }
    ASSERT_TRUE(disk->connected());
    auto end = std::async(std::launch::async, [&disk] { disk.reset(); });
    if (end.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "it sleeps until somebody kicks";
      front.kick();
    }
    end.wait();
    EXPECT_FALSE(front.guest().is_mapped(front.ring_references()[0]));
  }
}

TEST(blk_backend, ends_when_the_toolstack_unplugs_it_with_requests_in_flight) {
  testing::delayed_image image(1 << 20U, {.script = {.latency = 20ms}});
  served_disk<slow_config> disk(image, {}, {});
  const auto segments = testing::segments_for(8);
  for (std::uint64_t block = 0; block < 16; ++block) {
    ASSERT_TRUE(disk.queue().submit(
        {.operation = operation::write, .sector = block * 8, .segments = segments}));
  }
  disk.queue().publish();
  xenbus::request_unplug(disk.toolstack(), disk.path());
  std::size_t good = 0;
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (good < 16 && std::chrono::steady_clock::now() < end) {
    disk.frontend().process();
    disk.queue().poll(
        [&](const testing::block_completion& done) { good += done.okay() ? 1U : 0U; });
    disk.queue().wait(10ms);
  }
  EXPECT_EQ(good, 16U) << "Closing keeps the ring";
  EXPECT_TRUE(disk.frontend().process_until([&] { return disk.frontend().released(); }, 10s));
  disk.close();
}

// A disk whose control thread is the test's own.
template <class Config>
struct manual_disk {
  explicit manual_disk(typename Config::engine::image& image, const blk::options& options = {},
                       const xenbus::vbd_options& device = {})
      : machine(platform::emulated_host::create()),
        guest(machine.create_domain(guest_domain)),
        host(machine),
        store(host.open_store()),
        path(xenbus::create_device(
            store, xenbus::describe_vbd({.frontend_domain = guest_domain, .device = blk::xvd('a')},
                                        device))),
        disk(std::in_place, host, blk::identity{.domain = guest_domain, .device = blk::xvd('a')},
             image, options),
        front(machine, path.identity()) {}

  // Both ends take turns until `done`.
  template <class Done>
  bool until(Done&& done) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      if (disk) {
        disk->process();
      }
      front.process();
    }
    return true;
  }

  platform::emulated_host machine;
  platform::emulated_guest guest;
  platform::emulated host;
  platform::emulated_store store;
  xenbus::device_path path;
  std::optional<blk::backend<Config>> disk;
  testing::strict_frontend front;
};

TEST(blk_backend, waits_for_io_in_flight_when_it_is_destroyed_without_ceremony) {
  for (const char* strategy : {"batched_copy", "map_each", "persistent_pool"}) {
    testing::delayed_image image(1 << 20U, {.script = {.latency = 50ms}});
    manual_disk<slow_config> t(image, {.strategy = strategy});
    ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
    const auto segments = testing::segments_for(8);
    for (std::uint64_t block = 0; block < 16; ++block) {
      ASSERT_TRUE(t.front.queue(0).submit(
          {.operation = operation::write, .sector = block * 8, .segments = segments}));
    }
    t.front.queue(0).publish();
    ASSERT_TRUE(t.until([&] { return t.disk->statistics().at(0).requests == 16; }));
    t.disk.reset();
    std::size_t good = 0;
    t.front.queue(0).poll(
        [&](const testing::block_completion& done) { good += done.okay() ? 1U : 0U; });
    EXPECT_EQ(good, 16U) << strategy;
    EXPECT_EQ(t.machine.leaked_pages(), 0U) << strategy;
  }
}

TEST(blk_backend, can_be_destroyed_while_it_is_connected_and_idle) {
  aio::memory_image image(1 << 20U);
  for (const blk::threads who : {blk::threads::own, blk::threads::caller}) {
    manual_disk<memory_config> t(image, {.threads = who});
    ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
    t.disk.reset();
    EXPECT_EQ(t.machine.leaked_pages(), 0U);
  }
}

TEST(blk_backend, tells_a_connected_frontend_of_a_new_size) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("pvring-resize-" + std::to_string(::getpid()));
  { std::ofstream(path) << std::string(64 * 512, 'x'); }
  {
    aio::file_image image(path);
    manual_disk<default_config> t(image);
    ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
    EXPECT_EQ(t.front.device().sectors, 64U);
    EXPECT_FALSE(t.disk->resize()) << "nothing has changed";
    std::filesystem::resize_file(path, 128 * 512);
    EXPECT_TRUE(t.disk->resize());
    EXPECT_TRUE(t.until([&] { return t.front.device().sectors == 128; }));
    EXPECT_TRUE(t.front.connected());
    t.front.begin_close();
    EXPECT_TRUE(t.until([&] { return t.front.released(); }));
    EXPECT_EQ(t.front.violations_text(), "");
  }
  std::filesystem::remove(path);
}

// Cases 33 and 36: what the toolstack denies is denied, whatever image and options allow.
TEST(blk_backend, obeys_the_toolstack_that_makes_a_device_read_only_or_denies_it_discards) {
  aio::memory_image image(1000 * 512);
  for (const bool read_only : {true, false}) {
    manual_disk<memory_config> t(image, {},
                                 {.read_only = read_only, .removable = true, .discard = false});
    ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
    namespace info = protocol::blkif::info;
    EXPECT_EQ(t.front.device().info, info::removable | (read_only ? info::read_only : 0U));
    EXPECT_FALSE(t.front.device().discard);
    EXPECT_EQ(t.disk->exported().read_only, read_only);
  }
  manual_disk<memory_config> t(image, {}, {.cdrom = true});
  ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
  EXPECT_NE(t.front.device().info & protocol::blkif::info::cdrom, 0U);
}

TEST(blk_backend, names_a_mode_that_the_toolstack_cannot_mean) {
  aio::memory_image image(1000 * 512);
  manual_disk<memory_config> t(image);
  t.store.write(xenbus::join(t.path.backend(), "mode"), "x");
  ASSERT_TRUE(t.until([&] { return t.disk->state() == protocol::xenbus_state::closing; }));
  EXPECT_NE(t.store.read(t.path.backend_error()).value_or("").find("mode"), std::string::npos);
}

// What the dead one had in flight, and which slots hold answers already, nobody knows.
TEST(blk_backend, does_not_touch_the_rings_of_a_backend_that_died_connected) {
  aio::memory_image image(1 << 20U);
  manual_disk<memory_config> t(image);
  ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
  t.disk.reset();
  ASSERT_EQ(t.store.read(xenbus::join(t.path.backend(), "state")), "4") << "as if it had died";
  t.disk.emplace(t.host, blk::identity{.domain = guest_domain, .device = blk::xvd('a')}, image,
                 blk::options{});
  EXPECT_EQ(t.disk->state(), protocol::xenbus_state::closing);
  EXPECT_EQ(t.disk->connections(), 0U);
  EXPECT_NE(t.store.read(t.path.backend_error()).value_or("").find("an earlier backend"),
            std::string::npos);
  ASSERT_TRUE(t.until([&] { return t.front.released(); }));
  t.front.reopen();
  EXPECT_TRUE(t.until([&] { return t.front.connected(); }));
  EXPECT_EQ(t.disk->connections(), 1U);
  EXPECT_EQ(t.front.violations_text(), "");
}

// A scripted frontend, and a disk whose control thread is the test's own.
struct scripted_disk {
  explicit scripted_disk(aio::memory_image& image)
      : guest(machine.create_domain(guest_domain)),
        host(machine),
        store(host.open_store()),
        path(xenbus::create_device(
            store,
            xenbus::describe_vbd({.frontend_domain = guest_domain, .device = blk::xvd('a')}, {}))),
        disk(host, {.domain = guest_domain, .device = blk::xvd('a')}, image),
        front(machine, path.identity()) {}

  bool until(protocol::xenbus_state state) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (disk.state() != state && std::chrono::steady_clock::now() < end) {
      disk.process();
    }
    return disk.state() == state;
  }

  platform::emulated_host machine = platform::emulated_host::create();
  platform::emulated_guest guest;
  platform::emulated host;
  platform::emulated_store store;
  xenbus::device_path path;
  blk::backend<memory_config> disk;
  testing::scripted_frontend front;
};
using state = protocol::xenbus_state;

// Case 18: an index that the peer can write is no proof of what was answered.
TEST(blk_backend, refuses_a_ring_that_was_in_use_and_that_it_does_not_know) {
  aio::memory_image image(1 << 20U);
  scripted_disk t(image);
  ring::shared_index<std::uint32_t>(&t.front.ring()[offsetof(protocol::ring_indices<>, rsp_prod)])
      .store(1, std::memory_order_relaxed);
  t.front.set_request_producer(2);
  t.front.write_good_nodes();
  t.front.go(state::initialised);
  ASSERT_TRUE(t.until(state::closing));
  EXPECT_NE(t.store.read(t.path.backend_error()).value_or("").find("ring"), std::string::npos);
  EXPECT_EQ(t.disk.connections(), 0U);
}

// A guest's free grant references are given out again, so another ring may have those of the last.
TEST(blk_backend, knows_a_kept_ring_from_a_fresh_one_with_the_same_references) {
  aio::memory_image image(1 << 20U);
  for (const bool fresh : {false, true}) {
    scripted_disk t(image);
    t.front.write_good_nodes();
    t.front.go(state::initialised);
    ASSERT_TRUE(t.until(state::connected));
    t.front.put({.operation = operation::flush});
    ASSERT_TRUE(t.front.wait_for_responses(1));
    t.front.go(state::closing);
    ASSERT_TRUE(t.until(state::closing));
    t.front.go(state::closed);
    ASSERT_TRUE(t.until(state::closed));
    t.front.go(state::initialising);
    ASSERT_TRUE(t.until(state::init_wait));
    if (fresh) {
      t.front.reset_ring();
    }
    t.front.go(state::initialised);
    ASSERT_TRUE(t.until(state::connected));
    EXPECT_EQ(t.disk.connections(), 2U);
    t.front.put({.operation = operation::flush});
    ASSERT_TRUE(t.front.wait_for_responses(fresh ? 1 : 2));
    EXPECT_EQ(t.disk.statistics().at(0).flushes, 1U) << "the answered one did not run again";
  }
}

struct recording_config : memory_config {
  using observe = pvring::observe::full;
};

TEST(blk_backend, hands_out_what_a_queue_recorded_when_nobody_writes_it_any_more) {
  aio::memory_image image(1 << 20U);
  manual_disk<recording_config> t(image, {.max_queues = 1});
  std::size_t requests = 0;
  t.disk->set_recorder_sink([&](std::uint32_t queue, const observe::full::recorder& recorder) {
    EXPECT_EQ(queue, 0U);
    recorder.for_each([&](const observe::request_record&) { ++requests; });
  });
  ASSERT_TRUE(t.until([&] { return t.front.connected(); }));
  const auto segments = testing::segments_for(8);
  for (std::uint64_t block = 0; block < 16; ++block) {
    ASSERT_TRUE(t.front.queue(0).submit(
        {.operation = operation::read, .sector = block * 8, .segments = segments}));
  }
  t.front.queue(0).publish();
  std::size_t answered = 0;
  ASSERT_TRUE(t.until([&] {
    t.front.queue(0).poll([&](const testing::block_completion&) { ++answered; });
    return answered == 16;
  }));
  t.front.begin_close();
  ASSERT_TRUE(t.until([&] { return t.front.released(); }));
  EXPECT_EQ(requests, 16U);
}

}  // namespace
}  // namespace pvring::test
