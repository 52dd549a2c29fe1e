// SPDX-License-Identifier: MIT
// An engine on memory whose completions follow a script: late, out of order, failing, one by one.
// For tests of what a queue does meanwhile.
#pragma once

#include <cstdint>
#include <utility>

#include "../aio/engine.hpp"
#include "../aio/memory.hpp"
#include "completion_script.hpp"
#include "scripted_context.hpp"

namespace pvring::testing {

struct delayed_options {
  completion_script script{};
  aio::memory_options memory{};
  bool buffers_free_at_completion = true;
  bool buffers_free_at_exit = true;
};

/// The content is that of a memory image.
class delayed_image : public aio::memory_image {
 public:
  explicit delayed_image(std::uint64_t bytes, delayed_options options = {})
      : aio::memory_image(bytes, std::move(options.memory)),
        free_at_completion_(options.buffers_free_at_completion),
        free_at_exit_(options.buffers_free_at_exit),
        control_(std::move(options.script)) {}

  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return free_at_completion_; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return free_at_exit_; }

  /// Lets transfers complete where the script says `by_hand`.
  void release(std::size_t n = 1) noexcept { control_.release(n); }

  /// May be changed while nothing is in flight.
  [[nodiscard]] completion_script& script() noexcept { return control_.script(); }

  // For the context.
  [[nodiscard]] completion_control& control() noexcept { return control_; }
  [[nodiscard]] std::uint64_t started(const aio::transfer&) noexcept { return 0; }
  int perform(const aio::transfer& work, std::uint64_t) noexcept {
    return aio::memory_image::perform(work);
  }
  void dropped(const aio::transfer&) noexcept {}
  void abandoned(const aio::transfer& work, std::uint64_t) noexcept {
    (void)aio::memory_image::perform(work);
  }

 private:
  bool free_at_completion_;
  bool free_at_exit_;
  completion_control control_;
};

struct delayed_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = delayed_image;
  using context = scripted_context<delayed_image>;
};

static_assert(aio::engine<delayed_engine>);

}  // namespace pvring::testing
