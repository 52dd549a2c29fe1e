// SPDX-License-Identifier: MIT
// T5: what it is worth to read completions in user space and to look for them right after
// submitting. A storage server's mix on a loop device, which completes asynchronously; the baseline
// asks the kernel, once per wake-up.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "pvring/aio/libaio.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "pvring/wait/loop.hpp"
#include "support/clock.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/recording_engine.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

// As many as a loop device takes before submitting blocks.
constexpr std::uint32_t depth = 128;
constexpr std::size_t largest = 64 * 1024;
constexpr std::uint64_t image_bytes = std::uint64_t{256} << 20U;
constexpr std::uint64_t slots_of_image = image_bytes / largest;
constexpr double percentiles[] = {1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99.99};

using engine = recording<pvring::aio::libaio>;

/// Sizes in sectors and how many of a hundred requests have them: small ones most often, large ones
/// most of the bytes.
struct share {
  std::uint32_t sectors;
  std::uint32_t percent;
};
constexpr share sizes[] = {{1, 10}, {2, 5}, {4, 5}, {8, 45}, {16, 10}, {32, 8}, {64, 7}, {128, 10}};

struct outcome {
  double requests_per_second = 0;
  double calls_per_request = 0;
  double engine_calls_per_request = 0;
  double latency_us = 0;
  double cpu_ns_per_request = 0;
};

class mixed_loop {
 public:
  mixed_loop(result& out, pvring::aio::file_image& image, bool good, std::uint64_t seed)
      : out_(out),
        device_(host_, guest_, image,
                {.reap = good ? pvring::aio::reap_mode::user_space
                              : pvring::aio::reap_mode::system_call,
                 .reap_after_submit = good}),
        waiter_(device_.queue(), pvring::wait::event{}),
        random_(seed) {
    for (std::uint32_t tag = depth; tag-- != 0;) {
      free_.push_back(tag);
    }
  }

  outcome run(std::uint64_t requests) {
    device_.engine().sizes().clear();
    const std::uint64_t calls = system_calls();
    const std::uint64_t engine_calls = calls_of_engine();
    latency_ns_ = 0;
    done_ = 0;
    std::uint64_t put = 0;
    const std::int64_t cpu = thread_cpu_ns();
    const std::int64_t start = wall_ns();
    while (done_ < requests) {
      put += fill(requests - put);
      if (waiter_.turn() && done_ + collect() < requests) {
        sleep();
      }
      done_ += collect();
    }
    const std::int64_t wall = wall_ns() - start;
    const auto n = static_cast<double>(requests);
    return {.requests_per_second = n * 1e9 / static_cast<double>(wall),
            .calls_per_request = static_cast<double>(system_calls() - calls) / n,
            .engine_calls_per_request = static_cast<double>(calls_of_engine() - engine_calls) / n,
            .latency_us = static_cast<double>(latency_ns_) / n / 1000,
            .cpu_ns_per_request = static_cast<double>(thread_cpu_ns() - cpu) / n};
  }

  [[nodiscard]] const reap_sizes& found() { return device_.engine().sizes(); }
  void check_all() {
    out_.check_equal(wrong_, 0U, "requests that failed or brought other data than was asked for");
    out_.check_equal(
        device_.queue().counters().failed.get() + device_.queue().counters().refused.get(), 0U,
        "requests that failed or were refused");
  }

 private:
  struct request {
    std::uint64_t sector = 0;
    std::uint32_t sectors = 0;
    bool write = false;
    std::int64_t since = 0;
  };

  std::uint64_t fill(std::uint64_t most) {
    std::uint64_t n = 0;
    while (!free_.empty() && n < most) {
      const std::uint32_t tag = free_.back();
      free_.pop_back();
      request& of = requests_[tag];
      std::uint64_t at = random_.below(100);
      const share* size = std::begin(sizes);
      while (at >= size->percent) {
        at -= size->percent;
        ++size;
      }
      of.sectors = size->sectors;
      of.write = random_.below(100) >= 80;
      of.sector = random_.below(slots_of_image) * (largest / sector_bytes);
      if (of.write) {
        mark_sectors(guest_.data(tag).first(of.sectors * sector_bytes), of.sector);
      }
      of.since = wall_ns();
      guest_.put(tag, of.write ? blkif::operation::write : blkif::operation::read, of.sector,
                 of.sectors * sector_bytes);
      ++n;
    }
    if (n != 0) {
      (void)guest_.publish();
    }
    return n;
  }

  std::uint64_t collect() {
    const std::int64_t now = wall_ns();
    return guest_.take([&](std::uint32_t tag, bool okay) {
      const request& of = requests_[tag];
      // The first and the last sector: all of them would cost more than the reading.
      const std::byte* const data = guest_.data(tag).data();
      const bool right =
          okay && begins_with_sector(data, of.sector) &&
          begins_with_sector(data + (of.sectors - 1) * sector_bytes, of.sector + of.sectors - 1);
      wrong_ += right ? 0 : 1;
      latency_ns_ += now - of.since;
      free_.push_back(tag);
    });
  }

  void sleep() {
    std::array<pollfd, pvring::wait::max_sources> waiting{};
    std::size_t n = 0;
    for (const int fd : waiter_.fds()) {
      waiting[n++] = {.fd = fd, .events = POLLIN, .revents = 0};
    }
    (void)::poll(waiting.data(), n, waiter_.timeout_ms());
    ++polls_;
  }

  // Every system call that the backend's thread makes for its queue; the frontend's own are not
  // among them.
  [[nodiscard]] std::uint64_t system_calls() {
    return calls_of_engine() + device_.grants().counters().system_calls.get() +
           device_.events().counters().system_calls.get() + polls_;
  }
  [[nodiscard]] std::uint64_t calls_of_engine() {
    const auto& of = device_.engine().counters();
    return of.submit_calls.get() + of.reap_calls.get() + of.other_calls.get();
  }

  result& out_;
  guest_shape shape_{.ring_pages = 4, .requests = depth, .largest_bytes = largest, .domain = 1};
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  device<pvring::grant::persistent_pool, engine> device_;
  pvring::wait::waiter<device<pvring::grant::persistent_pool, engine>::queue_type> waiter_;
  offsets random_;
  std::array<request, depth> requests_{};
  std::vector<std::uint32_t> free_;
  std::uint64_t polls_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t wrong_ = 0;
  std::int64_t latency_ns_ = 0;
};

std::vector<std::string> row(std::string name, const reap_sizes& of) {
  std::vector<std::string> out{std::move(name)};
  for (const double p : percentiles) {
    out.push_back(std::to_string(of.percentile(p)));
  }
  return out;
}

plot line(std::string name, const reap_sizes& of) {
  plot out{.name = std::move(name), .x = {}, .y = {}, .spread = {}};
  for (const double p : percentiles) {
    out.x.push_back(p);
    out.y.push_back(static_cast<double>(of.percentile(p)));
  }
  return out;
}

std::string rounded(double value) { return std::to_string(static_cast<std::int64_t>(value + 0.5)); }

}  // namespace

result measure_reaping(const settings& how) {
  result out("T5", "completions read in user space, and reaped after submit", !how.smoke);
  const scratch_image file(image_bytes);
  const loop_device loop(file);
  if (loop.path().empty()) {
    out.notes.push_back("on a file instead of a loop device (" + loop.why() +
                        "): completions may all be synchronous");
  }
  pvring::aio::file_image image(loop.path().empty() ? file.path() : loop.path());
  out.method = std::string("Loop device on a 256 MiB file on ") +
               (file.on_tmpfs() ? "tmpfs" : "disk") + ", " +
               (image.direct() ? "O_DIRECT" : "buffered") +
               (loop.direct() ? " down to the file" : "") +
               "; persistent_pool, ring of 4 pages, 128 requests in flight, 512 B to 64 KiB, 80 % "
               "reads, wait policy event. "
               "One thread refills the ring, serves, and sleeps in poll. Baseline: io_getevents "
               "before taking, and no look "
               "after submitting. System calls: all that the backend makes, poll included.";
  mixed_loop ours(out, image, true, 5);
  mixed_loop base(out, image, false, 5);
  const std::uint64_t requests = how.smoke ? 2000 : 60000;
  (void)ours.run(requests);
  (void)base.run(requests);
  const std::size_t repetitions = std::max<std::size_t>(how.repetitions, how.smoke ? 1 : 5);
  std::vector<outcome> of[2];
  reap_sizes sizes_found[2];
  (void)interleave(2, repetitions, [&](std::size_t which) {
    mixed_loop& run = which == 0 ? ours : base;
    of[which].push_back(run.run(requests));
    sizes_found[which].add(run.found());
    return 0.0;
  });
  ours.check_all();
  base.check_all();

  const auto column = [&](std::size_t which, double outcome::*member) {
    std::vector<double> values;
    for (const outcome& o : of[which]) {
      values.push_back(o.*member);
    }
    return values;
  };
  const auto compare = [&](double outcome::*member) {
    return summarize(ratios(column(0, member), column(1, member)));
  };
  out.at_most("system calls per request", compare(&outcome::calls_per_request), 0.6);
  out.report("system calls per request, of the engine alone",
             compare(&outcome::engine_calls_per_request));
  out.at_least("throughput", compare(&outcome::requests_per_second), 1);
  out.report("mean latency", compare(&outcome::latency_us));
  out.report("CPU per request, both ends", compare(&outcome::cpu_ns_per_request));
  const char* const names[2] = {"user space, after submit", "system call, none after submit"};
  for (std::size_t i = 0; i < 2; ++i) {
    out.keep(names[i], "requests per second", column(i, &outcome::requests_per_second));
    out.keep(names[i], "system calls per request", column(i, &outcome::calls_per_request));
    out.keep(names[i], "engine's system calls per request",
             column(i, &outcome::engine_calls_per_request));
    out.keep(names[i], "microseconds of mean latency", column(i, &outcome::latency_us));
    out.keep(names[i], "ns of CPU per request", column(i, &outcome::cpu_ns_per_request));
  }

  table found{.title = "completions found per reap that found any, by percentile of reaps",
              .columns = {""},
              .rows = {}};
  for (const double p : percentiles) {
    found.columns.push_back(p == 99.99 ? "99.99th" : rounded(p) + (p == 1 ? "st" : "th"));
  }
  found.rows.push_back(row("system call, none after submit", sizes_found[1]));
  found.rows.push_back(row("user space, after submit", sizes_found[0]));
  found.rows.push_back({"published, before", "2", "4", "42", "112", "128", "128", "128", "128",
                        "128", "128", "128"});
  found.rows.push_back(
      {"published, after", "1", "1", "4", "14", "33", "45", "47", "48", "50", "51", "108"});
  out.tables.push_back(std::move(found));

  table speed{.title = "throughput and mean latency beside the published ones",
              .columns = {"", "before", "after", "change"},
              .rows = {}};
  const double rate[2] = {median(column(0, &outcome::requests_per_second)),
                          median(column(1, &outcome::requests_per_second))};
  const double late[2] = {median(column(0, &outcome::latency_us)),
                          median(column(1, &outcome::latency_us))};
  const auto change = [](double after, double before) {
    return rounded((after / before - 1) * 100) + " %";
  };
  speed.rows.push_back(
      {"here, requests/s", rounded(rate[1]), rounded(rate[0]), change(rate[0], rate[1])});
  speed.rows.push_back({"published, MB/s", "1822", "1921", "5 %"});
  speed.rows.push_back({"here, us", rounded(late[1]), rounded(late[0]), change(late[0], late[1])});
  speed.rows.push_back({"published, us", "1051", "988", "-6 %"});
  out.tables.push_back(std::move(speed));

  chart c{.name = "t5-completions-per-reap",
          .title = "T5: completions found per reap, 128 requests in flight on a loop device",
          .x_label = "percent of reaps",
          .y_label = "completions found",
          .style = chart::kind::lines,
          .categories = {},
          .plots = {}};
  c.plots.push_back(line("system call, none after submit", sizes_found[1]));
  c.plots.push_back(line("user space, after submit", sizes_found[0]));
  out.charts.push_back(std::move(c));
  out.charts.push_back(
      bars_of(out, "system calls per request", "t5-system-calls", "T5: system calls per request"));
  return out;
}

}  // namespace bench
