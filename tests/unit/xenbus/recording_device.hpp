// SPDX-License-Identifier: MIT
// A backend's device that only notes what it is asked to do, and a bench with its nodes, port and
// store.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pvring/base/log.hpp"
#include "pvring/xenbus/backend_port.hpp"
#include "pvring/xenbus/ring_nodes.hpp"
#include "pvring/xenbus/toolstack.hpp"
#include "scripted_store.hpp"

namespace pvring::test {

/// Keeps expected errors out of the test's output.
class silence {
 public:
  silence() {
    log::set_sink([](log::level, std::string_view) noexcept {});
  }
  silence(const silence&) = delete;
  silence& operator=(const silence&) = delete;
  ~silence() { log::set_sink(&log::detail::to_stderr); }
};

inline bool readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

/// Models device_handler, rereading and resizable.
class recording_device {
 public:
  using transaction = scripted_store::transaction;

  recording_device(scripted_store& store, xenbus::device_path path)
      : store_(store), path_(std::move(path)) {}

  std::vector<std::string> calls;
  bool always_drained = true;
  bool persistent_configured = true;
  bool persistent_negotiated = false;
  std::size_t queues = 0;
  int connected = 0;  ///< connects without their finish_disconnect
  std::string state_at_finish;
  std::function<void()> advertising, connecting, publishing, rereading;

  void advertise(transaction& t) {
    note("advertise", advertising);
    t.write(path_.backend() + "/feature-persistent", persistent_configured ? "1" : "0");
    t.write(path_.backend() + "/multi-queue-max-queues", "4");
  }
  void connect() {
    note("connect", connecting);
    const domain_id peer = path_.identity().frontend_domain;
    queues = xenbus::read_queues(store_, path_.frontend(), peer, {4, 4}).size();
    persistent_negotiated =
        persistent_configured &&
        xenbus::read_flag_or(store_, path_.frontend() + "/feature-persistent", peer, false);
    ++connected;
  }
  void publish(transaction& t) {
    note("publish", publishing);
    t.write(path_.backend() + "/sectors", std::to_string(sectors));
  }
  void begin_disconnect() noexcept { calls.emplace_back("begin_disconnect"); }
  [[nodiscard]] bool drained() const noexcept { return always_drained; }
  void finish_disconnect() noexcept {
    calls.emplace_back("finish_disconnect");
    --connected;
    state_at_finish = store_.read(path_.backend() + "/state").value_or("");
  }
  void reread() { note("reread", rereading); }
  void resized(transaction& t) {
    calls.emplace_back("resized");
    t.write(path_.backend() + "/sectors", std::to_string(sectors));
  }

  std::uint64_t sectors = 2048;

  [[nodiscard]] long count(std::string_view call) const {
    return std::count(calls.begin(), calls.end(), call);
  }

 private:
  void note(const char* call, const std::function<void()>& then) {
    calls.emplace_back(call);
    if (then) {
      then();
    }
  }

  scripted_store& store_;
  xenbus::device_path path_;
};

/// Models taking_over as well.
class inheriting_device : public recording_device {
 public:
  using recording_device::recording_device;

  std::function<bool()> taking_over = [] { return true; };

  bool take_over() {
    calls.emplace_back("take_over");
    const bool taken = taking_over();
    connected += taken ? 1 : 0;
    return taken;
  }
};

/// One device, made by a toolstack, with its backend.
template <class Device>
struct backend_bench_of {
  using port_type = xenbus::backend_port<scripted_store, Device>;

  explicit backend_bench_of(store_tree& the_tree,
                            xenbus::device_identity identity = {0, 3, "vbd", 51712})
      : tree(the_tree),
        store(the_tree),
        path(xenbus::create_device(
            store, xenbus::describe_vbd(std::move(identity), {.parameters = "disk.img"}))),
        device(store, path) {}

  store_tree& tree;
  scripted_store store;
  xenbus::device_path path;
  Device device;
  std::optional<port_type> port;

  void start() { port.emplace(store, device, path); }
  bool process() { return port->process(); }

  void frontend(const std::string& state) { tree.put(path.frontend() + "/state", state); }
  void frontend_node(const std::string& name, const std::string& value) {
    tree.put(path.frontend() + "/" + name, value);
  }
  void publish_rings(const std::string& reference = "8", const std::string& channel = "5") {
    frontend_node("ring-ref", reference);
    frontend_node("event-channel", channel);
  }
  [[nodiscard]] std::string state() const { return tree.get(path.backend() + "/state"); }
  [[nodiscard]] std::string node(const std::string& name) const {
    return tree.get(path.backend() + "/" + name);
  }
  [[nodiscard]] std::string error() const { return tree.get(path.backend_error()); }

  void connect() {
    if (!port) {
      start();
    }
    process();
    publish_rings();
    frontend("3");
    process();
    frontend("4");
    process();
    ASSERT_EQ(state(), "4");
  }
};
using backend_bench = backend_bench_of<recording_device>;

}  // namespace pvring::test
