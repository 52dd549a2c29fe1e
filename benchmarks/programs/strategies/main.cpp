// SPDX-License-Identifier: MIT
// Mapping each request, keeping pages mapped, copying in batches, copying per request: what each
// costs a backend, over block size, segment count and depth. It shows where one overtakes the
// other, in CPU time here and in counts that hold anywhere.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "pvring/aio/memory.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "support/clock.hpp"
#include "support/copy_each.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/report.hpp"
#include "support/scratch_image.hpp"
#include "support/settings.hpp"

namespace bench {
namespace {

constexpr std::uint64_t image_bytes = std::uint64_t{64} << 20U;

/// One kind of request, and how many of them are in flight.
struct point {
  std::uint16_t segments = 1;
  std::uint8_t sectors = 8;  ///< of each segment
  std::uint32_t depth = 32;

  [[nodiscard]] std::uint64_t bytes() const {
    return std::uint64_t{segments} * sectors * sector_bytes;
  }
  [[nodiscard]] std::size_t ring_pages() const { return depth > 64 ? 4 : depth > 32 ? 2 : 1; }
};

struct cost {
  double cpu_ns = 0;      ///< per request
  double calls = 0;       ///< grant calls per request
  double hypercalls = 0;  ///< what they would be on Xen, per request
};

class contender {
 public:
  contender() = default;
  contender(const contender&) = delete;
  contender& operator=(const contender&) = delete;
  virtual ~contender() = default;
  /// Serves `batches` batches of `depth` requests.
  virtual cost run(std::uint64_t batches) = 0;
};

template <class Strategy>
class strategy_contender final : public contender {
 public:
  strategy_contender(result& out, const point& at, pvring::aio::memory_image& image)
      : out_(out), at_(at), image_(image), device_(host_, guest_, image, options(at)) {
    (void)run(1);  // the pool is filled, memory is touched
  }

  cost run(std::uint64_t batches) override {
    const auto& seen = device_.grants().counters();
    const std::uint64_t calls = calls_of(seen);
    const std::uint64_t hypercalls = seen.hypercalls.get();
    std::int64_t spent = 0;
    for (std::uint64_t i = 0; i < batches; ++i) {
      put();
      const std::uint64_t answered = answers() + at_.depth;
      const std::int64_t start = thread_cpu_ns();
      do {
        (void)device_.service();
      } while (answers() < answered);
      spent += thread_cpu_ns() - start;
      collect();
    }
    const auto n = static_cast<double>(batches * at_.depth);
    return {static_cast<double>(spent) / n, static_cast<double>(calls_of(seen) - calls) / n,
            static_cast<double>(seen.hypercalls.get() - hypercalls) / n};
  }

 private:
  static device_options options(const point& at) {
    return {.max_indirect_segments = 256,
            .buffer_bytes =
                std::size_t{at.depth} * std::max<std::size_t>(at.segments, 12) * page_bytes +
                (1U << 21U)};
  }
  static std::uint64_t calls_of(const pvring::platform::grant_counters& seen) {
    return seen.map_calls.get() + seen.unmap_calls.get() + seen.copy_calls.get();
  }
  [[nodiscard]] std::uint64_t answers() {
    const auto& of = device_.queue().counters();
    return of.reads.get() + of.writes.get() + of.failed.get() + of.refused.get();
  }
  void put() {
    for (std::uint32_t tag = 0; tag < at_.depth; ++tag) {
      const std::uint64_t length = at_.bytes() / sector_bytes;
      sectors_[tag] = random_.below(image_.size() / sector_bytes / length) * length;
      const bool write = (tag + round_) % 2 != 0;
      if (write) {
        for (std::uint16_t i = 0; i < at_.segments; ++i) {
          mark_sectors(guest_.data(tag).subspan(i * page_bytes, at_.sectors * sector_bytes),
                       sectors_[tag] + std::uint64_t{i} * at_.sectors);
        }
      }
      guest_.put_segments(tag, write ? blkif::operation::write : blkif::operation::read,
                          sectors_[tag], at_.segments, at_.sectors);
    }
    ++round_;
    (void)guest_.publish();
  }
  void collect() {
    std::uint32_t good = 0;
    guest_.take([&](std::uint32_t tag, bool okay) {
      for (std::uint16_t i = 0; i < at_.segments && okay; ++i) {
        okay = are_sectors(guest_.data(tag).subspan(i * page_bytes, at_.sectors * sector_bytes),
                           sectors_[tag] + std::uint64_t{i} * at_.sectors);
      }
      good += okay ? 1 : 0;
    });
    out_.check_equal(good, at_.depth,
                     std::string(Strategy::name) + ": requests that came back with the right data");
  }

  result& out_;
  point at_;
  pvring::aio::memory_image& image_;
  guest_shape shape_{.ring_pages = at_.ring_pages(),
                     .requests = at_.depth,
                     .largest_bytes = at_.segments * page_bytes,
                     .domain = 1};
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  device<Strategy, pvring::aio::memory> device_;
  offsets random_{17};
  std::uint64_t sectors_[128] = {};
  std::uint32_t round_ = 0;
};

/// Nothing but what the memory engine does: the data moved once between the image and a buffer. No
/// strategy can be below.
class memory_floor final : public contender {
 public:
  memory_floor(const point& at, pvring::aio::memory_image& image)
      : at_(at), image_(image), buffer_(std::size_t{at.depth} * at.bytes()) {
    (void)run(1);
  }
  cost run(std::uint64_t batches) override {
    std::int64_t spent = 0;
    for (std::uint64_t i = 0; i < batches; ++i) {
      for (std::uint64_t& offset : offsets_) {
        offset = random_.below(image_.size() / at_.bytes()) * at_.bytes();
      }
      const std::int64_t start = thread_cpu_ns();
      for (std::uint32_t tag = 0; tag < at_.depth; ++tag) {
        std::byte* const local = buffer_.data() + tag * at_.bytes();
        std::byte* const there = image_.bytes().data() + offsets_[tag];
        std::memcpy((tag + i) % 2 != 0 ? there : local, (tag + i) % 2 != 0 ? local : there,
                    at_.bytes());
        // What was written has to be what belongs there, for those who read it afterwards.
        if ((tag + i) % 2 != 0) {
          wrote_.push_back(offsets_[tag]);
        }
      }
      spent += thread_cpu_ns() - start;
      for (const std::uint64_t offset : wrote_) {
        mark_sectors(image_.bytes().subspan(offset, at_.bytes()), offset / sector_bytes);
      }
      wrote_.clear();
    }
    return {static_cast<double>(spent) / static_cast<double>(batches * at_.depth), 0, 0};
  }

 private:
  point at_;
  pvring::aio::memory_image& image_;
  std::vector<std::byte> buffer_;
  offsets random_{17};
  std::uint64_t offsets_[128] = {};
  std::vector<std::uint64_t> wrote_;
};

constexpr std::size_t contenders = 5;
constexpr const char* names[contenders] = {"map_each", "persistent_pool", "batched_copy",
                                           "one copy per request", "memcpy alone"};

std::unique_ptr<contender> make(std::size_t which, result& out, const point& at,
                                pvring::aio::memory_image& image) {
  switch (which) {
    case 0:
      return std::make_unique<strategy_contender<pvring::grant::map_each>>(out, at, image);
    case 1:
      return std::make_unique<strategy_contender<pvring::grant::persistent_pool>>(out, at, image);
    case 2:
      return std::make_unique<strategy_contender<pvring::grant::batched_copy>>(out, at, image);
    case 3:
      return std::make_unique<strategy_contender<copy_each>>(out, at, image);
    default:
      return std::make_unique<memory_floor>(at, image);
  }
}

/// A line of points, one of whose numbers changes.
struct sweep {
  const char* name;
  const char* title;
  const char* axis;
  std::vector<std::pair<double, point>> points;
};

std::vector<sweep> sweeps(bool smoke) {
  sweep block{"block-size", "over block size, whole pages, depth 32", "bytes per request", {}};
  for (const std::uint64_t bytes :
       smoke ? std::vector<std::uint64_t>{512, 65536}
             : std::vector<std::uint64_t>{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072,
                                          262144, 524288, 1048576}) {
    const auto segments =
        static_cast<std::uint16_t>(std::max<std::uint64_t>(1, bytes / page_bytes));
    block.points.push_back({static_cast<double>(bytes),
                            {.segments = segments,
                             .sectors = static_cast<std::uint8_t>(bytes / segments / sector_bytes),
                             .depth = 32}});
  }
  sweep segment{
      "segments", "over segments of one sector each, depth 32", "segments per request", {}};
  for (const std::uint16_t segments :
       smoke ? std::vector<std::uint16_t>{1, 32}
             : std::vector<std::uint16_t>{1, 2, 4, 8, 11, 16, 32, 64, 128, 256}) {
    segment.points.push_back(
        {static_cast<double>(segments), {.segments = segments, .sectors = 1, .depth = 32}});
  }
  sweep depth{"depth", "over requests in flight, 4 KiB each", "requests in flight", {}};
  for (const std::uint32_t n : smoke ? std::vector<std::uint32_t>{1, 16}
                                     : std::vector<std::uint32_t>{1, 2, 4, 8, 16, 32, 64, 128}) {
    depth.points.push_back({static_cast<double>(n), {.segments = 1, .sectors = 8, .depth = n}});
  }
  return {block, segment, depth};
}

chart empty_chart(const sweep& of, const char* what, const char* y, bool log_y) {
  chart out{.name = std::string(of.name) + "-" + what,
            .title = std::string("Grant strategies ") + of.title,
            .x_label = of.axis,
            .y_label = y,
            .style = chart::kind::lines,
            .log_x = true,
            .log_y = log_y,
            .categories = {},
            .plots = {}};
  for (const char* name : names) {
    out.plots.push_back({.name = name, .x = {}, .y = {}, .spread = {}});
  }
  return out;
}

result measure(const sweep& of, const settings& how) {
  result out(of.name, std::string("grant strategies ") + of.title, !how.smoke);
  out.method =
      "CPU time of service() alone, half reads and half writes, with the memory engine: the data "
      "moves once between the image and "
      "a buffer, which every strategy pays and 'memcpy alone' shows. All data is checked. "
      "Strategies take turns.";
  pvring::aio::memory_image image(image_bytes);
  mark_sectors(image.bytes(), 0);
  chart time = empty_chart(of, "cpu", "ns of CPU per request", true);
  chart calls = empty_chart(of, "hypercalls", "hypercalls per request, as on Xen", false);
  table lines{.title = std::string("ns of CPU per request (hypercalls per request) ") + of.title,
              .columns = {of.axis},
              .rows = {}};
  for (const char* name : names) {
    lines.columns.emplace_back(name);
  }
  for (const auto& [x, at] : of.points) {
    std::unique_ptr<contender> all[contenders];
    for (std::size_t i = 0; i < contenders; ++i) {
      all[i] = make(i, out, at, image);
    }
    // As many batches as make about 8 MiB, so that points of all sizes take about as long.
    const std::uint64_t batches =
        how.smoke
            ? 2
            : std::clamp<std::uint64_t>((std::uint64_t{8} << 20U) /
                                            (at.depth * std::max<std::uint64_t>(at.bytes(), 4096)),
                                        4, 200);
    cost last[contenders];
    const auto values = interleave(contenders, how.repetitions, [&](std::size_t which) {
      last[which] = all[which]->run(batches);
      return last[which].cpu_ns;
    });
    std::vector<std::string> row{std::to_string(static_cast<std::uint64_t>(x))};
    for (std::size_t i = 0; i < contenders; ++i) {
      const summary s = summarize(values[i]);
      time.plots[i].x.push_back(x);
      time.plots[i].y.push_back(s.middle);
      time.plots[i].spread.push_back(s.spread);
      calls.plots[i].x.push_back(x);
      calls.plots[i].y.push_back(last[i].hypercalls);
      char cell[64];
      (void)std::snprintf(cell, sizeof cell, "%.0f (%.2f)", s.middle, last[i].hypercalls);
      row.emplace_back(cell);
      out.keep(std::string(names[i]) + " at " + row.front(), "ns of CPU per request", values[i]);
    }
    lines.rows.push_back(std::move(row));
    std::printf("%s: %s %s\n", of.name, lines.rows.back().front().c_str(), of.axis);
    (void)std::fflush(stdout);
  }
  calls.plots.pop_back();  // memcpy makes none
  const auto at_end = [&](std::size_t over, std::size_t under, bool last) {
    const plot& a = time.plots[over];
    const plot& b = time.plots[under];
    return last ? a.y.back() / b.y.back() : a.y.front() / b.y.front();
  };
  const std::string first = lines.rows.front().front();
  const std::string end = lines.rows.back().front();
  out.report("CPU, batched_copy / persistent_pool, at " + first, {at_end(2, 1, false), 0, 1});
  out.report("CPU, batched_copy / persistent_pool, at " + end, {at_end(2, 1, true), 0, 1});
  out.report("CPU, batched_copy / one copy per request, at " + first, {at_end(2, 3, false), 0, 1});
  out.report("CPU, batched_copy / one copy per request, at " + end, {at_end(2, 3, true), 0, 1});
  out.report("CPU, map_each / batched_copy, at " + first, {at_end(0, 2, false), 0, 1});
  out.report("CPU, map_each / batched_copy, at " + end, {at_end(0, 2, true), 0, 1});
  out.charts.push_back(std::move(time));
  out.charts.push_back(std::move(calls));
  out.tables.push_back(std::move(lines));
  return out;
}

int run(int argc, char** argv) {
  settings how = read_settings(
      argc, argv, "Compares what grant strategies cost, over block size, segment count and depth.",
      {"block-size", "segments", "depth"});
  std::vector<result> results;
  for (const sweep& of : sweeps(how.smoke)) {
    if (how.wants(of.name)) {
      results.push_back(measure(of, how));
    }
  }
  return report("strategies", results, how);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    return bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "benchmark failed: %s\n", error.what());
    return 1;
  }
}
