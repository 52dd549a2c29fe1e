// SPDX-License-Identifier: MIT
// The policy that observes nothing must take no space and no time, and every policy must be told
// from what is none. That it leaves no instruction behind is shown in tests/codegen.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "pvring/observe/full.hpp"
#include "pvring/observe/histogram.hpp"
#include "pvring/observe/none.hpp"
#include "pvring/observe/observer.hpp"

namespace {

namespace observe = pvring::observe;

static_assert(observe::observer<observe::none>);
static_assert(observe::observer<observe::histogram>);
static_assert(observe::observer<observe::full>);
static_assert(!observe::none::recorder::active);
static_assert(observe::histogram::recorder::active);
static_assert(observe::full::recorder::active);

// Crippled twins of `none`: each lacks one thing that the concept asks for.
struct good_recorder {
  static constexpr bool active = true;
  explicit good_recorder(std::uint32_t) {}
  void stage(std::uint32_t, observe::stage) noexcept {}
  void published(bool) noexcept {}
  void pass(std::uint32_t, std::uint32_t) noexcept {}
};
struct unsized_recorder : good_recorder {
  unsized_recorder() : good_recorder(1) {}
};
struct throwing_recorder : good_recorder {
  using good_recorder::good_recorder;
  void stage(std::uint32_t, observe::stage) {}
};
struct slotless_recorder : good_recorder {
  using good_recorder::good_recorder;
  void stage(observe::stage) noexcept {}
};
struct unpublishing_recorder : good_recorder {
  using good_recorder::good_recorder;
  void published() noexcept {}
};
struct answering_recorder : good_recorder {
  using good_recorder::good_recorder;
  int pass(std::uint32_t, std::uint32_t) noexcept { return 0; }
};
struct undecided_recorder {
  explicit undecided_recorder(std::uint32_t) {}
  void stage(std::uint32_t, observe::stage) noexcept {}
  void published(bool) noexcept {}
  void pass(std::uint32_t, std::uint32_t) noexcept {}
};
static_assert(observe::recorder<good_recorder>);
static_assert(!observe::recorder<unsized_recorder>);
static_assert(!observe::recorder<throwing_recorder>);
static_assert(!observe::recorder<slotless_recorder>);
static_assert(!observe::recorder<unpublishing_recorder>);
static_assert(!observe::recorder<answering_recorder>);
static_assert(!observe::recorder<undecided_recorder>);

template <class Kind, class Recorder>
struct policy {
  using policy_kind = Kind;
  using recorder = Recorder;
};
struct without_kind {
  using recorder = good_recorder;
};
struct without_recorder {
  using policy_kind = pvring::policy_kind::observer;
};
static_assert(observe::observer<policy<pvring::policy_kind::observer, good_recorder>>);
static_assert(!observe::observer<policy<pvring::policy_kind::engine, good_recorder>>);
static_assert(!observe::observer<policy<pvring::policy_kind::observer, throwing_recorder>>);
static_assert(!observe::observer<without_kind>);
static_assert(!observe::observer<without_recorder>);

struct holder {
  std::uint64_t something = 0;
  [[no_unique_address]] observe::none::recorder recorder{32};
};
static_assert(sizeof(holder) == sizeof(std::uint64_t));
static_assert(std::is_trivially_destructible_v<observe::none::recorder>);

constexpr bool usable_at_compile_time() {
  observe::none::recorder recorder(32);
  recorder.stage(0, observe::stage::seen);
  recorder.published(true);
  recorder.pass(1, 1);
  return true;
}
static_assert(usable_at_compile_time());

TEST(Observer, StagesHaveNames) {
  EXPECT_EQ(observe::to_string(observe::stage::seen), "seen");
  EXPECT_EQ(observe::to_string(observe::stage::acquired), "acquired");
  EXPECT_EQ(observe::to_string(observe::stage::submitted), "submitted");
  EXPECT_EQ(observe::to_string(observe::stage::completed), "completed");
  EXPECT_EQ(observe::to_string(observe::stage::responded), "responded");
  EXPECT_EQ(observe::to_string(observe::stage::notified), "notified");
  EXPECT_EQ(observe::to_string(static_cast<observe::stage>(99)), "unknown");
}

}  // namespace
