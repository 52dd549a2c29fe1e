// SPDX-License-Identifier: MIT
// Serves a real disk image through the ring on the emulated platform, once with each grant
// strategy, checks every byte, and tells what it cost. The option --help says what can be chosen.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <pvring/base/log.hpp>
#include <string>
#include <vector>

#include "image.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "session.hpp"
#include "settings.hpp"
#include "tool.hpp"

namespace {

void add_options(CLI::App& app, demo::settings& wanted, double& seconds) {
  app.add_option(
      "--image", wanted.image,
      "serve a copy of this image, a path or the URI of an NBD server's disk, instead of one "
      "made from files; it is only read");
  app.add_option("--out", wanted.out, "folder for the working image and the results")
      ->capture_default_str();
  app.add_flag("--smoke", wanted.smoke, "a small image and a short load: a few seconds");
  app.add_option("--strategy", wanted.strategies, "grant strategies to serve it with")
      ->check(CLI::IsMember({"map_each", "persistent_pool", "batched_copy"}))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--engine",
         [&wanted](const std::string& name) { wanted.engine = support::parse_engine(name); },
         "what performs the I/O: auto takes uring where the kernel allows it")
      ->check(CLI::IsMember({"auto", "libaio", "uring"}))
      ->default_str("libaio");
  app.add_option("--queues", wanted.queues, "queues of the device")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--ring-pages", wanted.ring_pages, "pages of each queue's ring")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}))
      ->capture_default_str();
  app.add_option("--depth", wanted.depth, "requests in flight per queue")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--seconds", seconds, "how long the mixed load runs, per strategy")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  app.add_option("--seed", wanted.seed, "of the mixed load")->capture_default_str();
  app.add_flag("--buffered", wanted.buffered, "use the page cache, not direct I/O");
  app.add_flag_callback(
      "--no-chart", [&wanted] { wanted.chart = false; }, "write no SVG chart, which needs gnuplot");
  app.add_flag("--keep-image", wanted.keep_image, "do not remove the working image");
  app.add_flag("--verbose", wanted.verbose, "show the library's log");
}

void show_all(pvring::log::level, std::string_view message) noexcept {
  std::fprintf(stderr, "log: %.*s\n", static_cast<int>(message.size()), message.data());
}

void run(const demo::settings& wanted) {
  if (wanted.chart) {
    // Told now, and not after a minute of work.
    (void)demo::find_tool("gnuplot", "gnuplot-nox");
  }
  demo::progress line;
  const demo::disk_image image(wanted, line);
  line.done("image: " + std::to_string(image.bytes() / demo::mebibyte) + " MiB, " + image.origin());

  std::vector<demo::outcome> outcomes;
  for (const std::string& strategy : wanted.strategies) {
    outcomes.push_back(demo::serve(wanted, image, strategy, line));
    if (image.check_file_system()) {
      line.done(strategy + ": e2fsck -fn finds the file system clean");
    }
  }
  line.clear();
  std::printf("\n%s\n", demo::table(outcomes).c_str());

  const std::string json = wanted.out + "/demo.json";
  demo::write_json(json, wanted, image, outcomes);
  std::printf("numbers: %s\n", std::filesystem::absolute(json).c_str());
  if (wanted.chart) {
    const std::string chart = wanted.out + "/demo.svg";
    demo::write_chart(chart, outcomes);
    std::printf("chart:   %s\n", std::filesystem::absolute(chart).c_str());
  }
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main(int argc, char** argv) {
  CLI::App app{
      "Serves a real disk image through a Xen block ring on the emulated platform, once with each "
      "grant strategy, and "
      "checks every byte.\nExit codes: 0 all is as it has to be; 1 it is not; 2 it could not be "
      "run."};
  demo::settings wanted;
  double seconds = wanted.load.count();
  add_options(app, wanted, seconds);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? demo::fine : demo::cannot_run;
  }
  if (wanted.smoke && app.count("--seconds") == 0) {
    seconds = 0.3;
  }
  wanted.load = std::chrono::duration<double>(seconds);
  if (wanted.verbose) {
    pvring::log::set_sink(&show_all);
  }
  try {
    run(wanted);
    return demo::fine;
  } catch (const demo::mismatch& e) {
    std::fprintf(stderr, "\nWRONG: %s\n", e.what());
    return demo::wrong_data;
  } catch (const demo::missing_tool& e) {
    std::fprintf(stderr, "\n%s\n", e.what());
    return wanted.smoke ? demo::skipped : demo::cannot_run;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "\nThe demo cannot be run: %s\n", e.what());
    return demo::cannot_run;
  }
}
