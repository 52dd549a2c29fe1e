// SPDX-License-Identifier: MIT
// The concept of a source refuses what would lose a wake-up or throw in the data path.
#include "pvring/base/source.hpp"

#include <gtest/gtest.h>

namespace {

struct good {
  int fd() noexcept { return -1; }
  bool arm() noexcept { return false; }
  void disarm() noexcept {}
};
struct throwing_arm : good {
  bool arm() { return false; }
};
struct silent_arm : good {
  void arm() noexcept {}
};
struct counting_arm : good {
  int arm() noexcept { return 0; }
};
struct throwing_fd : good {
  int fd() { return -1; }
};
struct answering_disarm : good {
  bool disarm() noexcept { return true; }
};
struct without_disarm {
  int fd() noexcept { return -1; }
  bool arm() noexcept { return false; }
};
static_assert(pvring::source<good>);
static_assert(!pvring::source<throwing_arm>);
static_assert(!pvring::source<silent_arm>);
static_assert(!pvring::source<counting_arm>);
static_assert(!pvring::source<throwing_fd>);
static_assert(!pvring::source<answering_disarm>);
static_assert(!pvring::source<without_disarm>);
static_assert(!pvring::source<int>);

}  // namespace
