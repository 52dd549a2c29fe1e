// SPDX-License-Identifier: MIT
// Measures pvring's targets, each against a baseline in the same run, and says which are met. A
// wrong result fails the program; a missed target is a line in its table.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "support/report.hpp"
#include "support/settings.hpp"
#include "targets.hpp"

namespace {

struct target {
  const char* name;
  bench::result (*measure)(const bench::settings&);
};

constexpr target targets[] = {
    {"T1", &bench::measure_ring},        {"T2", &bench::measure_pass},
    {"T3", &bench::measure_batching},    {"T4", &bench::measure_random_reads},
    {"T5", &bench::measure_reaping},     {"T6", &bench::measure_waiting},
    {"T7", &bench::measure_net_receive}, {"T8", &bench::measure_queues},
    {"T9", &bench::measure_memory},      {"T10", &bench::measure_compiling},
};

int run(int argc, char** argv) {
  std::vector<std::string> names;
  for (const target& t : targets) {
    names.emplace_back(t.name);
  }
  const bench::settings how = bench::read_settings(
      argc, argv,
      "Measures pvring's targets against baselines in the same run, and says which are met.",
      names);
  if (!how.variant.empty()) {
    if (bench::run_ring_variant(how.variant, how.rounds) ||
        bench::run_pass_variant(how.variant, how.rounds) ||
        bench::run_reads_variant(how.variant, how.rounds)) {
      return 0;
    }
    std::fprintf(stderr, "there is no variant '%s'\n", how.variant.c_str());
    return 2;
  }
  std::vector<bench::result> results;
  for (const target& t : targets) {
    if (how.wants(t.name)) {
      results.push_back(t.measure(how));
      bench::print_progress(results.back());
    }
  }
  return bench::report("targets", results, how);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "benchmark failed: %s\n", error.what());
    return 1;
  }
}
