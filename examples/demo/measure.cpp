// SPDX-License-Identifier: MIT
// Where processor time comes from: the kernel tells it for each thread, and the backend's threads
// are known by name.
#include "measure.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <string_view>

namespace demo {
namespace {

// The backend's threads call themselves this, followed by what they do.
constexpr std::string_view backend_threads = "pvring-";

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double backend_seconds() {
  double sum = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) {
    return 0;
  }
  while (const dirent* task = ::readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    std::getline(std::ifstream(folder + "/comm"), name);
    if (name.starts_with(backend_threads)) {
      // Nanoseconds; its `stat` would say it in hundredths of a second.
      double nanoseconds = 0;
      std::ifstream(folder + "/schedstat") >> nanoseconds;
      sum += nanoseconds * 1e-9;
    }
  }
  ::closedir(tasks);
  return sum;
}

}  // namespace

void read_times(snapshot& into) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  into.total_cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
  into.backend_cpu = backend_seconds();
  into.wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

snapshot operator-(const snapshot& later, const snapshot& earlier) {
  return {.requests = later.requests - earlier.requests,
          .grant_calls = later.grant_calls - earlier.grant_calls,
          .system_calls = later.system_calls - earlier.system_calls,
          .hypercalls = later.hypercalls - earlier.hypercalls,
          .interrupts = later.interrupts - earlier.interrupts,
          .kicks = later.kicks - earlier.kicks,
          .publications = later.publications - earlier.publications,
          .backend_cpu = later.backend_cpu - earlier.backend_cpu,
          .total_cpu = later.total_cpu - earlier.total_cpu,
          .wall = later.wall - earlier.wall};
}

snapshot& snapshot::operator+=(const snapshot& other) {
  requests += other.requests;
  grant_calls += other.grant_calls;
  system_calls += other.system_calls;
  hypercalls += other.hypercalls;
  interrupts += other.interrupts;
  kicks += other.kicks;
  publications += other.publications;
  backend_cpu += other.backend_cpu;
  total_cpu += other.total_cpu;
  wall += other.wall;
  return *this;
}

double phase::per_request(std::uint64_t count) const {
  return per_request(static_cast<double>(count));
}
double phase::per_request(double amount) const {
  return cost.requests == 0 ? 0 : amount / static_cast<double>(cost.requests);
}
double phase::megabytes_per_second() const {
  return cost.wall > 0 ? static_cast<double>(bytes) / cost.wall * 1e-6 : 0;
}
double phase::requests_per_second() const {
  return cost.wall > 0 ? static_cast<double>(cost.requests) / cost.wall : 0;
}

}  // namespace demo
