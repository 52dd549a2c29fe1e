// SPDX-License-Identifier: MIT
// T3: what batching is worth. The same batched_copy queue serves the same requests once in whole
// passes and once one by one, and both the calls and the CPU time that it takes are compared.
#include <cstdint>

#include "pvring/aio/libaio.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "support/clock.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint32_t depth = 32;
constexpr std::size_t batches_per_block = 64;
constexpr std::uint64_t image_bytes = std::uint64_t{64} << 20U;

struct calls {
  std::uint64_t grants = 0;
  std::uint64_t submissions = 0;
  std::uint64_t notifications = 0;
};

class batch_loop {
 public:
  explicit batch_loop(result& out) : out_(out), file_(image_bytes), image_(file_.path()) {}

  /// CPU time of the backend for one block, per request. \param budget of a pass; 1 is the queue
  /// that does not batch
  double cpu_ns_per_request(std::size_t budget) {
    std::int64_t spent = 0;
    for (std::size_t i = 0; i < batches_per_block; ++i) {
      put();
      const calls before = counted();
      const std::uint64_t answered = answers() + depth;
      const std::int64_t start = thread_cpu_ns();
      do {
        (void)device_.service(budget);
      } while (answers() < answered);
      spent += thread_cpu_ns() - start;
      if (budget >= depth) {
        check_pass(before);
      }
      collect();
    }
    return static_cast<double>(spent) / static_cast<double>(batches_per_block * depth);
  }

  [[nodiscard]] calls counted() {
    return {device_.queue().grant_counters().calls.get(),
            device_.engine().counters().submit_calls.get(),
            device_.queue().counters().notifications.get()};
  }
  [[nodiscard]] bool direct() const noexcept { return image_.direct(); }

 private:
  void put() {
    for (std::uint32_t tag = 0; tag < depth; ++tag) {
      sectors_[tag] = random_.below(file_.sectors() / 8) * 8;
      const bool write = tag % 2 != 0;
      if (write) {
        mark_sectors(guest_.data(tag), sectors_[tag]);
      }
      guest_.put(tag, write ? blkif::operation::write : blkif::operation::read, sectors_[tag],
                 page_bytes);
    }
    (void)guest_.publish();
    out_.check(!guest_.arm(), "an answer was there before its request was served");
  }
  void collect() {
    std::uint32_t good = 0;
    guest_.take([&](std::uint32_t tag, bool okay) {
      good += okay && are_sectors(guest_.data(tag), sectors_[tag]) ? 1 : 0;
    });
    out_.check_equal(good, depth, "requests of a batch that came back with the right data");
  }
  // A pass that takes everything: one call for what the writes bring, one for what the reads take,
  // and so on.
  void check_pass(const calls& before) {
    const calls now = counted();
    out_.check(
        now.grants - before.grants <= 2,
        "a pass made " + std::to_string(now.grants - before.grants) + " grant calls, 2 are enough");
    out_.check_equal(now.submissions - before.submissions, 1U, "submissions of a pass");
    out_.check_equal(now.notifications - before.notifications, 1U, "notifications of a pass");
  }
  [[nodiscard]] std::uint64_t answers() {
    const auto& of = device_.queue().counters();
    return of.reads.get() + of.writes.get() + of.failed.get() + of.refused.get();
  }

  result& out_;
  guest_shape shape_{.ring_pages = 1, .requests = depth, .largest_bytes = page_bytes, .domain = 1};
  scratch_image file_;
  pvring::aio::file_image image_;
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  device<pvring::grant::batched_copy, pvring::aio::libaio> device_{host_, guest_, image_};
  offsets random_{3};
  std::uint64_t sectors_[depth] = {};
};

}  // namespace

result measure_batching(const settings& how) {
  result out("T3", "batched_copy, 4 KiB, depth 32, half reads", !how.smoke);
  batch_loop loop(out);
  out.method =
      std::string("One queue on libaio and an image on tmpfs (") +
      (loop.direct() ? "O_DIRECT" : "buffered") +
      "), served by service(256) and by service(1) in turns of 64 batches; only the backend's CPU "
      "time counts. The "
      "frontend asks for one notification per batch in both cases, which favours batches of one.";
  calls whole;
  std::uint64_t requests = 0;
  const auto values = interleave(2, how.repetitions, [&](std::size_t which) {
    const calls before = loop.counted();
    std::vector<double> blocks;
    for (int i = 0; i < (how.smoke ? 1 : 15); ++i) {
      blocks.push_back(loop.cpu_ns_per_request(which == 0 ? 256 : 1));
      requests += which == 0 ? batches_per_block * depth : 0;
    }
    if (which == 0) {
      const calls now = loop.counted();
      whole.grants += now.grants - before.grants;
      whole.submissions += now.submissions - before.submissions;
      whole.notifications += now.notifications - before.notifications;
    }
    return median(blocks);
  });
  out.at_most("CPU per request, batches / one by one", summarize(ratios(values[0], values[1])),
              0.75);
  const auto per = [&](std::uint64_t count) {
    return summary{static_cast<double>(requests) / static_cast<double>(count), 0, 1};
  };
  out.at_least("requests per grant call", per(whole.grants), 15, "");
  out.at_least("requests per submission", per(whole.submissions), depth, "");
  out.at_least("requests per notification", per(whole.notifications), depth, "");
  out.keep("batches", "ns of CPU per request", values[0]);
  out.keep("one by one", "ns of CPU per request", values[1]);
  out.charts.push_back(bars_of(out, "ns of CPU per request", "t3-batching",
                               "T3: batched_copy, 4 KiB, depth 32, half reads"));
  return out;
}

}  // namespace bench
