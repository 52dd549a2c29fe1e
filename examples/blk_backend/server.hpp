// SPDX-License-Identifier: MIT
// Serves every device of a type that the store shows, each by a backend of its own; one thread
// handles them all. What is wrong with one device stays with that device.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <pvring/xenbus/device_path.hpp>
#include <pvring/xenbus/watch.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device_options.hpp"
#include "event_loop.hpp"
#include "exit_codes.hpp"
#include "platform_access.hpp"
#include "rates.hpp"
#include "signals.hpp"

namespace tool {

inline constexpr const char* usual_type = "vbd-pvring";

struct serve_settings {
  std::string type = usual_type;
  pvring::domain_id backend_domain = 0;
  device_options defaults;
  std::vector<device_rule> rules;
  unsigned stats_seconds = 10;  ///< 0: rates are not published
  std::string journals;         ///< the directory of the rings' journals; empty: none are kept
  trace_file* trace = nullptr;
  /// Only this device, and only until it is over.
  std::optional<pvring::xenbus::device_identity> only;
};

class server {
 public:
  /// Whatever uses `loop` besides, `run` serves too. All outlive it.
  server(platform_access& platform, const serve_settings& wanted, const signals& stop,
         event_loop& loop);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Until a signal says stop, or the only device is over. \throws std::system_error of the store
  exit_code run();

  /// A device that is served or was refused, for metrics.
  struct report {
    pvring::xenbus::device_identity identity;
    bool served = false;
    pvring::protocol::xenbus_state state = pvring::protocol::xenbus_state::unknown;
    device_numbers numbers;
  };
  [[nodiscard]] std::vector<report> reports() const;
  /// Called after each look at the rates.
  void set_tick(std::function<void()> tick) { on_tick_ = std::move(tick); }

 private:
  struct key {
    pvring::domain_id domain = 0;
    std::uint32_t device = 0;
    friend bool operator==(const key&, const key&) = default;
    friend bool operator<(const key& a, const key& b) {
      return std::tie(a.domain, a.device) < std::tie(b.domain, b.device);
    }
  };
  struct entry {
    std::unique_ptr<served_device> device;
    std::string image;
    bool read_only = false;
    bool over = false;    ///< until the toolstack makes it anew
    std::string refused;  ///< the nodes with which it was refused; empty: it was not
    /// Since when it waits for its image, which somebody else has; nothing: it does not.
    std::optional<std::chrono::steady_clock::time_point> waiting_since;
    bool said_why = false;  ///< in the store
    rates measured;
  };

  [[nodiscard]] pvring::xenbus::device_identity identity_of(const key& which) const;
  void read_events();
  void scan();
  void remove_lost_journals() const;
  [[nodiscard]] std::optional<key> owner_of_journal(const std::string& name) const;
  void look(const key& which);
  void begin(const key& which, entry& of, const pvring::xenbus::device_path& path);
  void check_sharing(const key& which, const device_request& wanted) const;
  [[nodiscard]] device_request request_for(const pvring::xenbus::device_path& path);
  [[nodiscard]] std::string fingerprint(const pvring::xenbus::device_path& path);
  void refuse(const key& which, entry& of, const std::string& why);
  void wait_for_image(const key& which, entry& of, const std::string& why);
  void on_retry();
  void change(const std::function<void(store_access&)>& body);
  void answer_unplug(const std::string& backend);
  void process(const key& which);
  void end(const key& which, entry& of);
  void on_signal();
  void on_tick();
  void publish(const key& which, entry& of);
  [[nodiscard]] bool serves_any() const;

  platform_access& platform_;
  serve_settings wanted_;
  const signals& stop_;
  event_loop& loop_;
  std::string root_;
  std::unique_ptr<store_connection> store_;
  pvring::xenbus::scoped_watch<store_connection> watch_;
  pvring::unique_fd timer_;
  pvring::unique_fd retry_timer_;
  std::map<key, entry> devices_;
  bool stopping_ = false;
  bool only_is_over_ = false;
  exit_code result_ = fine;
  std::function<void()> on_tick_;
};

}  // namespace tool
