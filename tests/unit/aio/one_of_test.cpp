// SPDX-License-Identifier: MIT
// What an image of one of several engines says beyond the concept: what the one it is says.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include <pvring/aio/inline_engine.hpp>
#include <pvring/aio/memory.hpp>
#include <pvring/aio/one_of.hpp>

namespace aio_test {
namespace {

using namespace pvring::aio;

/// Knows whether a dead process's transfers are over, and for how many queues it is good.
class fenced_image : public memory_image {
 public:
  explicit fenced_image(bool guarded) : memory_image(1 << 20), guarded_(guarded) {}
  [[nodiscard]] bool guarded() const noexcept { return guarded_; }
  [[nodiscard]] std::uint32_t most_contexts() const noexcept { return 3; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return guarded_; }
  [[nodiscard]] std::string identity() const { return "the one"; }

 private:
  bool guarded_;
};

struct fenced {
  using policy_kind = pvring::policy_kind::engine;
  using image = fenced_image;
  using context = memory::context;
};

using either = one_of<memory, fenced>;

TEST(OneOf, IsGuardedWhereTheImageItIsIsGuarded) {
  EXPECT_TRUE(either::image(std::in_place_type<fenced_image>, true).guarded());
  EXPECT_FALSE(either::image(std::in_place_type<fenced_image>, false).guarded());
}

// As for the backend that has such an image alone.
TEST(OneOf, IsGuardedWhereTransfersEndWithTheirProcess) {
  EXPECT_TRUE(either::image(std::in_place_type<memory_image>, 1 << 20).guarded());
}

TEST(OneOf, AnswersWhatTheImageItIsAnswers) {
  const either::image of(std::in_place_type<fenced_image>, false);
  EXPECT_EQ(of.most_contexts(), 3U);
  EXPECT_FALSE(of.buffers_free_at_exit());
  EXPECT_EQ(of.identity(), "the one");
  const either::image other(std::in_place_type<memory_image>, 1 << 20);
  EXPECT_GT(other.most_contexts(), 3U);
  EXPECT_EQ(other.buffers_free_at_exit(), memory_image(1 << 20).buffers_free_at_exit());
  EXPECT_EQ(other.identity(), other.name());
}

}  // namespace
}  // namespace aio_test
