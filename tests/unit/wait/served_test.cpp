// SPDX-License-Identifier: MIT
// What counts as something to serve, and what does not. Compile-time only.

#include "pvring/wait/served.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace {

namespace wait = pvring::wait;

struct plain {
  int fd() noexcept { return 0; }
  bool arm() noexcept { return false; }
  void disarm() noexcept {}
};
struct timed : plain {
  std::optional<wait::time_point> deadline() noexcept { return std::nullopt; }
};
struct counting : plain {
  std::uint64_t progress() noexcept { return 0; }
};
struct flying : plain {
  std::size_t in_flight() noexcept { return 0; }
};
struct throwing_deadline : plain {
  std::optional<wait::time_point> deadline() { return std::nullopt; }
};
static_assert(pvring::source<plain>);
static_assert(!wait::source_with_deadline<plain> && wait::source_with_deadline<timed>);
static_assert(!wait::source_with_deadline<throwing_deadline>);
static_assert(!wait::source_with_progress<plain> && wait::source_with_progress<counting>);
static_assert(!wait::source_with_flights<plain> && wait::source_with_flights<flying>);

struct good {
  plain source;
  std::size_t service(std::size_t) noexcept { return 0; }
  std::optional<wait::time_point> deadline() noexcept { return std::nullopt; }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(source);
  }
};
struct may_throw : good {
  std::size_t service(std::size_t) { return 0; }
};
struct tells_nothing : good {
  void service(std::size_t) noexcept {}
};
struct without_deadline {
  std::size_t service(std::size_t) noexcept { return 0; }
  template <class F>
  void for_each_source(F&&) noexcept {}
};
struct sources_may_throw : good {
  template <class F>
  void for_each_source(F&&) {}
};
static_assert(wait::served<good>);
static_assert(!wait::served<may_throw>);
static_assert(!wait::served<tells_nothing>);
static_assert(!wait::served<without_deadline>);
static_assert(!wait::served<sources_may_throw>);

TEST(Served, IsAConcept) { SUCCEED(); }

}  // namespace
