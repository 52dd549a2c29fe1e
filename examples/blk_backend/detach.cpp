// SPDX-License-Identifier: MIT
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <pvring/xenbus/toolstack.hpp>
#include <pvring/xenbus/watch.hpp>

#include "device_name.hpp"
#include "devices.hpp"

namespace tool {
namespace {

namespace xenbus = pvring::xenbus;
using pvring::protocol::xenbus_state;
using clock = std::chrono::steady_clock;

class detaching {
 public:
  detaching(platform_access& platform, const detach_settings& wanted, const signals& stop)
      : wanted_(wanted),
        stop_(stop),
        store_(platform.open_store()),
        path_(find()),
        name_(device_name(wanted.identity.device) + " of domain " +
              std::to_string(wanted.identity.frontend_domain)) {}

  exit_code run() {
    if (!store_->read(xenbus::join(path_.backend(), "state"))) {
      throw command_error(wrong_device, "there is no " + name_ + " (" + path_.backend() +
                                            " is missing): see pvring-blk list");
    }
    const xenbus::scoped_watch<store_connection> backend(
        *store_, xenbus::join(path_.backend(), "state"), "backend");
    const xenbus::scoped_watch<store_connection> frontend(
        *store_, xenbus::join(path_.frontend(), "state"), "frontend");
    request_unplug(*store_, path_);
    const exit_code how = wait();
    if (how == fine) {
      force_remove(*store_, path_);
      std::printf("%s is detached\n", name_.c_str());
    }
    return how;
  }

 private:
  xenbus::device_path find() {
    try {
      return resolve_from_backend(*store_, wanted_.identity);
    } catch (const pvring::node_error& e) {
      // A link that cannot be followed: the usual place is all there is.
      std::fprintf(stderr, "%s\n", e.what());
      return xenbus::device_path(wanted_.identity);
    }
  }

  // Whether the backend is done with the device: it has unmapped everything.
  [[nodiscard]] bool is_over() {
    while (store_->next_event()) {
    }
    backend_ = xenbus::read_state(*store_, path_.backend());
    frontend_ = xenbus::read_state(*store_, path_.frontend());
    return backend_ == xenbus_state::closed || backend_ == xenbus_state::unknown;
  }

  void show_progress(double waited) const {
    std::fprintf(stderr, "waiting for %s: backend %s, guest %s, %.0f s\n", name_.c_str(),
                 std::string(to_string(backend_)).c_str(),
                 std::string(to_string(frontend_)).c_str(), waited);
  }

  exit_code wait() {
    const auto start = clock::now();
    double next_report = 1;
    while (!is_over()) {
      const double waited = std::chrono::duration<double>(clock::now() - start).count();
      if (wanted_.force_after_seconds && waited >= *wanted_.force_after_seconds) {
        std::fprintf(stderr, "%s did not close in %u s: it is removed all the same\n",
                     name_.c_str(), *wanted_.force_after_seconds);
        return fine;
      }
      if (!wanted_.force_after_seconds && waited >= wanted_.timeout_seconds) {
        throw command_error(no_answer, timed_out());
      }
      if (waited >= next_report) {
        show_progress(waited);
        next_report = std::min(next_report * 2, next_report + 10);
      }
      pollfd ready[2] = {{.fd = store_->fd(), .events = POLLIN, .revents = 0},
                         {.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
      constexpr int milliseconds = 200;  // no limit is missed by more
      if (::poll(ready, 2, milliseconds) > 0 && ready[1].revents != 0) {
        std::fprintf(stderr, "interrupted: the device stays unplugged, and its nodes stay\n");
        return failed;
      }
    }
    return fine;
  }

  [[nodiscard]] std::string timed_out() const {
    std::string text = name_ + " is not closed after " + std::to_string(wanted_.timeout_seconds) +
                       " s: backend " + std::string(to_string(backend_)) + ", guest " +
                       std::string(to_string(frontend_)) + "; ";
    text += frontend_ == xenbus_state::connected
                ? "the guest still uses it: unmount it there and detach again"
                : "is pvring-blk serve --type " + wanted_.identity.type + " running?";
    return text + ", or remove it with --force-after SECONDS";
  }

  detach_settings wanted_;
  const signals& stop_;
  std::unique_ptr<store_connection> store_;
  xenbus::device_path path_;
  std::string name_;
  xenbus_state backend_ = xenbus_state::unknown;
  xenbus_state frontend_ = xenbus_state::unknown;
};

}  // namespace

exit_code detach(platform_access& platform, const detach_settings& wanted, const signals& stop) {
  return detaching(platform, wanted, stop).run();
}

}  // namespace tool
