// SPDX-License-Identifier: MIT
// Which CPUs this process may use, and staying on one of them for a while. A guest's CPU and its
// backend's are not the same one on a real host, and the scheduler would often put two threads that
// wake each other on one.
#pragma once

#include <sched.h>

#include <vector>

namespace bench {

[[nodiscard]] inline std::vector<unsigned> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> out;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        out.push_back(cpu);
      }
    }
  }
  return out;
}

/// Keeps the calling thread on one CPU as long as it lives; without effect where that is not
/// allowed.
class stay_on {
 public:
  explicit stay_on(unsigned cpu) noexcept {
    CPU_ZERO(&before_);
    changed_ = ::sched_getaffinity(0, sizeof before_, &before_) == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    changed_ = changed_ && ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  stay_on(const stay_on&) = delete;
  stay_on& operator=(const stay_on&) = delete;
  ~stay_on() {
    if (changed_) {
      (void)::sched_setaffinity(0, sizeof before_, &before_);
    }
  }

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace bench
