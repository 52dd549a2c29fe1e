// SPDX-License-Identifier: MIT
// stop() from another thread, at any moment of the control thread's loop: it must never be
// forgotten.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "pvring/aio/memory.hpp"
#include "pvring/blk/backend.hpp"
#include "pvring/xenbus/toolstack.hpp"

namespace {

using namespace pvring;

struct config : default_config {
  using engine = aio::memory;
};

TEST(backend_stop, is_heard_at_any_moment_of_the_control_loop) {
  const auto machine = platform::emulated_host::create();
  const auto guest = machine.create_domain(1);
  platform::emulated host(machine);
  auto store = host.open_store();
  aio::memory_image image(1 << 20U);
  for (int round = 0; round < 500; ++round) {
    const auto path = xenbus::create_device(
        store, xenbus::describe_vbd({.frontend_domain = 1, .device = 51712}, {}));
    blk::backend<config> disk(host, {.domain = 1, .device = 51712}, image);
    std::atomic<bool> over{false};
    std::thread control([&] {
      disk.run();
      over = true;
      over.notify_all();
    });
    // The control thread is kept busy with events, so that stop() meets it in every part of its
    // loop.
    for (int i = 0; i < round % 20; ++i) {
      store.write(path.frontend() + "/state", i % 2 == 0 ? "2" : "1");
    }
    disk.stop();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!over && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    if (!over) {
      ADD_FAILURE() << "stop() was forgotten in round " << round;
      disk.stop();  // or this test would hang as well
    }
    control.join();
    xenbus::force_remove(store, path);
  }
}

}  // namespace
