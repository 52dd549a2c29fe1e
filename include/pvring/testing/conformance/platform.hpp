// SPDX-License-Identifier: MIT
// What every platform must do, as a suite of typed tests. Whoever writes a platform describes its
// peer in a fixture, instantiates the suite with it, and knows that the backends will run on it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "../../platform/platform.hpp"

namespace pvring::testing::conformance {

/// Pages that the peer granted to the domain under test, side by side as the peer sees them.
struct shared_pages {
  std::byte* memory = nullptr;
  std::vector<platform::grant_reference> references;
};

/// A platform and a peer to talk to, made anew for each test.
///
/// - `host()`: the platform. `self()`: its domain. `peer()`: the one that grants pages and offers
/// ports.
/// - `share(count, access)`: zeroed pages of the peer, granted. `withdraw(pages)`: ends the grants;
/// false where one of
///   them is mapped, if `sees_mappings`. `bad_reference()`: one that was never granted.
/// - `offer_port()`: a port of the peer that the platform may bind to. `kick(port)`: the peer
/// notifies through it, any
///   thread. `kicked(port)`: whether that port was kicked since it was last asked; waits for a
///   moment.
/// - `directory()`: a store path below which nothing is, and where the platform's domain may write.
template <class F>
concept platform_fixture =
    std::default_initializable<F> && platform::host<typename F::platform_type> &&
    requires(F& f, std::size_t count, shared_pages& pages, platform::port p) {
      { f.host() } -> std::same_as<typename F::platform_type&>;
      { f.self() } -> std::same_as<domain_id>;
      { f.peer() } -> std::same_as<domain_id>;
      { f.share(count, platform::access::read_only) } -> std::same_as<shared_pages>;
      { f.withdraw(pages) } -> std::same_as<bool>;
      { f.bad_reference() } -> std::same_as<platform::grant_reference>;
      { f.offer_port() } -> std::same_as<platform::port>;
      { f.kick(p) } -> std::same_as<void>;
      { f.kicked(p) } -> std::same_as<bool>;
      { f.directory() } -> std::convertible_to<std::string>;
      { F::sees_mappings } -> std::convertible_to<bool>;
    };

/// The suite. Instantiate it with
/// `INSTANTIATE_TYPED_TEST_SUITE_P(Name, PlatformConformance, my_fixture);`.
template <platform_fixture F>
class PlatformConformance : public ::testing::Test {
 protected:
  using platform_type = typename F::platform_type;

  static bool is_readable(int fd, int milliseconds) {
    pollfd descriptor{fd, POLLIN, 0};
    return ::poll(&descriptor, 1, milliseconds) == 1;
  }

  // The port that fires next; waits for it.
  template <class Events>
  static std::optional<platform::port> wait_fired(Events& events, int milliseconds = 10'000) {
    while (true) {
      if (const auto fired = events.pending()) {
        return fired;
      }
      if (!is_readable(events.fd(), milliseconds)) {
        return std::nullopt;
      }
    }
  }

  // A bound and unmasked port. A kick that nobody sent is allowed here: a platform may take the
  // safe side about those that came before the bind.
  template <class Events>
  platform::port connect(Events& events, platform::port offered) {
    const platform::port p = events.bind(f.peer(), offered);
    events.unmask(p);
    if (wait_fired(events, 50)) {
      events.unmask(p);
    }
    return p;
  }

  template <class Store>
  static std::optional<platform::watch_event> wait_event(Store& store, int milliseconds = 10'000) {
    while (true) {
      if (auto event = store.next_event()) {
        return event;
      }
      if (!is_readable(store.fd(), milliseconds)) {
        return std::nullopt;
      }
    }
  }

  static platform::copy_operation piece(void* local, platform::grant_reference reference,
                                        std::size_t offset, std::size_t length) {
    return {.local = static_cast<std::byte*>(local),
            .reference = reference,
            .offset = static_cast<std::uint16_t>(offset),
            .length = static_cast<std::uint16_t>(length)};
  }

  static void fill(shared_pages& pages) {
    for (std::size_t i = 0; i < pages.references.size(); ++i) {
      std::memset(pages.memory + i * platform::page_size, 'a' + static_cast<int>(i),
                  platform::page_size);
    }
  }

  F f;
};

TYPED_TEST_SUITE_P(PlatformConformance);

TYPED_TEST_P(PlatformConformance, MapsPagesSideBySideInTheOrderAsked) {
  auto grants = this->f.host().open_grants(16);
  shared_pages pages = this->f.share(4, platform::access::read_write);
  this->fill(pages);
  const auto& r = pages.references;
  const std::vector<platform::grant_reference> order{r[2], r[0], r[1], r[3]};
  const platform::map_result mapped =
      grants.map(this->f.peer(), order, platform::access::read_write);
  ASSERT_EQ(mapped.error, 0);
  ASSERT_EQ(mapped.pages.count, 4U);
  std::string seen;
  for (std::size_t i = 0; i < 4; ++i) {
    seen += static_cast<char>(mapped.pages.address[i * platform::page_size + 4095]);
  }
  EXPECT_EQ(seen, "cabd");
  mapped.pages.address[5] = std::byte{'x'};
  EXPECT_EQ(pages.memory[2 * platform::page_size + 5], std::byte{'x'});
  pages.memory[6] = std::byte{'y'};
  EXPECT_EQ(mapped.pages.address[platform::page_size + 6], std::byte{'y'});
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_TRUE(this->f.withdraw(pages));
}

TYPED_TEST_P(PlatformConformance, AMapFailsWhole) {
  auto grants = this->f.host().open_grants(16);
  shared_pages pages = this->f.share(3, platform::access::read_write);
  for (std::size_t bad = 0; bad < 3; ++bad) {
    auto references = pages.references;
    references[bad] = this->f.bad_reference();
    const platform::map_result mapped =
        grants.map(this->f.peer(), references, platform::access::read_write);
    EXPECT_EQ(mapped.error, EINVAL);
    EXPECT_FALSE(mapped.pages);
  }
  EXPECT_TRUE(this->f.withdraw(pages)) << "nothing of a failed map is left";
}

TYPED_TEST_P(PlatformConformance, AReadOnlyGrantIsNotMappedForWriting) {
  auto grants = this->f.host().open_grants(16);
  shared_pages pages = this->f.share(1, platform::access::read_only);
  this->fill(pages);
  EXPECT_EQ(grants.map(this->f.peer(), pages.references, platform::access::read_write).error,
            EINVAL);
  const platform::map_result mapped =
      grants.map(this->f.peer(), pages.references, platform::access::read_only);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_EQ(mapped.pages.address[0], std::byte{'a'});
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
}

TYPED_TEST_P(PlatformConformance, UnmapsOnlyWholeMaps) {
  auto grants = this->f.host().open_grants(16);
  shared_pages pages = this->f.share(3, platform::access::read_write);
  const platform::map_result mapped =
      grants.map(this->f.peer(), pages.references, platform::access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_NE(grants.unmap({mapped.pages.address, 2}), 0);
  EXPECT_NE(grants.unmap({mapped.pages.address + platform::page_size, 2}), 0);
  mapped.pages.address[0] = std::byte{1};
  mapped.pages.address[2 * platform::page_size] = std::byte{1};
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_NE(grants.unmap(mapped.pages), 0);
}

TYPED_TEST_P(PlatformConformance, KeepsToTheQuota) {
  auto grants = this->f.host().open_grants(3);
  shared_pages pages = this->f.share(4, platform::access::read_write);
  const std::span<const platform::grant_reference> all(pages.references);
  EXPECT_EQ(grants.map(this->f.peer(), all, platform::access::read_write).error, ENOSPC);
  const platform::map_result two =
      grants.map(this->f.peer(), all.first(2), platform::access::read_write);
  ASSERT_EQ(two.error, 0);
  EXPECT_EQ(grants.map(this->f.peer(), all.last(2), platform::access::read_write).error, ENOSPC);
  EXPECT_EQ(grants.unmap(two.pages), 0);
  const platform::map_result three =
      grants.map(this->f.peer(), all.first(3), platform::access::read_write);
  EXPECT_EQ(three.error, 0);
  EXPECT_EQ(grants.unmap(three.pages), 0);
}

TYPED_TEST_P(PlatformConformance, APeerCannotEndAGrantThatIsMapped) {
  if (!TypeParam::sees_mappings) {
    GTEST_SKIP() << "the peer of this platform cannot see whether a grant is mapped";
  }
  auto grants = this->f.host().open_grants(3);
  shared_pages pages = this->f.share(1, platform::access::read_write);
  const platform::map_result mapped =
      grants.map(this->f.peer(), pages.references, platform::access::read_write);
  ASSERT_EQ(mapped.error, 0);
  EXPECT_FALSE(this->f.withdraw(pages));
  EXPECT_EQ(grants.unmap(mapped.pages), 0);
  EXPECT_TRUE(this->f.withdraw(pages));
}

TYPED_TEST_P(PlatformConformance, CopiesBothWays) {
  auto grants = this->f.host().open_grants(1);
  if (!grants.has_copy()) {
    GTEST_SKIP() << "this platform has no grant copy";
  }
  shared_pages pages = this->f.share(2, platform::access::read_write);
  this->fill(pages);
  std::vector<char> local(3 * platform::page_size, '.');
  // The second piece crosses a page of local memory, wherever that begins.
  std::array<platform::copy_operation, 2> ops{
      this->piece(local.data(), pages.references[0], 100, 200),
      this->piece(local.data() + 200, pages.references[1], 0, platform::page_size)};
  ASSERT_EQ(grants.copy(this->f.peer(), platform::direction::from_peer, ops), 0);
  EXPECT_EQ(ops[0].status, platform::grant_status::okay);
  EXPECT_EQ(ops[1].status, platform::grant_status::okay);
  EXPECT_EQ(std::count(local.begin(), local.end(), 'a'), 200);
  EXPECT_EQ(std::count(local.begin(), local.end(), 'b'), 4096);
  EXPECT_EQ(local[200 + platform::page_size], '.');

  std::fill(local.begin(), local.end(), 'z');
  ASSERT_EQ(grants.copy(this->f.peer(), platform::direction::to_peer, ops), 0);
  EXPECT_EQ(std::count(pages.memory, pages.memory + platform::page_size, std::byte{'z'}), 200);
  EXPECT_EQ(pages.memory[99], std::byte{'a'});
  EXPECT_EQ(pages.memory[300], std::byte{'a'});
  EXPECT_EQ(pages.memory[2 * platform::page_size - 1], std::byte{'z'});
}

TYPED_TEST_P(PlatformConformance, EachCopyOperationHasItsOwnStatus) {
  auto grants = this->f.host().open_grants(1);
  if (!grants.has_copy()) {
    GTEST_SKIP() << "this platform has no grant copy";
  }
  shared_pages pages = this->f.share(2, platform::access::read_write);
  shared_pages constant = this->f.share(1, platform::access::read_only);
  this->fill(pages);
  this->fill(constant);
  std::array<char, 4> local{'1', '2', '3', '4'};
  std::array<platform::copy_operation, 4> ops{this->piece(&local[0], pages.references[0], 0, 1),
                                              this->piece(&local[1], this->f.bad_reference(), 0, 1),
                                              this->piece(&local[2], constant.references[0], 0, 1),
                                              this->piece(&local[3], pages.references[1], 0, 1)};
  for (auto& op : ops) {
    op.owner = 77;
  }
  ASSERT_EQ(grants.copy(this->f.peer(), platform::direction::to_peer, ops), 0);
  EXPECT_EQ(ops[0].status, platform::grant_status::okay);
  EXPECT_NE(ops[1].status, platform::grant_status::okay);
  EXPECT_NE(ops[2].status, platform::grant_status::okay);
  EXPECT_EQ(ops[3].status, platform::grant_status::okay);
  EXPECT_EQ(pages.memory[0], std::byte{'1'});
  EXPECT_EQ(constant.memory[0], std::byte{'a'});
  EXPECT_EQ(pages.memory[platform::page_size], std::byte{'4'});
  EXPECT_EQ(ops[1].owner, 77U) << "the caller's mark is left alone";
}

TYPED_TEST_P(PlatformConformance, AMalformedOperationFailsTheCall) {
  auto grants = this->f.host().open_grants(1);
  if (!grants.has_copy()) {
    GTEST_SKIP() << "this platform has no grant copy";
  }
  shared_pages pages = this->f.share(1, platform::access::read_write);
  std::array<char, 8> local{};
  platform::copy_operation op = this->piece(local.data(), pages.references[0], 4090, 8);
  EXPECT_EQ(grants.copy(this->f.peer(), platform::direction::from_peer, {&op, 1}), EINVAL);
}

TYPED_TEST_P(PlatformConformance, CopiesOfAnyNumberOfOperationsAreOneCall) {
  auto grants = this->f.host().open_grants(1);
  if (!grants.has_copy()) {
    GTEST_SKIP() << "this platform has no grant copy";
  }
  ASSERT_GT(grants.batch_limit(), 0U);
  shared_pages pages = this->f.share(1, platform::access::read_write);
  for (std::size_t i = 0; i < platform::page_size; ++i) {
    pages.memory[i] = static_cast<std::byte>(i % 251);
  }
  const std::size_t n = std::min<std::size_t>(grants.batch_limit() + 100, 5000);
  std::vector<std::byte> local(n);
  std::vector<platform::copy_operation> ops;
  for (std::size_t i = 0; i < n; ++i) {
    ops.push_back(this->piece(&local[i], pages.references[0], i % platform::page_size, 1));
  }
  ASSERT_EQ(grants.copy(this->f.peer(), platform::direction::from_peer, ops), 0);
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(ops[i].status, platform::grant_status::okay);
    ASSERT_EQ(local[i], static_cast<std::byte>(i % platform::page_size % 251)) << i;
  }
  EXPECT_EQ(grants.copy(this->f.peer(), platform::direction::from_peer, {}), 0);
}

TYPED_TEST_P(PlatformConformance, AKickMakesTheHandleReadableAndMasksThePort) {
  auto events = this->f.host().open_events();
  const platform::port offered = this->f.offer_port();
  const platform::port p = this->connect(events, offered);
  EXPECT_FALSE(this->is_readable(events.fd(), 0));
  EXPECT_EQ(events.pending(), std::nullopt);
  this->f.kick(offered);
  EXPECT_TRUE(this->is_readable(events.fd(), 10'000));
  EXPECT_EQ(this->wait_fired(events), p);
  this->f.kick(offered);
  EXPECT_EQ(this->wait_fired(events, 50), std::nullopt) << "masked";
  events.unmask(p);
  EXPECT_EQ(this->wait_fired(events), p) << "the kick was kept";
  events.unmask(p);
  EXPECT_EQ(this->wait_fired(events, 50), std::nullopt);
}

TYPED_TEST_P(PlatformConformance, ABoundPortWakesNobodyBeforeItIsUnmasked) {
  auto events = this->f.host().open_events();
  const platform::port offered = this->f.offer_port();
  const platform::port p = events.bind(this->f.peer(), offered);
  this->f.kick(offered);
  EXPECT_EQ(this->wait_fired(events, 50), std::nullopt);
  events.unmask(p);
  EXPECT_EQ(this->wait_fired(events), p);
}

TYPED_TEST_P(PlatformConformance, NotifiesThePeer) {
  auto events = this->f.host().open_events();
  const platform::port offered = this->f.offer_port();
  const platform::port p = this->connect(events, offered);
  (void)this->f.kicked(offered);
  events.notify(p);
  EXPECT_TRUE(this->f.kicked(offered));
}

TYPED_TEST_P(PlatformConformance, AHandleServesSeveralPorts) {
  auto events = this->f.host().open_events();
  std::vector<platform::port> offered;
  std::vector<platform::port> bound;
  for (int i = 0; i < 8; ++i) {
    offered.push_back(this->f.offer_port());
    bound.push_back(this->connect(events, offered.back()));
  }
  for (const platform::port o : offered) {
    this->f.kick(o);
  }
  std::vector<platform::port> fired;
  while (const auto p = this->wait_fired(events, fired.size() < 8 ? 10'000 : 50)) {
    fired.push_back(*p);
  }
  std::sort(fired.begin(), fired.end());
  std::sort(bound.begin(), bound.end());
  EXPECT_EQ(fired, bound);
}

TYPED_TEST_P(PlatformConformance, PortsThatAreNotBoundAreIgnored) {
  auto events = this->f.host().open_events();
  const platform::port offered = this->f.offer_port();
  const platform::port p = this->connect(events, offered);
  events.unbind(p);
  events.unbind(p);
  events.notify(p);
  events.unmask(p);
  this->f.kick(offered);
  EXPECT_EQ(this->wait_fired(events, 50), std::nullopt);
}

TYPED_TEST_P(PlatformConformance, BindingToAPortThatIsNoneNamesBothEnds) {
  auto events = this->f.host().open_events();
  constexpr platform::port none = 3999;
  try {
    (void)events.bind(this->f.peer(), none);
    ADD_FAILURE() << "bound to port " << none;
  } catch (const std::system_error& e) {
    const std::string_view said = e.what();
    EXPECT_NE(said.find(std::to_string(none)), std::string_view::npos) << said;
    EXPECT_NE(said.find(std::to_string(this->f.peer())), std::string_view::npos) << said;
  }
}

TYPED_TEST_P(PlatformConformance, NoKickIsLost) {
  // Each kick is preceded by a count; whoever sleeps must in the end have seen the last one.
  constexpr std::uint32_t kicks = 5'000;
  auto events = this->f.host().open_events();
  const platform::port offered = this->f.offer_port();
  (void)this->connect(events, offered);
  std::atomic<std::uint32_t> published{0};
  std::thread peer([&] {
    for (std::uint32_t i = 1; i <= kicks; ++i) {
      published.store(i, std::memory_order_relaxed);
      this->f.kick(offered);
    }
  });
  std::uint32_t seen = 0;
  std::optional<platform::port> fired;
  do {
    fired = this->wait_fired(events);
    if (fired) {
      events.unmask(*fired);
      seen = published.load(std::memory_order_relaxed);
    }
  } while (fired && seen != kicks);
  peer.join();
  EXPECT_EQ(seen, kicks);
}

TYPED_TEST_P(PlatformConformance, TheStoreKeepsNodes) {
  auto store = this->f.host().open_store();
  const std::string top = this->f.directory();
  EXPECT_EQ(store.read(top + "/a"), std::nullopt);
  EXPECT_TRUE(store.list(top + "/a").empty());
  EXPECT_NO_THROW(store.remove(top + "/a"));
  store.write(top + "/a/b/c", "value");
  store.write(top + "/a/d", "");
  EXPECT_EQ(store.read(top + "/a/b/c"), "value");
  EXPECT_EQ(store.read(top + "/a/b"), "") << "parents are made";
  EXPECT_EQ(store.read(top + "/a/d"), "");
  auto names = store.list(top + "/a");
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"b", "d"}));
  const std::string large(2000, 'x');
  store.write(top + "/a/d", large);
  EXPECT_EQ(store.read(top + "/a/d"), large);
  EXPECT_NO_THROW(
      store.set_permissions(top + "/a/d", {.owner = this->f.self(), .reader = this->f.peer()}));
  store.remove(top + "/a");
  EXPECT_EQ(store.read(top + "/a/b/c"), std::nullopt);
}

TYPED_TEST_P(PlatformConformance, AWatchFiresAtOnceAndForChangesAtOrBelow) {
  auto store = this->f.host().open_store();
  auto writer = this->f.host().open_store();
  const std::string top = this->f.directory();
  store.write(top + "/w", "");
  store.watch(top + "/w", "mine");
  auto event = this->wait_event(store);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->path, top + "/w");
  EXPECT_EQ(event->token, "mine");
  EXPECT_EQ(this->wait_event(store, 50), std::nullopt);
  writer.write(top + "/w/deep/node", "1");
  event = this->wait_event(store);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->token, "mine");
  EXPECT_TRUE(event->path.starts_with(top + "/w"));
  while (this->wait_event(store, 50)) {
  }
  writer.write(top + "/wider", "1");
  EXPECT_EQ(this->wait_event(store, 50), std::nullopt);
  writer.remove(top + "/w");
  EXPECT_TRUE(this->wait_event(store));
  while (this->wait_event(store, 50)) {
  }
  store.unwatch(top + "/w", "mine");
  writer.write(top + "/w", "1");
  EXPECT_EQ(this->wait_event(store, 50), std::nullopt);
}

TYPED_TEST_P(PlatformConformance, ATransactionHappensWholeOrNotAtAll) {
  using transaction = typename TypeParam::platform_type::store_handle::transaction;
  auto store = this->f.host().open_store();
  auto other = this->f.host().open_store();
  const std::string top = this->f.directory();
  store.transact([&](transaction& t) {
    t.write(top + "/one", "1");
    t.write(top + "/two", "2");
    EXPECT_EQ(t.read(top + "/one"), "1");
    EXPECT_EQ(other.read(top + "/one"), std::nullopt);
  });
  EXPECT_EQ(other.read(top + "/one"), "1");
  EXPECT_EQ(other.read(top + "/two"), "2");
  int calls = 0;
  EXPECT_THROW(store.transact([&](transaction& t) {
    ++calls;
    t.write(top + "/one", "changed");
    throw std::runtime_error("the body gives up");
  }),
               std::runtime_error);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(store.read(top + "/one"), "1");
}

TYPED_TEST_P(PlatformConformance, AConflictRunsTheBodyAgain) {
  using transaction = typename TypeParam::platform_type::store_handle::transaction;
  auto store = this->f.host().open_store();
  auto other = this->f.host().open_store();
  const std::string node = this->f.directory() + "/count";
  store.write(node, "1");
  int calls = 0;
  store.transact([&](transaction& t) {
    const int value = std::stoi(t.read(node).value());
    if (++calls == 1) {
      other.write(node, "10");
    }
    t.write(node, std::to_string(value + 1));
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(store.read(node), "11");
}

REGISTER_TYPED_TEST_SUITE_P(PlatformConformance, MapsPagesSideBySideInTheOrderAsked, AMapFailsWhole,
                            AReadOnlyGrantIsNotMappedForWriting, UnmapsOnlyWholeMaps,
                            KeepsToTheQuota, APeerCannotEndAGrantThatIsMapped, CopiesBothWays,
                            EachCopyOperationHasItsOwnStatus, AMalformedOperationFailsTheCall,
                            CopiesOfAnyNumberOfOperationsAreOneCall,
                            AKickMakesTheHandleReadableAndMasksThePort,
                            ABoundPortWakesNobodyBeforeItIsUnmasked, NotifiesThePeer,
                            AHandleServesSeveralPorts, PortsThatAreNotBoundAreIgnored,
                            BindingToAPortThatIsNoneNamesBothEnds, NoKickIsLost, TheStoreKeepsNodes,
                            AWatchFiresAtOnceAndForChangesAtOrBelow,
                            ATransactionHappensWholeOrNotAtAll, AConflictRunsTheBodyAgain);

}  // namespace pvring::testing::conformance
