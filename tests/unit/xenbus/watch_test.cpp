// SPDX-License-Identifier: MIT
#include "pvring/xenbus/watch.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>

#include "recording_device.hpp"
#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

using test::readable;

static_assert(!std::is_copy_constructible_v<scoped_watch<test::scripted_store>>);

TEST(ScopedWatch, EndsWithItsOwner) {
  test::store_tree tree;
  test::scripted_store store(tree);
  {
    scoped_watch<test::scripted_store> first(store, "/a", "token");
    const scoped_watch<test::scripted_store> moved(std::move(first));
    EXPECT_EQ(store.watches(), 1U);
  }
  EXPECT_EQ(store.watches(), 0U);
}

// Case 97: a watch callback that removes its own watch.
TEST(ScopedWatch, MayBeEndedWhileItsEventIsHandled) {
  test::store_tree tree;
  test::scripted_store store(tree);
  std::optional<scoped_watch<test::scripted_store>> watch;
  watch.emplace(store, "/a", "token");
  tree.put("/a", "1");
  tree.put("/a/b", "1");
  const auto event = store.next_event();
  ASSERT_TRUE(event);
  watch.reset();
  EXPECT_EQ(event->token, "token");
  EXPECT_EQ(store.next_event(), std::nullopt) << "no event of a watch that is gone";
}

TEST(WakeDescriptor, IsReadableForEitherReason) {
  const unique_fd other(::eventfd(0, EFD_NONBLOCK));
  const wake_descriptor wake(other.get());
  EXPECT_FALSE(readable(wake.fd()));
  EXPECT_FALSE(wake.clear());
  std::thread([&] { wake.signal(); }).join();
  EXPECT_TRUE(readable(wake.fd()));
  EXPECT_TRUE(wake.clear());
  EXPECT_FALSE(readable(wake.fd()));
  ASSERT_EQ(::eventfd_write(other.get(), 1), 0);
  EXPECT_TRUE(readable(wake.fd()));
  EXPECT_FALSE(wake.clear());
}

TEST(WakeDescriptor, ADescriptorThatIsNoneIsAnError) {
  EXPECT_THROW(wake_descriptor(-1), std::system_error);
}

}  // namespace
}  // namespace pvring::xenbus
