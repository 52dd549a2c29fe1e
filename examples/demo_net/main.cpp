// SPDX-License-Identifier: MIT
// Two emulated guests, each a network namespace whose TAP device is joined to an emulated netfront,
// with our backend between them: real kernels' TCP over our rings. The option --help says what can
// be chosen.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <pvring/base/log.hpp>
#include <string>
#include <vector>

#include "measure.hpp"
#include "report.hpp"
#include "settings.hpp"

namespace {

using namespace demo_net;

std::vector<combination> combinations(const settings& wanted) {
  std::vector<combination> all;
  for (const std::string& strategy : wanted.strategies) {
    for (const std::string& delivery : wanted.deliveries) {
      for (const bool offloads : {true, false}) {
        all.push_back({strategy, delivery, offloads});
        if (wanted.smoke) {
          return all;
        }
      }
    }
  }
  return all;
}

outcome run_one(settings& wanted, const combination& what) {
  const auto say = [&](const std::string& step) {
    std::printf("%s: %s\n", what.name().c_str(), step.c_str());
    std::fflush(stdout);
  };
  if (wanted.kernel) {
    try {
      return measure(wanted, what, say);
    } catch (const no_kernel& e) {
      std::printf("%s\nSo there is no real TCP here: packets are made and checked by the demo.\n",
                  e.what());
      wanted.kernel = false;
    }
  }
  say("packets");
  return measure_without_kernel(wanted, what);
}

void run(settings wanted) {
  std::filesystem::create_directories(wanted.out);
  std::vector<outcome> outcomes;
  for (const combination& what : combinations(wanted)) {
    outcomes.push_back(run_one(wanted, what));
  }
  std::printf("\n%s\n", table(outcomes).c_str());
  if (wanted.kernel) {
    std::printf("Each file arrived as it was sent: SHA-256 %s\n", outcomes.front().sha256.c_str());
  }
  const std::string json = wanted.out + "/demo-net.json";
  write_json(json, wanted, outcomes);
  std::printf("numbers: %s\n", std::filesystem::absolute(json).c_str());
  if (wanted.chart) {
    const std::string chart = wanted.out + "/demo-net.svg";
    write_chart(chart, outcomes);
    std::printf("chart:   %s\n", std::filesystem::absolute(chart).c_str());
  }
}

void show_all(pvring::log::level, std::string_view message) noexcept {
  std::fprintf(stderr, "log: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main(int argc, char** argv) {
  CLI::App app{
      "Joins two emulated guests through the network backend and drives real TCP over the rings.\n"
      "Exit codes: 0 all is as it has to be; 1 it is not; 2 it could not be run."};
  settings wanted;
  app.add_option("--out", wanted.out, "folder for the results")->capture_default_str();
  app.add_flag("--smoke", wanted.smoke, "one combination, a few seconds");
  app.add_option("--strategy", wanted.strategies, "grant strategies")
      ->check(CLI::IsMember({"batched_copy", "map_each"}))
      ->capture_default_str();
  app.add_option("--delivery", wanted.deliveries, "when a packet is put into the guest")
      ->check(CLI::IsMember({"inline", "deferred"}))
      ->capture_default_str();
  app.add_option("--queues", wanted.queues, "queues of each device")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--seconds", wanted.seconds, "of each iperf3 run, whole ones")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  app.add_option("--file-mib", wanted.file_mib, "MiB of the file that is sent and compared")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag_callback(
      "--no-chart", [&wanted] { wanted.chart = false; }, "write no SVG chart, which needs gnuplot");
  app.add_flag_callback(
      "--no-kernel", [&wanted] { wanted.kernel = false; },
      "no namespaces and no TCP: packets are made and checked by the demo");
  app.add_flag("--verbose", wanted.verbose, "show the library's log");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? fine : cannot_run;
  }
  if (wanted.smoke) {
    wanted.chart = false;
    wanted.file_mib = std::min<std::uint64_t>(wanted.file_mib, 8);
  }
  if (wanted.verbose) {
    pvring::log::set_sink(&show_all);
  }
  try {
    run(wanted);
    return fine;
  } catch (const mismatch& e) {
    std::fprintf(stderr, "\nWRONG: %s\n", e.what());
    return wrong_data;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "\nThe demo cannot be run: %s\n", e.what());
    return cannot_run;
  }
}
