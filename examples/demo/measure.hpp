// SPDX-License-Identifier: MIT
// What a phase of the demo cost: counters of backend and frontend and processor time, as
// differences of two snapshots. The report is made of these.
#pragma once

#include <cstdint>
#include <pvring/observe/log_linear_histogram.hpp>
#include <string>
#include <vector>

namespace demo {

/// Everything that is counted, at one moment.
struct snapshot {
  std::uint64_t requests = 0;
  std::uint64_t grant_calls = 0;
  std::uint64_t system_calls = 0;  ///< of the backend's queues
  std::uint64_t hypercalls = 0;    ///< or what they would be on Xen
  std::uint64_t interrupts = 0;    ///< notifications sent to the frontend
  std::uint64_t kicks = 0;         ///< notifications sent by the frontend
  std::uint64_t publications = 0;
  double backend_cpu = 0;  ///< seconds, of the backend's threads
  double total_cpu = 0;    ///< seconds, of the whole process
  double wall = 0;         ///< seconds

  snapshot& operator+=(const snapshot& other);
};
[[nodiscard]] snapshot operator-(const snapshot& later, const snapshot& earlier);

/// Sets the times of `into`: the clock, and the processor time so far.
void read_times(snapshot& into);

/// The name of the phase that charts show.
inline constexpr const char* mixed_phase = "mixed";

/// What one phase did, on all queues together.
struct phase {
  std::string name;
  snapshot cost;
  std::uint64_t bytes = 0;
  pvring::observe::log_linear_histogram latency;  ///< nanoseconds, from submit to seen
  [[nodiscard]] double per_request(std::uint64_t count) const;
  [[nodiscard]] double per_request(double seconds) const;
  [[nodiscard]] double megabytes_per_second() const;
  [[nodiscard]] double requests_per_second() const;
};

/// What became of one strategy.
struct outcome {
  std::string strategy;
  std::string choice;  ///< the backend's own words about its grant strategy
  std::vector<phase> phases;
  std::uint64_t verified_sectors = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t discards = 0;
  std::string digest;
};

}  // namespace demo
