// SPDX-License-Identifier: MIT
// T4: random reads through the whole backend against what the kernel alone takes for them: a bare
// libaio loop on the same file, and the same with the platform's copy call. One thread does both
// ends, so no second CPU is needed.
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "pvring/aio/libaio.hpp"
#include "pvring/grant/batched_copy.hpp"
#include "pvring/grant/map_each.hpp"
#include "pvring/grant/persistent_pool.hpp"
#include "support/bare_aio.hpp"
#include "support/clock.hpp"
#include "support/copy_each.hpp"
#include "support/device.hpp"
#include "support/guest.hpp"
#include "support/scratch_image.hpp"
#include "targets.hpp"

namespace bench {
namespace {

constexpr std::uint32_t depth = 32;
constexpr std::size_t batches_per_block = 32;
constexpr std::uint64_t image_bytes = std::uint64_t{256} << 20U;

/// What all loops read: random pages, each checked for being the right one.
struct workload {
  std::uint64_t pages = image_bytes / page_bytes;
  offsets random{7};
  std::uint64_t sectors[depth] = {};
  std::uint64_t good = 0;
  std::uint64_t wanted = 0;

  std::uint64_t aim(std::uint32_t i) noexcept {
    ++wanted;
    sectors[i] = random.below(pages) * (page_bytes / sector_bytes);
    return sectors[i];
  }
  void look(std::uint32_t i, const std::byte* data) noexcept {
    good += begins_with_sector(data, sectors[i]) ? 1 : 0;
  }
};

class read_loop {
 public:
  read_loop() = default;
  read_loop(const read_loop&) = delete;
  read_loop& operator=(const read_loop&) = delete;
  virtual ~read_loop() = default;
  virtual void batch() = 0;
  /// The loop's own check of counts, when everything is done.
  virtual void check(result& /*out*/) {}

  /// \param clock which time
  double ns_per_request(std::int64_t (*clock)() noexcept) {
    const std::int64_t start = clock();
    for (std::size_t i = 0; i < batches_per_block; ++i) {
      batch();
    }
    return static_cast<double>(clock() - start) / static_cast<double>(batches_per_block * depth);
  }

  workload work;
};

class bare_loop final : public read_loop {
 public:
  bare_loop(const std::string& path, bool direct) : io_(path, direct, depth) {}
  void batch() override {
    for (std::uint32_t i = 0; i < depth; ++i) {
      io_.aim(i, work.aim(i) * sector_bytes);
    }
    whole_ += io_.run();
    for (std::uint32_t i = 0; i < depth; ++i) {
      work.look(i, io_.buffer(i));
    }
  }
  void check(result& out) override {
    out.check_equal(whole_, work.wanted, "bare loop: reads that came back whole");
  }

 private:
  bare_aio io_;
  std::uint64_t whole_ = 0;
};

/// The bare loop, and then one call of the platform that copies the batch into the guest.
class copying_loop final : public read_loop {
 public:
  copying_loop(const std::string& path, bool direct) : io_(path, direct, depth) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      pages_.push_back(domain_.allocate_pages());
      operations_.push_back({.local = io_.buffer(i),
                             .reference = domain_.grant(backend_domain, pages_.back(),
                                                        pvring::platform::access::read_write),
                             .offset = 0,
                             .length = page_bytes});
    }
  }
  void batch() override {
    for (std::uint32_t i = 0; i < depth; ++i) {
      io_.aim(i, work.aim(i) * sector_bytes);
    }
    (void)io_.run();
    failures_ +=
        grants_.copy(domain_.id(), pvring::platform::direction::to_peer, operations_) != 0 ? 1 : 0;
    for (std::uint32_t i = 0; i < depth; ++i) {
      work.look(i, pages_[i]);
    }
  }
  void check(result& out) override {
    out.check_equal(failures_, 0U, "bare loop with copy: copy calls that failed");
  }

 private:
  bare_aio io_;
  pvring::platform::emulated_host host_ = make_host({});
  pvring::platform::emulated_guest domain_ = host_.create_domain(1);
  pvring::platform::emulated platform_{host_, backend_domain};
  pvring::platform::emulated_grants grants_ = platform_.open_grants(1);
  std::vector<std::byte*> pages_;
  std::vector<pvring::platform::copy_operation> operations_;
  std::uint64_t failures_ = 0;
};

/// Frontend and backend in turns.
template <class Strategy>
class backend_loop : public read_loop {
 public:
  explicit backend_loop(pvring::aio::file_image& image) : device_(host_, guest_, image) {}
  void batch() override {
    put();
    std::size_t taken = 0;
    while (taken < depth) {
      (void)device_.service();
      taken += collect();
    }
  }

 protected:
  void put() {
    for (std::uint32_t tag = 0; tag < depth; ++tag) {
      guest_.put(tag, blkif::operation::read, work.aim(tag), page_bytes);
    }
    (void)guest_.publish();
  }
  std::size_t collect() {
    return guest_.take([this](std::uint32_t tag, bool okay) {
      if (okay) {
        work.look(tag, guest_.data(tag).data());
      }
    });
  }

  guest_shape shape_{};
  pvring::platform::emulated_host host_ = make_host(shape_);
  guest guest_{host_, shape_};
  device<Strategy, pvring::aio::libaio> device_;
};

/// The frontend on this thread, the backend polling on another one.
class two_thread_loop final : public backend_loop<pvring::grant::persistent_pool> {
 public:
  explicit two_thread_loop(pvring::aio::file_image& image)
      : backend_loop(image), server_([this] {
          while (!stop_.load(std::memory_order_acquire)) {
            (void)device_.service();
          }
        }) {}
  ~two_thread_loop() override {
    stop_.store(true, std::memory_order_release);
    server_.join();
  }
  void batch() override {
    put();
    for (std::size_t taken = 0; taken < depth;) {
      taken += collect();
    }
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread server_;
};

struct entry {
  const char* name;
  std::unique_ptr<read_loop> loop;
};

/// Loop number `which`, made when it is asked for.
entry make_entry(std::size_t which, const scratch_image& file, pvring::aio::file_image& image) {
  switch (which) {
    case 0:
      return {"bare loop", std::make_unique<bare_loop>(file.path(), image.direct())};
    case 1:
      return {"bare loop + copy", std::make_unique<copying_loop>(file.path(), image.direct())};
    case 2:
      return {"persistent_pool",
              std::make_unique<backend_loop<pvring::grant::persistent_pool>>(image)};
    case 3:
      return {"batched_copy", std::make_unique<backend_loop<pvring::grant::batched_copy>>(image)};
    case 4:
      return {"map_each", std::make_unique<backend_loop<pvring::grant::map_each>>(image)};
    default:
      return {"one copy per request", std::make_unique<backend_loop<copy_each>>(image)};
  }
}
constexpr std::size_t loops = 6;

void check(result& out, const entry& of) {
  of.loop->check(out);
  out.check_equal(of.loop->work.good, of.loop->work.wanted,
                  std::string(of.name) + ": pages that are the right ones");
}

/// The two-thread loop by the wall clock, as two threads' CPU time says nothing about how fast they
/// are together.
void measure_second_thread(const settings& how, result& out, const scratch_image& file,
                           pvring::aio::file_image& image) {
  entry entries[] = {{"bare loop", std::make_unique<bare_loop>(file.path(), image.direct())},
                     {"frontend on a second thread", std::make_unique<two_thread_loop>(image)}};
  const auto values = interleave(2, how.smoke ? 1 : how.repetitions, [&](std::size_t which) {
    return entries[which].loop->ns_per_request(&wall_ns);
  });
  for (const entry& e : entries) {
    check(out, e);
  }
  out.report("throughput by the clock, frontend on a second thread / bare loop",
             summarize(ratios(values[0], values[1])));
  out.keep("bare loop", "ns per request, wall clock", values[0]);
  out.keep("persistent_pool, frontend on a second thread", "ns per request, wall clock", values[1]);
}

}  // namespace

bool run_reads_variant(const std::string& variant, std::uint64_t rounds) {
  constexpr const char* names[loops] = {
      "reads.bare",         "reads.bare_copy", "reads.persistent_pool",
      "reads.batched_copy", "reads.map_each",  "reads.copy_each"};
  for (std::size_t i = 0; i < loops; ++i) {
    if (variant == names[i]) {
      const scratch_image file(image_bytes / 16);
      pvring::aio::file_image image(file.path());
      const entry e = make_entry(i, file, image);
      e.loop->work.pages /= 16;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        e.loop->batch();
      }
      return e.loop->work.good == e.loop->work.wanted;
    }
  }
  return false;
}

result measure_random_reads(const settings& how) {
  result out("T4", "4 KiB random reads, depth 32, whole backend against the kernel alone",
             !how.smoke);
  const scratch_image file(image_bytes);
  pvring::aio::file_image image(file.path());
  out.method = std::string("Image of 256 MiB on ") +
               (file.on_tmpfs() ? "tmpfs" : "disk (there is no tmpfs)") + ", " +
               (image.direct() ? "O_DIRECT" : "buffered") +
               ". One thread does both ends: 32 random reads put, service() until they are "
               "answered, the first word of each "
               "checked. Baselines: io_submit of 32, completions taken from the mapped ring; and "
               "the same with one copy call "
               "of the platform per 32. Time is the thread's CPU time: reads of tmpfs complete "
               "inside io_submit, so nothing "
               "ever waits. Loops take turns in blocks of 32 batches, a repetition's value is its "
               "median block.";
  std::vector<entry> entries;
  for (std::size_t i = 0; i < loops; ++i) {
    entries.push_back(make_entry(i, file, image));
  }
  std::vector<double> time[loops];
  for (std::size_t repetition = 0; repetition < how.repetitions; ++repetition) {
    const auto values = interleave(loops, how.smoke ? 3 : 40, [&](std::size_t which) {
      return entries[which].loop->ns_per_request(file.on_tmpfs() ? &thread_cpu_ns : &wall_ns);
    });
    for (std::size_t i = 0; i < loops; ++i) {
      time[i].push_back(median(values[i]));
    }
  }
  for (std::size_t i = 0; i < loops; ++i) {
    check(out, entries[i]);
    out.keep(entries[i].name, "ns per request", time[i]);
  }
  // Of throughputs: the baseline's time over the backend's.
  out.at_least("throughput, persistent_pool / bare loop", summarize(ratios(time[0], time[2])),
               0.95);
  out.at_least("throughput, batched_copy / bare loop + copy", summarize(ratios(time[1], time[3])),
               0.95);
  out.report("throughput, batched_copy / bare loop", summarize(ratios(time[0], time[3])));
  out.report("throughput, map_each / bare loop", summarize(ratios(time[0], time[4])));
  out.report("throughput, one copy per request / bare loop", summarize(ratios(time[0], time[5])));
  measure_second_thread(how, out, file, image);
  out.charts.push_back(
      bars_of(out, "ns per request", "t4-random-reads", "T4: 4 KiB random reads, depth 32"));
  return out;
}

}  // namespace bench
