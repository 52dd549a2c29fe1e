// SPDX-License-Identifier: MIT
// T9: what a connected queue needs, and that it needs nothing more afterwards. The queue is the one
// that blk::backend makes, on a thread of its own; every allocation of the process is counted while
// it serves all kinds of requests.
#include <poll.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "pvring/aio/libaio.hpp"
#include "pvring/blk/connection.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/platform/emulated.hpp"
#include "support/counting_allocator.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint32_t depth = 32;
constexpr std::size_t largest = 64 * 1024;
constexpr std::uint64_t image_bytes = std::uint64_t{64} << 20U;
constexpr double kib = 1024;

/// Bytes of the rings that the kernel maps into the process for its AIO contexts.
std::int64_t aio_ring_bytes() {
  std::ifstream maps("/proc/self/maps");
  std::int64_t sum = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("[aio]") != std::string::npos) {
      std::int64_t from = 0;
      std::int64_t to = 0;
      char dash = 0;
      std::istringstream range(line);
      range >> std::hex >> from >> dash >> to;
      sum += to - from;
    }
  }
  return sum;
}

struct footprint {
  memory_use use;
  std::int64_t aio = 0;
};
// The counters last: looking at the rings allocates.
footprint measure_now() {
  footprint now;
  now.aio = aio_ring_bytes();
  now.use = memory_in_use();
  return now;
}

struct outcome {
  double overhead_kib = 0;
  double buffers_kib = 0;
  double heap_kib = 0;
  std::uint64_t later_allocations = 0;
  std::uint64_t helper_allocations = 0;
};

/// Puts batches of everything that a frontend may ask for, and waits for the answers.
class mixed_frontend {
 public:
  mixed_frontend(guest& of, std::uint64_t sectors) : guest_(of), sectors_(sectors) {}

  void run(std::uint64_t batches, bool with_discards) noexcept {
    for (std::uint64_t i = 0; i < batches; ++i) {
      batch(i, with_discards);
    }
  }
  [[nodiscard]] std::uint64_t good() const noexcept { return good_; }
  [[nodiscard]] std::uint64_t wanted() const noexcept { return wanted_; }

 private:
  void batch(std::uint64_t number, bool with_discards) noexcept {
    for (std::uint32_t tag = 0; tag < depth; ++tag) {
      const std::uint64_t at = random_.below(sectors_ / 128) * 128;
      if (tag == 0 && number % 4 == 0) {
        put_flush(tag);
      } else if (tag == 1 && number % 2 == 0 && with_discards) {
        put_discard(tag);
      } else {
        // One page to the largest, so direct and indirect ones; every third a write.
        const std::size_t bytes = (1 + random_.below(largest / page_bytes)) * page_bytes;
        guest_.put(tag, tag % 3 == 0 ? blkif::operation::write : blkif::operation::read, at, bytes);
      }
    }
    (void)guest_.publish();
    wanted_ += depth;
    for (std::size_t taken = 0; taken < depth;) {
      if (!guest_.arm()) {
        pollfd ready{.fd = guest_.events().fd(), .events = POLLIN, .revents = 0};
        (void)::poll(&ready, 1, 1000);
      }
      taken += guest_.take([this](std::uint32_t, bool okay) { good_ += okay ? 1 : 0; });
    }
  }
  void put_flush(std::uint32_t tag) noexcept {
    blkif::request request{};
    request.operation = blkif::operation::flush;
    request.id = tag;
    request.nr_segments = pvring::untrusted<std::uint16_t>(0);
    request.sector_number = pvring::untrusted<std::uint64_t>(0);
    guest_.ring().put(request);
  }
  void put_discard(std::uint32_t tag) noexcept {
    blkif::request request{};
    request.operation = blkif::operation::discard;
    request.id = tag;
    request.sector_number = pvring::untrusted<std::uint64_t>(sectors_ - 128);
    request.nr_sectors = pvring::untrusted<std::uint64_t>(128);
    guest_.ring().put(request);
  }

  guest& guest_;
  std::uint64_t sectors_;
  std::uint64_t good_ = 0;
  std::uint64_t wanted_ = 0;
  offsets random_{13};
};

struct config : pvring::default_config {};

template <class Strategy>
outcome run(result& out, std::uint64_t batches) {
  using queue_type = pvring::blk::connected_queue_of<blkif::abi::x86_64, config, Strategy>;
  const guest_shape shape{
      .ring_pages = 1, .requests = depth, .largest_bytes = largest, .domain = 1};
  const auto host = make_host(shape);
  guest front(host, shape);
  pvring::platform::emulated platform(host, backend_domain);
  const scratch_image file(image_bytes);
  pvring::aio::file_image image(file.path());
  const pvring::blk::options wanted;
  pvring::blk::shared_state exported;
  export_to(exported, image, {});
  const pvring::xenbus::queue_nodes nodes{
      .directory = "",
      .ring_references = {front.ring_references().begin(), front.ring_references().end()},
      .event_channel = front.port()};
  mixed_frontend load(front, file.sectors());

  const footprint before = measure_now();
  auto queue = std::make_unique<queue_type>(
      pvring::blk::connection_setup<pvring::platform::emulated, pvring::aio::file_image>{
          .host = platform,
          .image = image,
          .wanted = wanted,
          .device = exported,
          .nodes = nodes,
          .domain = shape.domain,
          .scatter = image.alignment() <= sector_bytes});
  queue->start({});
  const footprint connected = measure_now();
  load.run(batches, false);
  const memory_use after = memory_in_use();
  // The first discard of an image starts its helper thread, and the C library allocates for a
  // thread.
  load.run(1, true);
  const memory_use with_helper = memory_in_use();
  load.run(batches, true);
  const memory_use at_end = memory_in_use();
  const std::string of(Strategy::name);
  out.check_equal(load.good(), load.wanted(), of + ": requests answered well");
  const pvring::blk::queue_statistics seen = queue->statistics();
  out.check(seen.reads != 0 && seen.writes != 0 && seen.flushes != 0 &&
                (seen.discards != 0 || image.discard_granularity() == 0),
            of + ": not every kind of request was served");

  // A strategy that maps uses the guest's memory; the ring's pages are the guest's too.
  const std::int64_t arena = std::int64_t{512} * static_cast<std::int64_t>(page_bytes);
  const std::int64_t buffers =
      Strategy::template bind<pvring::platform::emulated_grants>::mapped ? 0 : arena;
  const std::int64_t heap = connected.use.heap_bytes - before.use.heap_bytes;
  const std::int64_t own =
      heap + connected.use.private_bytes - before.use.private_bytes + connected.aio - before.aio;
  outcome found;
  found.buffers_kib = static_cast<double>(buffers) / kib;
  found.overhead_kib = static_cast<double>(own - buffers) / kib;
  found.heap_kib = static_cast<double>(heap) / kib;
  found.later_allocations =
      after.allocations - connected.use.allocations + at_end.allocations - with_helper.allocations;
  found.helper_allocations = with_helper.allocations - after.allocations;
  out.check_equal(found.later_allocations, 0U, of + ": allocations after connect");
  if (!Strategy::template bind<pvring::platform::emulated_grants>::mapped) {
    out.check_equal(at_end.mappings - connected.use.mappings, 0U, of + ": mappings after connect");
  }
  queue->stop();
  while (!queue->idle()) {
    (void)::poll(nullptr, 0, 1);
  }
  return found;
}

}  // namespace

result measure_memory(const settings& how) {
  result out("T9", "memory of a connected one-page queue, and allocations after connect",
             !how.smoke);
  out.method =
      "malloc and its family, operator new and mmap are counted for the whole process while one "
      "queue of blk::backend's, on a "
      "thread of its own, is connected and then serves reads, writes, flushes and discards, direct "
      "and indirect. Overhead: heap, "
      "private mappings and the kernel's AIO ring, less the bounce buffers (512 pages where it "
      "copies); a thread's stack is the "
      "C library's and not counted.";
  if (!counts_allocations()) {
    out.skip("allocations after connect", "<= 0", "this C library's allocator cannot be wrapped");
    out.skip("memory beyond buffers", "<= 256 KiB", "this C library's allocator cannot be wrapped");
    return out;
  }
  const std::uint64_t batches = how.smoke ? 20 : 500;
  const outcome copy = run<pvring::grant::batched_copy>(out, batches);
  const outcome pool = run<pvring::grant::persistent_pool>(out, batches);
  const outcome each = run<pvring::grant::map_each>(out, batches);
  const std::uint64_t later =
      copy.later_allocations + pool.later_allocations + each.later_allocations;
  out.at_most("allocations after connect, all strategies", {static_cast<double>(later), 0, 1}, 0,
              "");
  out.at_most("memory beyond buffers, batched_copy", {copy.overhead_kib, 0, 1}, 256, "KiB");
  out.at_most("memory beyond buffers, persistent_pool", {pool.overhead_kib, 0, 1}, 256, "KiB");
  out.at_most("memory beyond buffers, map_each", {each.overhead_kib, 0, 1}, 256, "KiB");
  out.report("allocations when an image's first discard starts its helper",
             {static_cast<double>(copy.helper_allocations), 0, 1}, "");
  out.report("buffers, batched_copy", {copy.buffers_kib, 0, 1}, "KiB");
  out.keep("batched_copy", "KiB beyond buffers", {copy.overhead_kib});
  out.keep("persistent_pool", "KiB beyond buffers", {pool.overhead_kib});
  out.keep("map_each", "KiB beyond buffers", {each.overhead_kib});
  out.keep("batched_copy", "KiB of heap", {copy.heap_kib});
  out.keep("persistent_pool", "KiB of heap", {pool.heap_kib});
  out.keep("map_each", "KiB of heap", {each.heap_kib});
  out.charts.push_back(
      bars_of(out, "KiB beyond buffers", "t9-memory", "T9: memory of a connected one-page queue"));
  return out;
}

}  // namespace bench
