// SPDX-License-Identifier: MIT
// The concepts refuse what lacks one thing.
#include <gtest/gtest.h>

#include <pvring/aio/engine.hpp>
#include <pvring/aio/memory.hpp>

namespace aio_test {
namespace {

using pvring::aio::context_options;
using pvring::aio::engine;
using pvring::aio::engine_context;
using pvring::aio::image;
using pvring::aio::memory;
using pvring::aio::memory_image;
using pvring::aio::transfer;

static_assert(engine<memory> && engine_context<memory::context> && image<memory_image>);

struct throwing_size : memory_image {
  using memory_image::memory_image;
  std::uint64_t size() const { return 0; }
};
static_assert(!image<throwing_size>);

struct signed_size : memory_image {
  using memory_image::memory_image;
  std::int64_t size() const noexcept { return 0; }
};
static_assert(!image<signed_size>);

struct without_exit_promise : memory_image {
  using memory_image::memory_image;
  bool buffers_free_at_exit() const noexcept = delete;
};
static_assert(!image<without_exit_promise>);

struct throwing_submit : memory::context {
  using memory::context::context;
  void submit(std::span<transfer* const>) {}
};
static_assert(!engine_context<throwing_submit>);

struct counting_submit
    : memory::context {  // would tempt callers to submit again what was "not taken"
  using memory::context::context;
  std::size_t submit(std::span<transfer* const> batch) noexcept { return batch.size(); }
};
static_assert(!engine_context<counting_submit>);

struct silent_reap : memory::context {
  using memory::context::context;
  template <class F>
  void reap(F&&) noexcept {}
};
static_assert(!engine_context<silent_reap>);

struct unwakeable : memory::context {
  using memory::context::context;
  int fd() const noexcept = delete;
};
static_assert(!engine_context<unwakeable>);

struct arms_blindly : memory::context {
  using memory::context::context;
  void arm() noexcept {}
};
static_assert(!engine_context<arms_blindly>);

struct of_no_kind {
  using image = memory_image;
  using context = memory::context;
};
static_assert(!engine<of_no_kind>);

struct of_another_kind : of_no_kind {
  using policy_kind = pvring::policy_kind::grants;
};
static_assert(!engine<of_another_kind>);

struct without_options {
  using policy_kind = pvring::policy_kind::engine;
  using image = memory_image;
  struct context : memory::context {
    explicit context(memory_image& of) : memory::context(of, context_options{}) {}
  };
};
static_assert(!engine<without_options>);

TEST(engine_concept, refuses_crippled_twins) { SUCCEED(); }

}  // namespace
}  // namespace aio_test
