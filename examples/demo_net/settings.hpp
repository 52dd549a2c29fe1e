// SPDX-License-Identifier: MIT
// What the user asked of the network demo, and what came of one combination. Every part of the demo
// includes it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace demo_net {

inline constexpr const char* note =
    "Emulated platform: counts (calls, notifications, slots) carry over to Xen; times (Gb/s, "
    "packets/s, ping, CPU) do "
    "not.";

struct settings {
  std::string out = "demo-results";
  std::vector<std::string> strategies{"batched_copy", "map_each"};
  std::vector<std::string> deliveries{"inline", "deferred"};
  std::uint32_t queues = 1;
  double seconds = 1;           ///< of each iperf3 run
  std::uint64_t file_mib = 64;  ///< of the file that is compared
  bool smoke = false;
  bool chart = true;
  bool verbose = false;
  bool kernel = true;  ///< real TCP; else packets made here
};

/// One strategy, delivery and set of offloads.
struct combination {
  std::string strategy;
  std::string delivery;
  bool offloads = true;

  [[nodiscard]] std::string name() const {
    return strategy + ", " + delivery + (offloads ? ", offloads" : ", none");
  }
};

struct outcome {
  combination what;
  double ping_ms = 0;
  double gigabits[4] = {};  ///< there and back with one stream, there and back with four
  double packets_per_second = 0;
  double backend_cpu_seconds_per_gib = 0;
  double grant_calls_per_packet = 0;
  double grant_operations_per_packet = 0;
  double notifications_per_packet = 0;
  double slots_per_packet = 0;
  std::string sha256;
};

/// What arrived is not what was sent, or the backend broke the protocol.
class mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Neither namespaces nor TAP devices are to be had here.
class no_kernel : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum exit_code : int { fine = 0, wrong_data = 1, cannot_run = 2 };

}  // namespace demo_net
