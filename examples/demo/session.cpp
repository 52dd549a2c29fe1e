// SPDX-License-Identifier: MIT
// The order of things, and all comparisons of what the ring brought with what the file holds.
#include "session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "connection.hpp"
#include "digest.hpp"
#include "load.hpp"

namespace demo {
namespace {

using pvring::testing::block_model;
using clock = std::chrono::steady_clock;

class session {
 public:
  session(const settings& wanted, const disk_image& image, const std::string& strategy,
          progress& line)
      : wanted_(wanted),
        image_(image),
        strategy_(strategy),
        line_(line),
        host_(make_host(wanted)),
        guest_(host_.create_domain(1)),
        buffer_(std::min<std::uint64_t>(window_bytes, image.bytes())) {
    const auto discarded = pvring::testing::after_discard::old_or_zeroes;
    const std::uint64_t tail = image.tail() / sector_bytes;
    file_system_ = pvring::testing::share_out(0, tail, wanted.queues, 8, discarded);
    tail_ = pvring::testing::share_out(tail, image.bytes() / sector_bytes - tail, wanted.queues, 8,
                                       discarded);
  }

  outcome run() {
    out_.strategy = strategy_;
    const std::string file_system = digest_of_file(image_.path(), image_.tail());
    {
      connection disk(host_, wanted_, image_.path(), strategy_);
      out_.choice = disk.choice();
      check_device(disk);
      read_disk(disk, "read");
      mix(disk);
      disk.disconnect();
    }
    if (digest_of_file(image_.path(), image_.tail()) != file_system) {
      throw mismatch(strategy_ + ": the file system's part of the image has changed");
    }
    {
      // The image is opened anew, so what the load has written must be in the file and not in the
      // backend.
      connection disk(host_, wanted_, image_.path(), strategy_);
      read_disk(disk, "reopened");
      disk.unplug();
    }
    if (const std::uint64_t leaked = host_.leaked_pages(); leaked != 0) {
      throw mismatch(
          fmt::format("{}: the backend left {} granted pages mapped", strategy_, leaked));
    }
    for (const auto* models : {&file_system_, &tail_}) {
      for (const block_model& model : *models) {
        out_.verified_sectors += model.verified();
      }
    }
    return out_;
  }

 private:
  static constexpr std::uint64_t window_bytes = 64 * mebibyte;

  static pvring::platform::emulated_host make_host(const settings& wanted) {
    // Every queue may have all its slots full of the largest requests, of which only a few are that
    // large.
    return pvring::platform::emulated_host::create({.domains = 2,
                                                    .pages_per_domain = 65536,
                                                    .grants_per_domain = 65536,
                                                    .event_handles = 16 + wanted.queues * 4});
  }

  void check_device(connection& disk) {
    const auto& device = disk.frontend().device();
    if (device.sectors * sector_bytes != image_.bytes()) {
      throw mismatch(fmt::format("{}: the disk has {} sectors, and the image {} bytes", strategy_,
                                 device.sectors, image_.bytes()));
    }
    if (disk.queues() != wanted_.queues || disk.frontend().ring_pages() != wanted_.ring_pages) {
      throw mismatch(fmt::format("{}: {} queues of {} pages were agreed, not {} of {}", strategy_,
                                 disk.queues(), disk.frontend().ring_pages(), wanted_.queues,
                                 wanted_.ring_pages));
    }
  }

  [[nodiscard]] reader who(std::uint32_t queue) const {
    return {.strategy = strategy_, .index = queue, .count = wanted_.queues, .depth = wanted_.depth};
  }

  // Reads everything, window by window. Only the reading is measured; comparing goes on while
  // nothing is read.
  void read_disk(connection& disk, const std::string& name) {
    phase& result = out_.phases.emplace_back();
    result.name = name;
    sha256 digest;
    std::vector<std::byte> expected(buffer_.size());
    for (std::uint64_t at = 0; at < image_.bytes(); at += buffer_.size()) {
      const std::uint64_t here = std::min<std::uint64_t>(buffer_.size(), image_.bytes() - at);
      const window part{at / sector_bytes, std::span(buffer_).first(here)};
      std::vector<tally> tallies(wanted_.queues);
      const snapshot before = disk.count();
      on_all_queues(
          wanted_.queues,
          [&](std::uint32_t i) { read_share(disk.frontend().queue(i), who(i), part, tallies[i]); },
          {});
      result.cost += disk.count() - before;
      add(result, tallies);
      digest.add(part.bytes);
      read_file(image_.path(), at, std::span(expected).first(here));
      compare(part, std::span(expected).first(here));
      line_.show(fmt::format("{}: {} disk: {} % ({:.0f} MB/s)", strategy_, name,
                             (at + here) * 100 / image_.bytes(), result.megabytes_per_second()));
    }
    out_.digest = digest.finish();
    const std::string of_file = digest_of_file(image_.path(), image_.bytes());
    if (out_.digest != of_file) {
      throw mismatch(strategy_ + ": the SHA-256 of the disk is " + out_.digest +
                     ", that of the file " + of_file);
    }
    line_.done(fmt::format("{}: {}: SHA-256 {} as the file's, {:.0f} MB/s", strategy_, name,
                           out_.digest.substr(0, 16), result.megabytes_per_second()));
  }

  // What was read against the file, and against what the load knows of it.
  void compare(const window& part, std::span<const std::byte> file) {
    const std::uint64_t sectors = part.bytes.size() / sector_bytes;
    for (std::uint64_t i = 0; i < sectors; ++i) {
      const std::uint64_t sector = part.first_sector + i;
      const auto read = part.bytes.subspan(i * sector_bytes, sector_bytes);
      std::string wrong;
      if (std::memcmp(read.data(), file.data() + i * sector_bytes, sector_bytes) != 0) {
        wrong = "has other content than the file";
      } else if (const auto found = model_of(sector).check(sector, read)) {
        wrong = found->what;
      }
      if (!wrong.empty()) {
        throw mismatch(fmt::format("{}, queue {}, sector {}: {}", strategy_,
                                   reader_of(part, sector, wanted_.queues), sector, wrong));
      }
    }
  }

  block_model& model_of(std::uint64_t sector) {
    for (auto* models : {&file_system_, &tail_}) {
      for (block_model& model : *models) {
        if (model.contains(sector, 1)) {
          return model;
        }
      }
    }
    throw mismatch(fmt::format("{}: sector {} is beyond the disk", strategy_, sector));
  }

  void mix(connection& disk) {
    phase& result = out_.phases.emplace_back();
    result.name = mixed_phase;
    std::vector<tally> tallies(wanted_.queues);
    const auto& device = disk.frontend().device();
    const auto start = clock::now();
    const auto until = start + std::chrono::duration_cast<clock::duration>(wanted_.load);
    const snapshot before = disk.count();
    on_all_queues(
        wanted_.queues,
        [&](std::uint32_t i) {
          demo::mix(disk.frontend().queue(i), who(i), file_system_[i], tail_[i],
                    {.flush = device.flush,
                     .discard = device.discard,
                     .seed = wanted_.seed * 1000 + i,
                     .until = until},
                    tallies[i]);
        },
        [&] {
          line_.show(fmt::format("{}: mixed load: {:.0f} of {:.0f} s", strategy_,
                                 std::chrono::duration<double>(clock::now() - start).count(),
                                 wanted_.load.count()));
        });
    result.cost = disk.count() - before;
    add(result, tallies);
    for (const tally& one : tallies) {
      out_.reads += one.reads;
      out_.writes += one.writes;
      out_.flushes += one.flushes;
      out_.discards += one.discards;
    }
    line_.done(fmt::format(
        "{}: mixed: {} reads, {} writes, {} flushes, {} discards, every block as it has to be",
        strategy_, out_.reads, out_.writes, out_.flushes, out_.discards));
  }

  static void add(phase& to, const std::vector<tally>& tallies) {
    for (const tally& one : tallies) {
      to.bytes += one.bytes;
      to.latency.merge(one.latency);
    }
  }

  const settings& wanted_;
  const disk_image& image_;
  std::string strategy_;
  progress& line_;
  pvring::platform::emulated_host host_;
  pvring::platform::emulated_guest guest_;
  std::vector<std::byte> buffer_;
  std::vector<block_model> file_system_;
  std::vector<block_model> tail_;
  outcome out_;
};

}  // namespace

outcome serve(const settings& wanted, const disk_image& image, const std::string& strategy,
              progress& line) {
  return session(wanted, image, strategy, line).run();
}

}  // namespace demo
