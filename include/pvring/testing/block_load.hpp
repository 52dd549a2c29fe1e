// SPDX-License-Identifier: MIT
// A mixed load on one queue of a disk, of which every block is checked: what is put is random, what
// comes back is known from models. Conformance tests, stress tests and the demo put their disks
// under it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../observe/log_linear_histogram.hpp"
#include "../protocol/blkif.hpp"
#include "block_model.hpp"
#include "block_request.hpp"
#include "strict_queue.hpp"

namespace pvring::testing {

/// A request that failed, or a sector with the wrong content.
class block_failure : public std::runtime_error {
 public:
  block_failure(std::uint64_t sector, const std::string& what)
      : std::runtime_error(what), sector_(sector) {}
  [[nodiscard]] std::uint64_t sector() const noexcept { return sector_; }

 private:
  std::uint64_t sector_;
};

/// A range of sectors that only this load uses.
struct block_area {
  block_model* model = nullptr;
  bool keep_content = false;  ///< written only with what it contains, and not discarded
};

struct block_load_options {
  std::uint64_t seed = 1;
  std::uint32_t depth = 32;              ///< requests in flight
  std::uint32_t write_percent = 25;      ///< of the requests to an area that may change
  std::uint32_t discard_percent = 0;     ///< likewise; only where the disk offers it
  std::uint32_t requests_per_flush = 0;  ///< 0: none; only where the disk offers it
  std::uint64_t largest_sectors = 2048;  ///< of a request; the queue's limit is kept besides
  bool scattered = false;                ///< parts of pages, not buffers that lie in one piece
  std::chrono::milliseconds patience =
      std::chrono::seconds(30);  ///< with a disk that does not answer
};

/// What a load has done.
struct block_load_counts {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t discards = 0;
  std::uint64_t bytes = 0;
  observe::log_linear_histogram latency;  ///< nanoseconds, from submit to seen

  [[nodiscard]] std::uint64_t requests() const noexcept {
    return reads + writes + flushes + discards;
  }
};

/// The queue's thread uses it. Queue and models outlive it.
class block_load {
 public:
  using clock = std::chrono::steady_clock;

  /// \pre there is at least one area; they do not overlap
  block_load(strict_queue& queue, std::vector<block_area> areas, block_load_options options)
      : queue_(queue),
        areas_(std::move(areas)),
        options_(options),
        random_(options.seed),
        slots_(options.depth) {
    const std::uint64_t limit = std::uint64_t{queue.max_segments()} * sectors_per_page;
    // Wherever in its first page a request begins, it fits into its segments.
    largest_ = std::min<std::uint64_t>(options.largest_sectors, limit - sectors_per_page + 1);
    for (std::uint32_t i = 0; i < options.depth; ++i) {
      free_.push_back(i);
    }
  }

  /// Puts requests until the time has come or so many were put, and waits for all of them.
  /// \throws block_failure
  void run(clock::time_point until,
           std::uint64_t requests = std::numeric_limits<std::uint64_t>::max()) {
    auto heard = clock::now();
    for (;;) {
      const auto now = clock::now();
      const bool more = now < until && put_ < requests;
      if (!more && free_.size() == slots_.size()) {
        return;
      }
      while (more && put_ < requests && !free_.empty() && put_one()) {
      }
      queue_.publish();
      if (queue_.poll([this](const block_completion& end) { take(end); }) != 0) {
        heard = now;
      } else if (now - heard > options_.patience) {
        throw block_failure(0,
                            "no answer for " + std::to_string(options_.patience.count()) + " ms");
      } else {
        queue_.wait(std::min(options_.patience, std::chrono::milliseconds(200)));
      }
    }
  }

  /// The same without a limit of time.
  void run_requests(std::uint64_t requests) { run(clock::time_point::max(), requests); }

  [[nodiscard]] const block_load_counts& counts() const noexcept { return counts_; }

 private:
  static constexpr std::uint64_t sectors_per_page = protocol::blkif::sectors_per_page;

  struct slot {
    const block_area* area = nullptr;
    std::uint8_t operation = 0;
    std::uint64_t sector = 0;
    std::uint64_t sectors = 0;
    clock::time_point start;
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  // Mostly a page or a few, sometimes less, sometimes as much as a request can carry.
  std::uint64_t some_sectors(const block_model& model) {
    const std::uint64_t kind = below(100);
    std::uint64_t wanted = sectors_per_page;
    if (kind >= 98) {
      wanted = largest_;
    } else if (kind >= 85) {
      wanted = sectors_per_page + below(31 * sectors_per_page);
    } else if (kind >= 65) {
      wanted = 1 + below(sectors_per_page);
    }
    return std::min({wanted, largest_, model.sectors()});
  }

  // False when nothing can be put now.
  bool put_one() {
    namespace operation = protocol::blkif::operation;
    // Counted when they are put: an attempt that found no room is made again.
    if (options_.requests_per_flush != 0 && since_flush_ + 1 >= options_.requests_per_flush) {
      const bool flushed = put(nullptr, operation::flush, 0, 0);
      since_flush_ = flushed ? 0 : since_flush_;
      return flushed;
    }
    const block_area& area = areas_[below(areas_.size())];
    const std::uint64_t kind = below(100);
    std::uint8_t what = operation::read;
    if (!area.keep_content && kind < options_.discard_percent) {
      what = operation::discard;
    } else if (!area.keep_content && kind < options_.discard_percent + options_.write_percent) {
      what = operation::write;
    }
    block_model& model = *area.model;
    const std::uint64_t sectors = some_sectors(model);
    const std::uint64_t place = below(model.sectors() - sectors + 1);
    // Half of them begin at a page, as a file system's would.
    const std::uint64_t sector =
        model.first_sector() +
        (below(2) == 0 ? place / sectors_per_page * sectors_per_page : place);
    const bool free = what == operation::read ? model.begin_read(sector, sectors)
                                              : model.begin_write(sector, sectors);
    // Where something is in flight that must not be overtaken, another place is tried.
    if (!free) {
      return true;
    }
    const bool done = put(&area, what, sector, sectors);
    since_flush_ += done ? 1 : 0;
    return done;
  }

  void lay_out(std::uint64_t sectors) {
    segments_.clear();
    const auto first = static_cast<std::uint8_t>(below(sectors_per_page));
    if (!options_.scattered || sectors > queue_.max_segments()) {
      append_segments(segments_, sectors, first);
      return;
    }
    while (sectors != 0) {
      const auto start = static_cast<std::uint8_t>(below(sectors_per_page));
      // So that what is left always fits into what is left of the segments.
      const std::uint64_t most = std::min(sectors, sectors_per_page - start);
      append_segments(segments_, 1 + below(most), start);
      sectors -= segments_.back().sectors();
    }
  }

  // Puts what was begun in the model, or takes that back.
  bool put(const block_area* area, std::uint8_t what, std::uint64_t sector, std::uint64_t sectors,
           const std::byte* content = nullptr) {
    namespace operation = protocol::blkif::operation;
    segments_.clear();
    if (what == operation::read || what == operation::write) {
      lay_out(sectors);
    }
    ++version_;
    const auto tag = queue_.submit({.operation = what,
                                    .sector = sector,
                                    .segments = segments_,
                                    .sectors = sectors,
                                    .cookie = free_.back()},
                                   [&](std::size_t offset, std::span<std::byte> bytes) {
                                     const std::uint64_t here =
                                         sector + offset / protocol::blkif::sector_bytes;
                                     if (content != nullptr) {
                                       std::memcpy(bytes.data(), content + offset, bytes.size());
                                     } else {
                                       make_content(bytes, here, version_);
                                     }
                                     area->model->carries(here, bytes);
                                   });
    if (!tag) {
      if (what == operation::read) {
        area->model->end_read(sector, sectors);
      } else if (area != nullptr) {
        area->model->cancel(sector, sectors);
      }
      return false;
    }
    slots_[free_.back()] = {area, what, sector, sectors, clock::now()};
    free_.pop_back();
    ++put_;
    return true;
  }

  void take(const block_completion& end) {
    namespace operation = protocol::blkif::operation;
    const slot done = slots_[end.cookie];
    free_.push_back(static_cast<std::uint32_t>(end.cookie));
    counts_.latency.record(static_cast<std::uint64_t>((clock::now() - done.start).count()));
    // A discard is a hint, and may be refused.
    if (!end.okay() && !(end.answered && done.operation == operation::discard)) {
      throw block_failure(done.sector,
                          "operation " + std::to_string(done.operation) + " on " +
                              std::to_string(done.sectors) + " sectors " +
                              (end.answered ? "failed with status " + std::to_string(end.status)
                                            : "got no answer"));
    }
    switch (done.operation) {
      case operation::read:
        ++counts_.reads;
        counts_.bytes += done.sectors * protocol::blkif::sector_bytes;
        compare(done, end);
        break;
      case operation::write:
        ++counts_.writes;
        counts_.bytes += done.sectors * protocol::blkif::sector_bytes;
        done.area->model->end_write(done.sector, done.sectors, true);
        break;
      case operation::discard:
        ++counts_.discards;
        done.area->model->end_discard(done.sector, done.sectors);
        break;
      default:
        ++counts_.flushes;
        break;
    }
  }

  void compare(const slot& done, const block_completion& end) {
    block_model& model = *done.area->model;
    end.for_each_part([&](std::size_t offset, std::span<const std::byte> bytes) {
      const std::uint64_t here = done.sector + offset / protocol::blkif::sector_bytes;
      if (const auto wrong = model.check(here, bytes)) {
        throw block_failure(wrong->sector, wrong->what);
      }
    });
    model.end_read(done.sector, done.sectors);
    // Some of what is to keep its content is written back as it is.
    if (done.area->keep_content && below(100) < options_.write_percent &&
        model.begin_write(done.sector, done.sectors)) {
      content_.resize(done.sectors * protocol::blkif::sector_bytes);
      end.copy_to(content_);
      (void)put(done.area, protocol::blkif::operation::write, done.sector, done.sectors,
                content_.data());
    }
  }

  strict_queue& queue_;
  std::vector<block_area> areas_;
  block_load_options options_;
  std::mt19937_64 random_;
  std::uint64_t largest_ = 0;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::uint64_t put_ = 0;
  std::uint64_t version_ = 0;
  std::uint32_t since_flush_ = 0;
  std::vector<block_segment> segments_;
  std::vector<std::byte> content_;
  block_load_counts counts_;
};

}  // namespace pvring::testing
