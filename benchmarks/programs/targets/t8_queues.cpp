// SPDX-License-Identifier: MIT
// T8: two queues of one device on two threads against two processes with one queue each. Processes
// share nothing, so the threads lose exactly what queues of one device have in common: locks, cache
// lines, an allocator.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "pvring/aio/memory.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "support/clock.hpp"
#include "support/cpus.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint32_t depth = 32;
constexpr std::uint64_t image_bytes = std::uint64_t{4} << 20U;
constexpr unsigned workers = 2;

using device_type = device<pvring::grant::persistent_pool, pvring::aio::memory>;

/// What workers tell, in memory that processes share.
struct alignas(64) worker_report {
  std::int64_t cpu_ns;
  std::int64_t began;
  std::int64_t ended;
  std::uint64_t good;
  std::int64_t sleeps;  // voluntary context switches: nothing here should wait
};
struct board {
  std::atomic<unsigned> ready{0};
  worker_report reports[workers]{};
};

void mark_image(pvring::aio::memory_image& image) { mark_sectors(image.bytes(), 0); }

/// One queue, its frontend, and the thread that drives both.
void drive(const pvring::platform::emulated_host& host, pvring::aio::memory_image& image,
           const pvring::blk::shared_state* shared, unsigned number, std::uint64_t batches,
           unsigned cpu, board& on) {
  const stay_on here(cpu);
  const guest_shape shape{.ring_pages = 1,
                          .requests = depth,
                          .largest_bytes = page_bytes,
                          .domain = static_cast<pvring::domain_id>(number + 1)};
  guest front(host, shape);
  device_type back(host, front, image, {.shared = shared});
  offsets random(number + 1);
  std::uint64_t sectors[depth] = {};
  std::uint64_t good = 0;
  const auto batch = [&] {
    for (std::uint32_t tag = 0; tag < depth; ++tag) {
      sectors[tag] = random.below(image_bytes / page_bytes) * (page_bytes / sector_bytes);
      front.put(tag, blkif::operation::read, sectors[tag], page_bytes);
    }
    (void)front.publish();
    (void)back.service();
    front.take([&](std::uint32_t tag, bool okay) {
      good += okay && begins_with_sector(front.data(tag).data(), sectors[tag]) ? 1 : 0;
    });
  };
  batch();
  good = 0;
  on.ready.fetch_add(1, std::memory_order_acq_rel);
  while (on.ready.load(std::memory_order_acquire) < workers) {
    std::this_thread::yield();
  }
  rusage before{};
  (void)::getrusage(RUSAGE_THREAD, &before);
  worker_report report{};
  report.began = wall_ns();
  const std::int64_t cpu_before = thread_cpu_ns();
  for (std::uint64_t i = 0; i < batches; ++i) {
    batch();
  }
  report.cpu_ns = thread_cpu_ns() - cpu_before;
  report.ended = wall_ns();
  rusage after{};
  (void)::getrusage(RUSAGE_THREAD, &after);
  report.sleeps = after.ru_nvcsw - before.ru_nvcsw;
  report.good = good;
  on.reports[number] = report;
}

void run_threads(std::uint64_t batches, const std::vector<unsigned>& cpus, board& on) {
  const auto host = make_host({}, workers);
  pvring::aio::memory_image image(image_bytes);
  mark_image(image);
  pvring::blk::shared_state shared;
  export_to(shared, image, {});
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < workers; ++i) {
    threads.emplace_back(
        [&, i] { drive(host, image, &shared, i, batches, cpus[i % cpus.size()], on); });
  }
  for (std::thread& t : threads) {
    t.join();
  }
}

void run_process(unsigned number, std::uint64_t batches, const std::vector<unsigned>& cpus,
                 board& on) {
  const auto host = make_host({}, workers);
  pvring::aio::memory_image image(image_bytes);
  mark_image(image);
  drive(host, image, nullptr, number, batches, cpus[number % cpus.size()], on);
}

template <class Body>
pid_t start_child(Body&& body) {
  const pid_t child = ::fork();
  if (child < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (child == 0) {
    int status = 0;
    try {
      body();
    } catch (...) {
      status = 1;
    }
    ::_exit(status);
  }
  return child;
}

bool wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct outcome {
  double per_cpu_second = 0;
  double per_second = 0;
  double sleeps = 0;
};

outcome run(result& out, bool threads, std::uint64_t batches, const std::vector<unsigned>& cpus) {
  void* const memory =
      ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  board& on = *new (memory) board;
  std::vector<pid_t> children;
  if (threads) {
    children.push_back(start_child([&] { run_threads(batches, cpus, on); }));
  } else {
    for (unsigned i = 0; i < workers; ++i) {
      children.push_back(start_child([&, i] { run_process(i, batches, cpus, on); }));
    }
  }
  for (const pid_t child : children) {
    out.check(wait_for(child), "a worker process failed");
  }
  outcome of;
  std::int64_t cpu = 0;
  std::int64_t began = on.reports[0].began;
  std::int64_t ended = on.reports[0].ended;
  for (const worker_report& report : on.reports) {
    cpu += report.cpu_ns;
    began = std::min(began, report.began);
    ended = std::max(ended, report.ended);
    of.sleeps += static_cast<double>(report.sleeps);
    out.check_equal(report.good, batches * depth,
                    "requests of a worker that brought the right page");
  }
  const auto requests = static_cast<double>(batches * depth * workers);
  of.per_cpu_second = requests * 1e9 * workers / static_cast<double>(cpu);
  of.per_second = requests * 1e9 / static_cast<double>(ended - began);
  (void)::munmap(memory, sizeof(board));
  return of;
}

}  // namespace

result measure_queues(const settings& how) {
  result out("T8", "two queues on two threads against two processes with one queue each",
             !how.smoke);
  out.method =
      "persistent_pool, memory engine, 4 KiB reads, 32 in flight per queue; each worker drives its "
      "own frontend and queue on a "
      "CPU of its own. The threads' queues belong to one device: they share image and exported "
      "state. Everything is made anew "
      "for each run. Throughput by CPU time, which is what a worker would do with its CPU to "
      "itself: no worker ever waits, and "
      "that is checked by its voluntary context switches; by the clock beside it.";
  const std::vector<unsigned> cpus = usable_cpus();
  if (cpus.size() < workers) {
    out.notes.emplace_back(
        "fewer CPUs than workers: what threads share is not contended at the same time");
  }
  const std::uint64_t batches = how.smoke ? 300 : 12000;
  std::vector<outcome> of[2];
  (void)interleave(2, how.repetitions, [&](std::size_t which) {
    of[which].push_back(run(out, which == 0, batches, cpus));
    return 0.0;
  });
  const auto column = [&](std::size_t which, double outcome::*member) {
    std::vector<double> values;
    for (const outcome& o : of[which]) {
      values.push_back(o.*member);
    }
    return values;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    const summary sleeps = summarize(column(i, &outcome::sleeps));
    out.check(sleeps.middle < static_cast<double>(batches) / 10,
              "a worker waited " + std::to_string(sleeps.middle) + " times");
  }
  out.at_least(
      "throughput by CPU time, threads / processes",
      summarize(ratios(column(0, &outcome::per_cpu_second), column(1, &outcome::per_cpu_second))),
      0.95);
  out.report("throughput by the clock, threads / processes",
             summarize(ratios(column(0, &outcome::per_second), column(1, &outcome::per_second))));
  const char* const names[2] = {"two threads", "two processes"};
  for (std::size_t i = 0; i < 2; ++i) {
    out.keep(names[i], "requests per second of CPU, two CPUs", column(i, &outcome::per_cpu_second));
    out.keep(names[i], "requests per second", column(i, &outcome::per_second));
    out.keep(names[i], "waits", column(i, &outcome::sleeps));
  }
  out.charts.push_back(bars_of(out, "requests per second of CPU, two CPUs", "t8-queues",
                               "T8: two queues, threads and processes"));
  return out;
}

}  // namespace bench
