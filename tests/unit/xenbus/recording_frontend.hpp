// SPDX-License-Identifier: MIT
// A frontend's device that only notes what it is asked to do, and writes the nodes of any number of
// queues and pages.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pvring/xenbus/frontend_port.hpp"
#include "pvring/xenbus/ring_nodes.hpp"

namespace pvring::test {

/// Models frontend_handler and rereading.
template <class Store>
class recording_frontend {
 public:
  using transaction = typename Store::transaction;

  recording_frontend(Store& store, xenbus::device_path path)
      : store_(store), path_(std::move(path)) {}

  std::vector<std::string> calls;
  bool in_use = false;
  int rings = 0;  ///< prepares without their release
  unsigned queues = 1;
  unsigned page_order = 0;
  std::uint64_t sectors = 0;
  std::function<void()> preparing, connecting;

  void prepare() {
    calls.emplace_back("prepare");
    if (preparing) {
      preparing();
    }
    ++rings;
  }
  void publish(transaction& t) {
    calls.emplace_back("publish");
    const std::string& front = path_.frontend();
    // A driver that knows all of these nodes leaves none of an earlier one behind.
    for (const char* const node : {"multi-queue-num-queues", "ring-page-order"}) {
      t.remove(front + "/" + node);
    }
    if (queues > 1) {
      t.write(front + "/multi-queue-num-queues", std::to_string(queues));
    }
    if (page_order > 0) {
      t.write(front + "/ring-page-order", std::to_string(page_order));
    }
    for (unsigned q = 0; q < queues; ++q) {
      const std::string directory = xenbus::queue_directory(front, queues, q);
      for (unsigned page = 0; page < 1U << page_order; ++page) {
        const std::string name = page_order > 0 ? "ring-ref" + std::to_string(page) : "ring-ref";
        t.write(directory + "/" + name, std::to_string(100 * q + page));
      }
      t.write(directory + "/event-channel", std::to_string(10 + q));
    }
  }
  void connect() {
    calls.emplace_back("connect");
    if (connecting) {
      connecting();
    }
    read_sectors();
  }
  void reread() {
    calls.emplace_back("reread");
    read_sectors();
  }
  void begin_close() noexcept { calls.emplace_back("begin_close"); }
  [[nodiscard]] bool idle() const noexcept { return !in_use; }
  void release() noexcept {
    calls.emplace_back("release");
    --rings;
  }

  [[nodiscard]] long count(std::string_view call) const {
    return std::count(calls.begin(), calls.end(), call);
  }

 private:
  void read_sectors() {
    sectors = xenbus::read_unsigned<std::uint64_t>(store_, path_.backend() + "/sectors",
                                                   path_.identity().backend_domain, {1});
  }

  Store& store_;
  xenbus::device_path path_;
};

}  // namespace pvring::test
