// SPDX-License-Identifier: MIT
// The numbers that are told of each phase, and how each follows from what was counted.
#include "columns.hpp"

namespace demo {
namespace {

double microseconds(const phase& of, double percent) {
  return static_cast<double>(of.latency.percentile(percent)) * 1e-3;
}

double per_batch(const phase& of) {
  return of.cost.publications == 0
             ? 0
             : static_cast<double>(of.cost.requests) / static_cast<double>(of.cost.publications);
}

}  // namespace

const std::vector<column>& columns() {
  static const std::vector<column> all{
      {"megabytes_per_second", "", "MB/s", "", 0,
       [](const phase& p) { return p.megabytes_per_second(); }},
      {"requests_per_second", "", "req/s", "requests per second", 0,
       [](const phase& p) { return p.requests_per_second(); }},
      {"latency_p50_us", "latency", "p50 us", "", 0,
       [](const phase& p) { return microseconds(p, 50); }},
      {"latency_p99_us", "latency", "p99 us", "latency p99, us", 0,
       [](const phase& p) { return microseconds(p, 99); }},
      {"latency_p999_us", "latency", "p99.9 us", "", 0,
       [](const phase& p) { return microseconds(p, 99.9); }},
      {"backend_cpu_us_per_request", "CPU us/req", "backend", "backend CPU per request, us", 1,
       [](const phase& p) { return p.per_request(p.cost.backend_cpu * 1e6); }},
      {"total_cpu_us_per_request", "CPU us/req", "total", "", 1,
       [](const phase& p) { return p.per_request(p.cost.total_cpu * 1e6); }},
      {"grant_calls_per_request", "calls/req", "grant", "grant calls per request", 3,
       [](const phase& p) { return p.per_request(p.cost.grant_calls); }},
      {"system_calls_per_request", "calls/req", "system", "system calls per request", 3,
       [](const phase& p) { return p.per_request(p.cost.system_calls); }},
      {"interrupts_per_request", "notif./req", "to guest", "", 3,
       [](const phase& p) { return p.per_request(p.cost.interrupts); }},
      {"kicks_per_request", "notif./req", "from guest", "", 3,
       [](const phase& p) { return p.per_request(p.cost.kicks); }},
      {"requests_per_batch", "req", "per batch", "requests per batch", 1, &per_batch},
  };
  return all;
}

}  // namespace demo
