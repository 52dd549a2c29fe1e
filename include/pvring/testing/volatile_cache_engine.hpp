// SPDX-License-Identifier: MIT
// An engine whose writes stay in a volatile cache until a flush makes them durable, and whose power
// can be cut. What an acknowledged flush covered must be there afterwards; of everything else any
// part may be.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../aio/engine.hpp"
#include "completion_script.hpp"
#include "scripted_context.hpp"

namespace pvring::testing {

struct volatile_cache_options {
  /// Late and out of order by default: a backend must not count on either.
  completion_script script{.order = completion_order::shuffled, .held_for = 1};
  /// Flushes are acknowledged and not done: a test that does not fail with this does not test power
  /// cuts.
  bool flush_lies = false;
  /// A flush is answered before it is done: it takes effect with the next transfer only.
  bool flush_early = false;
};

/// Any thread may use it; it locks, and is not fast.
class volatile_cache_image {
 public:
  static constexpr std::size_t sector_size = 512;
  using sector = std::array<std::byte, sector_size>;

  /// \param bytes whole sectors, all zero and durable
  explicit volatile_cache_image(std::uint64_t bytes, volatile_cache_options options = {})
      : control_(std::move(options.script)),
        flush_lies_(options.flush_lies),
        flush_early_(options.flush_early),
        durable_(bytes / sector_size) {
    assert(bytes % sector_size == 0);
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return durable_.size() * sector_size; }
  [[nodiscard]] bool read_only() const noexcept { return false; }
  [[nodiscard]] bool can_flush() const noexcept { return true; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept { return sector_size; }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept { return sector_size; }
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return true; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return 1; }
  [[nodiscard]] std::string_view name() const noexcept { return "volatile cache"; }

  /// The power goes: of the cached versions of each sector any one stays, or none; a write in
  /// flight may have reached any of its sectors. Until restart() nothing works any more. Call it
  /// while the contexts still exist.
  template <class Random>
  void cut(Random& random) {
    const std::lock_guard lock(mutex_);
    off_ = true;
    for (auto& [index, versions] : cache_) {
      // One choice is the durable sector as it is.
      const std::size_t choice =
          std::uniform_int_distribution<std::size_t>(0, versions.size())(random);
      if (choice != versions.size()) {
        durable_[index] = versions[choice].data;
      }
    }
    for (const aio::transfer* work : writes_in_flight_) {
      for_each_sector(*work, [&](std::uint64_t index, const sector& data) {
        if (std::uniform_int_distribution<int>(0, 1)(random) == 1) {
          durable_[index] = data;
        }
      });
    }
    cache_.clear();
    postponed_.reset();
    writes_in_flight_.clear();
  }

  /// The power is back. Precondition: no context from before the cut is left.
  void restart() noexcept {
    const std::lock_guard lock(mutex_);
    off_ = false;
  }

  /// What a read of the durable medium finds in a sector.
  [[nodiscard]] sector durable(std::uint64_t index) const {
    const std::lock_guard lock(mutex_);
    return durable_.at(index);
  }
  [[nodiscard]] std::size_t cached_sectors() const {
    const std::lock_guard lock(mutex_);
    return cache_.size();
  }

  void release(std::size_t n = 1) noexcept { control_.release(n); }
  [[nodiscard]] completion_script& script() noexcept { return control_.script(); }

  // For the context.
  [[nodiscard]] completion_control& control() noexcept { return control_; }

  /// The token of a flush: what was complete when it was submitted is what it covers, and not more.
  [[nodiscard]] std::uint64_t started(const aio::transfer& work) noexcept {
    const std::lock_guard lock(mutex_);
    if (changes(work)) {
      writes_in_flight_.push_back(&work);
    }
    return complete_;
  }

  int perform(const aio::transfer& work, std::uint64_t token) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(writes_in_flight_, &work);
    if (off_) {
      return -EIO;
    }
    if (const auto due = std::exchange(postponed_, std::nullopt)) {
      flush(*due);
    }
    if (work.kind == aio::operation::flush) {
      if (flush_early_) {
        postponed_ = token;
      } else {
        flush(token);
      }
      return 0;
    }
    if (work.offset % sector_size != 0 || work.length % sector_size != 0 || work.offset > size() ||
        work.length > size() - work.offset) {
      return -EIO;
    }
    if (work.kind == aio::operation::read) {
      read(work);
      return 0;
    }
    ++complete_;
    for_each_sector(work, [&](std::uint64_t index, const sector& data) {
      cache_[index].push_back({complete_, data});
    });
    return 0;
  }

  /// A write that fails may have reached nothing.
  void dropped(const aio::transfer& work) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(writes_in_flight_, &work);
  }

  /// Whatever was in flight when its context went happens in a cache that nobody flushes for it.
  void abandoned(const aio::transfer& work, std::uint64_t token) noexcept {
    if (work.kind != aio::operation::flush) {
      (void)perform(work, token);
    }
  }

 private:
  struct version {
    std::uint64_t number;
    sector data;
  };

  static bool changes(const aio::transfer& work) noexcept {
    return work.kind != aio::operation::read && work.kind != aio::operation::flush;
  }

  /// Calls `f(index, data)` for each sector that a write, discard or write_zeroes covers.
  template <class F>
  static void for_each_sector(const aio::transfer& work, F f) {
    std::uint64_t index = work.offset / sector_size;
    sector data{};
    if (work.kind != aio::operation::write) {
      for (std::uint64_t end = index + work.length / sector_size; index != end; ++index) {
        f(index, data);
      }
      return;
    }
    std::size_t filled = 0;
    for (const iovec& buffer : work.buffers) {
      const auto* from = static_cast<const std::byte*>(buffer.iov_base);
      for (std::size_t left = buffer.iov_len; left != 0;) {
        const std::size_t n = std::min(left, sector_size - filled);
        std::memcpy(data.data() + filled, from, n);
        from += n;
        left -= n;
        filled += n;
        if (filled == sector_size) {
          f(index++, data);
          filled = 0;
        }
      }
    }
  }

  void read(const aio::transfer& work) const {
    std::uint64_t at = work.offset;
    for (const iovec& buffer : work.buffers) {
      auto* to = static_cast<std::byte*>(buffer.iov_base);
      for (std::size_t left = buffer.iov_len; left != 0;) {
        const std::uint64_t index = at / sector_size;
        const auto cached = cache_.find(index);
        const sector& data = cached != cache_.end() ? cached->second.back().data : durable_[index];
        const std::size_t within = at % sector_size;
        const std::size_t n = std::min(left, sector_size - within);
        std::memcpy(to, data.data() + within, n);
        to += n;
        at += n;
        left -= n;
      }
    }
  }

  void flush(std::uint64_t covered) {
    if (flush_lies_) {
      return;
    }
    for (auto at = cache_.begin(); at != cache_.end();) {
      auto& [index, versions] = *at;
      const auto later =
          std::ranges::find_if(versions, [&](const version& v) { return v.number > covered; });
      if (later != versions.begin()) {
        durable_[index] = std::prev(later)->data;
        versions.erase(versions.begin(), later);
      }
      at = versions.empty() ? cache_.erase(at) : std::next(at);
    }
  }

  completion_control control_;
  bool flush_lies_;
  bool flush_early_;
  std::optional<std::uint64_t> postponed_;
  mutable std::mutex mutex_;
  std::vector<sector> durable_;
  std::map<std::uint64_t, std::vector<version>> cache_;  // by sector, oldest version first
  std::vector<const aio::transfer*> writes_in_flight_;
  std::uint64_t complete_ = 0;  // writes that are complete; numbers the versions
  bool off_ = false;
};

struct volatile_cache_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = volatile_cache_image;
  using context = scripted_context<volatile_cache_image>;
};

static_assert(aio::engine<volatile_cache_engine>);

}  // namespace pvring::testing
