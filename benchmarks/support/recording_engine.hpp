// SPDX-License-Identifier: MIT
// An engine that notes how many completions each reap found, and is otherwise the one it wraps. The
// notes go into an array of fixed size, so nothing allocates while it is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pvring/aio/engine.hpp"

namespace bench {

/// How often a reap found how many, those that found nothing left out.
class reap_sizes {
 public:
  static constexpr std::size_t largest = 1024;

  void record(std::size_t found) noexcept {
    if (found != 0) {
      ++counts_[found < largest ? found : largest];
    }
  }
  void clear() noexcept { counts_ = {}; }
  void add(const reap_sizes& other) noexcept {
    for (std::size_t i = 0; i <= largest; ++i) {
      counts_[i] += other.counts_[i];
    }
  }
  [[nodiscard]] std::uint64_t reaps() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts_) {
      sum += count;
    }
    return sum;
  }
  /// The number that `percent` of a hundred reaps do not exceed.
  [[nodiscard]] std::size_t percentile(double percent) const noexcept {
    const double rank = percent / 100 * static_cast<double>(reaps());
    std::uint64_t seen = 0;
    for (std::size_t i = 1; i <= largest; ++i) {
      seen += counts_[i];
      if (seen != 0 && static_cast<double>(seen) >= rank) {
        return i;
      }
    }
    return 0;
  }

 private:
  std::array<std::uint64_t, largest + 1> counts_{};
};

template <class Engine>
struct recording {
  using policy_kind = pvring::policy_kind::engine;
  using image = typename Engine::image;

  class context {
   public:
    context(image& on, pvring::aio::context_options options) : inner_(on, options) {}

    void submit(std::span<pvring::aio::transfer* const> batch) noexcept { inner_.submit(batch); }
    template <class F>
    std::size_t reap(F&& f) noexcept {
      const std::size_t found = inner_.reap(std::forward<F>(f));
      sizes_.record(found);
      return found;
    }
    [[nodiscard]] std::size_t in_flight() const noexcept { return inner_.in_flight(); }
    [[nodiscard]] std::size_t capacity() const noexcept { return inner_.capacity(); }
    [[nodiscard]] int fd() const noexcept { return inner_.fd(); }
    [[nodiscard]] bool arm() noexcept { return inner_.arm(); }
    void disarm() noexcept { inner_.disarm(); }
    [[nodiscard]] auto& counters() noexcept { return inner_.counters(); }
    [[nodiscard]] reap_sizes& sizes() noexcept { return sizes_; }

   private:
    typename Engine::context inner_;
    reap_sizes sizes_;
  };
};

}  // namespace bench
