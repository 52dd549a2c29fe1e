// SPDX-License-Identifier: MIT
// T6: what polling for a while is worth at depth 1, what it costs in kicks, and that an idle device
// costs nothing. The queue runs on its own thread; the frontend, on this one, sleeps for each
// answer as a guest's CPU does.
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pvring/aio/libaio.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "pvring/wait/runner.hpp"
#include "support/clock.hpp"
#include "support/cpus.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint64_t image_bytes = std::uint64_t{64} << 20U;

using device_type = device<pvring::grant::persistent_pool, pvring::aio::libaio>;

struct outcome {
  double requests_per_second = 0;
  double kicks_per_entry = 0;
  double kicks_per_request = 0;
  double idle_share = 0;
};

/// A device with its runner.
class served_device {
 public:
  served_device(pvring::aio::file_image& image, const pvring::wait::policy& policy,
                bool sleeping_guest, std::optional<unsigned> cpu)
      : device_(host_, guest_, image),
        runner_(std::in_place, device_.queue(), options(policy, cpu)),
        pages_(image.size() / page_bytes),
        sleeps_(sleeping_guest) {}

  outcome run(result& out, std::uint64_t requests, std::int64_t idle_ns) {
    const auto& seen = runner_->counters();
    const std::uint64_t entries = seen.polls_paid.get() + seen.polls_unpaid.get();
    std::uint64_t kicks = 0;
    std::uint64_t good = 0;
    const std::int64_t start = wall_ns();
    for (std::uint64_t i = 0; i < requests; ++i) {
      const std::uint64_t sector = random_.below(pages_) * (page_bytes / sector_bytes);
      guest_.put(0, blkif::operation::read, sector, page_bytes);
      const bool kicked = guest_.publish();
      kicks += kicked ? 1 : 0;
      wait_for_answer();
      guest_.take([&](std::uint32_t tag, bool okay) {
        good += okay && begins_with_sector(guest_.data(tag).data(), sector) ? 1 : 0;
      });
    }
    const std::int64_t wall = wall_ns() - start;
    out.check_equal(good, requests, "requests that brought the right page");
    const std::uint64_t polled = seen.polls_paid.get() + seen.polls_unpaid.get() - entries;

    outcome of{
        .requests_per_second = static_cast<double>(requests) * 1e9 / static_cast<double>(wall),
        .kicks_per_entry =
            polled != 0 ? static_cast<double>(kicks) / static_cast<double>(polled) : 0,
        .kicks_per_request = static_cast<double>(kicks) / static_cast<double>(requests),
        .idle_share = 0};
    if (idle_ns != 0) {
      // This thread sleeps, so whatever the process uses is the device's.
      const std::int64_t cpu = process_cpu_ns();
      const std::int64_t since = wall_ns();
      (void)::usleep(static_cast<useconds_t>(idle_ns / 1000));
      of.idle_share = static_cast<double>(process_cpu_ns() - cpu) /
                      static_cast<double>(wall_ns() - since) * 100;
    }
    return of;
  }

 private:
  static pvring::wait::runner_options options(const pvring::wait::policy& policy,
                                              std::optional<unsigned> cpu) {
    pvring::wait::runner_options out;
    out.wait = policy;
    out.cpu = cpu;
    return out;
  }
  void wait_for_answer() {
    while (!guest_.arm()) {
      if (sleeps_) {
        pollfd ready{.fd = guest_.events().fd(), .events = POLLIN, .revents = 0};
        (void)::poll(&ready, 1, -1);
      } else {
        while (!guest_.ring().has_responses()) {
          pvring::wait::detail::relax();
        }
        return;
      }
      if (guest_.ring().has_responses()) {
        return;
      }
    }
  }

  guest_shape shape_{.ring_pages = 1, .requests = 1, .largest_bytes = page_bytes, .domain = 1};
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  device_type device_;
  std::optional<pvring::wait::runner<device_type::queue_type>> runner_;
  std::uint64_t pages_;
  bool sleeps_;
  offsets random_{11};
};

}  // namespace

result measure_waiting(const settings& how) {
  result out("T6", "4 KiB reads at depth 1: adaptive against event", !how.smoke);
  const scratch_image file(image_bytes);
  pvring::aio::file_image image(file.path());
  out.method =
      "persistent_pool and libaio on tmpfs, the queue on a thread of its own. The frontend puts "
      "one read, sleeps in poll for the "
      "answer, and goes on; beside it one that spins, as a guest that is busy with something else. "
      "Idle: CPU time of the "
      "process while the frontend sleeps, after the load.";
  const std::vector<unsigned> cpus = usable_cpus();
  std::optional<stay_on> own;
  std::optional<unsigned> other;
  if (cpus.size() >= 2) {
    own.emplace(cpus[0]);
    other = cpus[1];
    out.method += " Frontend and queue are kept on CPUs of their own.";
  } else {
    out.notes.emplace_back("one CPU for both ends: polling cannot pay here");
  }
  const std::uint64_t requests = how.smoke ? 500 : 10000;
  const std::int64_t idle_ns = how.smoke ? 100'000'000 : 1'000'000'000;
  const pvring::wait::policy policies[2] = {pvring::wait::adaptive{}, pvring::wait::event{}};
  std::vector<outcome> of[2][2];  // by policy, by whether the guest sleeps
  (void)interleave(4, how.repetitions, [&](std::size_t which) {
    const std::size_t policy = which % 2;
    const bool sleeping = which < 2;
    // A device of its own for each run: the others do not exist meanwhile, so they cannot poll.
    served_device device(image, policies[policy], sleeping, other);
    of[policy][sleeping ? 0 : 1].push_back(device.run(out, requests, sleeping ? idle_ns : 0));
    return 0.0;
  });
  const auto column = [&](std::size_t policy, std::size_t kind, double outcome::*member) {
    std::vector<double> values;
    for (const outcome& o : of[policy][kind]) {
      values.push_back(o.*member);
    }
    return values;
  };
  const auto rate = &outcome::requests_per_second;
  out.at_least("IOPS, sleeping guest", summarize(ratios(column(0, 0, rate), column(1, 0, rate))),
               1.25);
  out.report("IOPS, spinning guest", summarize(ratios(column(0, 1, rate), column(1, 1, rate))));
  out.at_most("kicks per entry into polling", summarize(column(0, 0, &outcome::kicks_per_entry)), 1,
              "");
  out.report("kicks per request, adaptive", summarize(column(0, 0, &outcome::kicks_per_request)),
             "");
  out.report("kicks per request, event", summarize(column(1, 0, &outcome::kicks_per_request)), "");
  out.at_most("idle device, adaptive, share of a core",
              summarize(column(0, 0, &outcome::idle_share)), 1, "%");
  out.keep("adaptive, sleeping guest", "requests per second", column(0, 0, rate));
  out.keep("event, sleeping guest", "requests per second", column(1, 0, rate));
  out.keep("adaptive, spinning guest", "requests per second", column(0, 1, rate));
  out.keep("event, spinning guest", "requests per second", column(1, 1, rate));
  out.charts.push_back(
      bars_of(out, "requests per second", "t6-waiting", "T6: 4 KiB reads at depth 1"));
  return out;
}

}  // namespace bench
