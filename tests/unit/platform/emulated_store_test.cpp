// SPDX-License-Identifier: MIT
#include <atomic>
#include <thread>

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

using transaction = emulated_store::transaction;

class EmulatedStore : public EmulatedMachine {
 public:
  // The paths of the events that wait, in order.
  static std::vector<std::string> events(emulated_store& of) {
    std::vector<std::string> paths;
    while (const auto event = of.next_event()) {
      paths.push_back(event->path);
    }
    return paths;
  }
  using paths = std::vector<std::string>;

  emulated_store store = dom0.open_store();
  emulated_store front = guest.open_store();
};

TEST_F(EmulatedStore, ReadsWhatWasWritten) {
  EXPECT_EQ(store.read("/a"), std::nullopt);
  store.write("/a/b/c", "value");
  EXPECT_EQ(store.read("/a/b/c"), "value");
  EXPECT_EQ(store.read("/a/b"), "");
  EXPECT_EQ(store.list("/a"), paths{"b"});
  EXPECT_EQ(store.list("/a/b/c"), paths{});
  EXPECT_EQ(store.list("/nothing"), paths{});
  store.write("/a/b/c", "");
  EXPECT_EQ(store.read("/a/b/c"), "");
  for (const std::size_t length : {1U, 59U, 60U, 61U, 120U, 4095U, 4096U}) {
    std::string text(length, 'x');
    text[length / 2] = '\0';
    store.write("/long", text);
    EXPECT_EQ(store.read("/long"), text);
  }
}

TEST_F(EmulatedStore, ListsInOrderOfNames) {
  for (const char* name : {"m", "z", "a", "q-1", "q"}) {
    store.write(std::string("/list/") + name, "");
  }
  EXPECT_EQ(store.list("/list"), (paths{"a", "m", "q", "q-1", "z"}));
  const auto top = store.list("/");
  EXPECT_NE(std::find(top.begin(), top.end(), "list"), top.end());
}

TEST_F(EmulatedStore, RemovesWithAllBelow) {
  store.write("/a/b/c", "1");
  store.write("/a/b/d", "2");
  store.write("/a/e", "3");
  store.remove("/a/b");
  EXPECT_EQ(store.read("/a/b/c"), std::nullopt);
  EXPECT_EQ(store.list("/a"), paths{"e"});
  EXPECT_NO_THROW(store.remove("/a/b"));
  EXPECT_NO_THROW(store.remove("/never/was"));
  expect_system_error(EINVAL, "root", [&] { store.remove("/"); });
}

TEST_F(EmulatedStore, ARelativePathIsBelowTheDomainsHome) {
  front.write("device/vbd/51712/state", "1");
  EXPECT_EQ(store.read("/local/domain/3/device/vbd/51712/state"), "1");
  EXPECT_EQ(front.read("device/vbd/51712/state"), "1");
  store.write("here", "0");
  EXPECT_EQ(store.read("/local/domain/0/here"), "0");
}

TEST_F(EmulatedStore, RefusesPathsThatXenRefuses) {
  for (const char* path : {"/a/", "//a", "/a//b", "/a b", "/a.b", "", "a/", "/\xff", "/a\n"}) {
    expect_system_error(EINVAL, path, [&] { store.write(path, ""); });
    EXPECT_THROW((void)store.read(path), std::system_error) << path;
  }
  expect_system_error(ENAMETOOLONG, "255", [&] { store.write("/" + std::string(255, 'a'), ""); });
  expect_system_error(ENAMETOOLONG, "88", [&] { store.write("/" + std::string(89, 'a'), ""); });
  expect_system_error(E2BIG, "/a", [&] { store.write("/a", std::string(4097, 'x')); });
  EXPECT_NO_THROW(store.write("/" + std::string(88, 'a'), ""));
}

TEST_F(EmulatedStore, DomainsSeeOnlyWhatTheyMay) {
  store.write("/local/domain/0/backend/vbd/3/51712/state", "2");
  expect_system_error(EACCES, "domain 3 may not read",
                      [&] { (void)front.read("/local/domain/0/backend/vbd/3/51712/state"); });
  expect_system_error(EACCES, "may not read",
                      [&] { (void)front.read("/local/domain/0/backend/nothing"); });
  expect_system_error(EACCES, "may not read", [&] { (void)front.list("/local/domain/0"); });
  store.set_permissions("/local/domain/0/backend/vbd/3/51712/state",
                        {.owner = 0, .reader = guest_id});
  EXPECT_EQ(front.read("/local/domain/0/backend/vbd/3/51712/state"), "2");
  expect_system_error(EACCES, "may not write",
                      [&] { front.write("/local/domain/0/backend/vbd/3/51712/state", "6"); });
  expect_system_error(EACCES, "may not write",
                      [&] { front.remove("/local/domain/0/backend/vbd/3/51712/state"); });
  expect_system_error(EACCES, "may not write", [&] { front.write("/new", ""); });
  expect_system_error(EACCES, "may not give it away", [&] {
    front.write("mine", "");
    front.set_permissions("mine", {.owner = 0, .reader = std::nullopt});
  });
  expect_system_error(ENOENT, "does not exist", [&] { store.set_permissions("/nothing", {}); });
}

TEST_F(EmulatedStore, ANodeBelowInheritsItsReaderAndBelongsToItsMaker) {
  front.write("device/vbd/51712", "");
  front.set_permissions("device/vbd/51712", {.owner = guest_id, .reader = 0});
  emulated driver_domain{machine, 9};
  emulated_store other = driver_domain.open_store();
  front.set_permissions("device/vbd/51712", {.owner = guest_id, .reader = 9});
  front.write("device/vbd/51712/ring-ref", "8");
  EXPECT_EQ(other.read("/local/domain/3/device/vbd/51712/ring-ref"), "8");
  expect_system_error(EACCES, "",
                      [&] { other.write("/local/domain/3/device/vbd/51712/ring-ref", "9"); });
  store.write("/local/domain/3/device/vbd/51712/made-by-toolstack", "1");
  EXPECT_NO_THROW(front.write("device/vbd/51712/made-by-toolstack", "2"));
}

TEST_F(EmulatedStore, AWatchFiresAtOnceAndForChangesAtOrBelow) {
  store.write("/w/x", "1");
  store.watch("/w", "token");
  EXPECT_TRUE(is_readable(store.fd()));
  const auto first = store.next_event();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->path, "/w");
  EXPECT_EQ(first->token, "token");
  EXPECT_FALSE(is_readable(store.fd()));
  EXPECT_EQ(store.next_event(), std::nullopt);

  store.write("/w/x", "2");
  store.write("/w", "3");
  store.write("/wx", "4");
  store.write("/v", "5");
  store.set_permissions("/w/x", {.owner = 3, .reader = std::nullopt});
  EXPECT_TRUE(is_readable(store.fd()));
  EXPECT_EQ(events(store), (paths{"/w/x", "/w"}));
  store.remove("/w/x");
  EXPECT_EQ(events(store), paths{"/w/x"});
  store.remove("/w");
  EXPECT_EQ(events(store), paths{"/w"});
  EXPECT_FALSE(is_readable(store.fd()));
}

TEST_F(EmulatedStore, AWatchOfAMissingNodeFiresWhenItComesAndWhenItsParentGoes) {
  store.watch("/later/node", "t");
  EXPECT_EQ(events(store), paths{"/later/node"});
  store.write("/later/node", "here");
  EXPECT_EQ(events(store), paths{"/later/node"});
  store.write("/later/sibling", "");
  EXPECT_EQ(events(store), paths{});
  store.remove("/later");
  EXPECT_EQ(events(store), paths{"/later/node"});
  store.remove("/later");
  EXPECT_EQ(events(store), paths{});
}

TEST_F(EmulatedStore, AGuestThatRewritesANodeCannotFlood) {
  // Case 106.
  store.watch("/local/domain/3", "t");
  events(store);
  for (int i = 0; i < 100'000; ++i) {
    front.write("data", "x");
  }
  EXPECT_EQ(events(store), paths{"/local/domain/3/data"});
  for (int i = 0; i < 500; ++i) {
    front.write("data/n" + std::to_string(i % 50), "x");
  }
  const auto merged = events(store);
  EXPECT_LE(merged.size(), detail::events_per_watch);
  EXPECT_NE(std::find(merged.begin(), merged.end(), "/local/domain/3"), merged.end())
      << "more than a few nodes merge into the one that is watched";
  EXPECT_FALSE(is_readable(store.fd()));
}

TEST_F(EmulatedStore, EventsOfARelativeWatchAreRelative) {
  front.watch("device", "t");
  EXPECT_EQ(front.next_event()->path, "device");
  front.write("device/vif/0/state", "1");
  EXPECT_EQ(front.next_event()->path, "device/vif/0/state");
  front.unwatch("device", "t");
  front.write("device/vif/0/state", "2");
  EXPECT_EQ(front.next_event(), std::nullopt);
}

TEST_F(EmulatedStore, WatchersHearOnlyOfWhatTheyMayRead) {
  front.watch("/local/domain/0/backend", "t");
  EXPECT_EQ(events(front), paths{"/local/domain/0/backend"});
  store.write("/local/domain/0/backend/secret", "1");
  EXPECT_EQ(events(front), paths{});
  store.set_permissions("/local/domain/0/backend/secret", {.owner = 0, .reader = guest_id});
  EXPECT_EQ(events(front), paths{"/local/domain/0/backend/secret"});
  store.set_permissions("/local/domain/0/backend/secret", {.owner = 0, .reader = std::nullopt});
  EXPECT_EQ(events(front), paths{"/local/domain/0/backend/secret"}) << "the last it hears of it";
  store.write("/local/domain/0/backend/secret", "2");
  EXPECT_EQ(events(front), paths{});
  store.remove("/local/domain/0/backend");
  EXPECT_EQ(events(front), paths{});
}

TEST_F(EmulatedStore, AWatchThatIsTakenBackReturnsNothing) {
  store.watch("/w", "one");
  store.watch("/w", "two");
  expect_system_error(EEXIST, "/w", [&] { store.watch("/w", "two"); });
  store.unwatch("/w", "one");
  store.unwatch("/w", "never");
  EXPECT_EQ(store.next_event()->token, "two");
  EXPECT_EQ(store.next_event(), std::nullopt);
  store.unwatch("/w", "two");
  store.write("/w", "");
  EXPECT_EQ(store.next_event(), std::nullopt);
  expect_system_error(ENOSPC, "watches", [&] {
    for (int i = 0; i < 1000; ++i) {
      store.watch("/w", std::to_string(i));
    }
  });
  expect_system_error(E2BIG, "token", [&] { store.watch("/w", std::string(96, 't')); });
}

TEST_F(EmulatedStore, ATransactionIsSeenWholeOrNotAtAll) {
  store.watch("/t", "t");
  events(store);
  store.transact([&](transaction& t) {
    t.write("/t/a", "1");
    t.write("/t/b", "2");
    EXPECT_EQ(t.read("/t/a"), "1");
    EXPECT_EQ(store.read("/t/a"), std::nullopt);
  });
  EXPECT_EQ(store.read("/t/a"), "1");
  EXPECT_EQ(store.read("/t/b"), "2");
  EXPECT_EQ(events(store), (paths{"/t/a", "/t/b"}));
}

TEST_F(EmulatedStore, ATransactionSeesItsOwnChanges) {
  store.write("/t/old/x", "1");
  store.transact([&](transaction& t) {
    t.write("/t/new/deep/er", "2");
    EXPECT_EQ(t.read("/t/new"), "");
    EXPECT_EQ(t.list("/t"), (paths{"new", "old"}));
    EXPECT_EQ(t.list("/t/new"), paths{"deep"});
    t.remove("/t/old");
    EXPECT_EQ(t.read("/t/old/x"), std::nullopt);
    EXPECT_EQ(t.list("/t"), paths{"new"});
    EXPECT_EQ(t.list("/t/old"), paths{});
    t.write("/t/old/y", "3");
    EXPECT_EQ(t.read("/t/old"), "");
    EXPECT_EQ(t.read("/t/old/x"), std::nullopt);
    EXPECT_EQ(t.list("/t/old"), paths{"y"});
    t.remove("/t/new/deep/er");
    EXPECT_EQ(t.list("/t/new/deep"), paths{});
    t.set_permissions("/t/old/y", {.owner = 3, .reader = std::nullopt});
    EXPECT_EQ(t.read("/t/none"), std::nullopt);
  });
  EXPECT_EQ(store.list("/t/old"), paths{"y"});
  EXPECT_EQ(store.list("/t/new/deep"), paths{});
  EXPECT_EQ(front.read("/t/old/y"), "3");
}

TEST_F(EmulatedStore, AConflictRunsTheBodyAgain) {
  store.write("/t", "1");
  int calls = 0;
  store.transact([&](transaction& t) {
    const int value = std::stoi(*t.read("/t"));
    if (++calls <= 2) {
      front.transact([](transaction&) {});
      emulated_store other = dom0.open_store();
      other.write("/t", std::to_string(value + 10));
    }
    t.write("/t", std::to_string(value + 1));
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(store.read("/t"), "22");
}

TEST_F(EmulatedStore, WritersOfDifferentNodesDoNotConflict) {
  store.write("/t/a", "1");
  store.write("/t/b", "1");
  int calls = 0;
  store.transact([&](transaction& t) {
    ++calls;
    t.write("/t/a", "2");
    emulated_store other = dom0.open_store();
    other.write("/t/b", "3");
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(store.read("/t/b"), "3");
}

TEST_F(EmulatedStore, AppearingAndVanishingNodesConflict) {
  for (const bool appear : {true, false}) {
    store.remove("/t");
    store.write("/t/else", "");
    if (!appear) {
      store.write("/t/node", "");
    }
    int calls = 0;
    store.transact([&](transaction& t) {
      const bool there = t.read("/t/node").has_value();
      if (++calls == 1) {
        emulated_store other = dom0.open_store();
        appear ? other.write("/t/node", "") : other.remove("/t/node");
      }
      t.write("/t/there", there ? "1" : "0");
    });
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(store.read("/t/there"), appear ? "1" : "0");
  }
}

TEST_F(EmulatedStore, ABodyThatThrowsAbortsAndIsNotRepeated) {
  int calls = 0;
  EXPECT_THROW(store.transact([&](transaction& t) {
    ++calls;
    t.write("/t", "1");
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(store.transact([&](transaction& t) {
    t.write("/t", "1");
    throw 1;
  }),
               int);
  EXPECT_EQ(store.read("/t"), std::nullopt);
}

TEST_F(EmulatedStore, ABodyThatStumblesOverAnotherWritersChangeIsRepeated) {
  store.write("/t/a", "1");
  store.write("/t/b", "1");
  int calls = 0;
  store.transact([&](transaction& t) {
    const auto a = t.read("/t/a");
    if (++calls == 1) {
      emulated_store other = dom0.open_store();
      other.write("/t/a", "2");
      other.write("/t/b", "2");
    }
    if (a != t.read("/t/b")) {
      throw std::runtime_error("the two are always equal");
    }
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(EmulatedStore, ConflictsWithoutEndAreAnError) {
  fault_plan plan;
  store.set_faults(&plan);
  plan.conflict(2);
  int calls = 0;
  store.transact([&](transaction& t) {
    ++calls;
    t.write("/t", "1");
  });
  EXPECT_EQ(calls, 3);
  plan.conflict(fault_plan::for_ever);
  expect_system_error(EAGAIN, "conflicts", [&] { store.transact([](transaction&) {}); });
}

TEST_F(EmulatedStore, ATransactionThatMayNotChangesNothing) {
  expect_system_error(EACCES, "may not write", [&] {
    front.transact([](transaction& t) {
      t.write("mine", "1");
      t.write("/local/domain/0/yours", "1");
    });
  });
  EXPECT_EQ(front.read("mine"), std::nullopt);
}

TEST_F(EmulatedStore, AFullStoreRefusesAndRecovers) {
  const auto fill = [&](emulated_store& with, const std::string& below, std::size_t bytes) {
    int made = 0;
    try {
      for (; made < 100'000; ++made) {
        with.write(below + std::to_string(made), std::string(bytes, 'x'));
      }
    } catch (const std::system_error& e) {
      EXPECT_EQ(e.code().value(), ENOSPC) << e.what();
    }
    return made;
  };
  // A guest is stopped by its quota, in nodes and in bytes, and others can still write.
  EXPECT_EQ(fill(front, "n/", 1), 1000 - 2) << "its home and the directory count";
  store.remove("/local/domain/3/n");
  EXPECT_LT(fill(front, "n/", 4096), 100);
  EXPECT_NO_THROW(store.write("/still/works", std::string(4096, 'x')));
  store.remove("/local/domain/3/n");

  for (int round = 0; round < 3; ++round) {
    const int nodes = fill(store, "/fill/", 0);
    EXPECT_GT(nodes, 2000);
    EXPECT_EQ(store.read("/fill/" + std::to_string(nodes)), std::nullopt) << "refused whole";
    expect_system_error(ENOSPC, "full", [&] {
      store.transact([](transaction& t) {
        t.write("/local", "changed");
        t.write("/one/more", "");
      });
    });
    EXPECT_EQ(store.read("/local"), "");
    store.remove("/fill");
    EXPECT_GT(fill(store, "/fill/", 4096), 20);
    store.remove("/fill");
  }
}

TEST_F(EmulatedStore, ManyWritersCountTogether) {
  constexpr int each = 200;
  store.write("/count", "0");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      emulated_store mine = dom0.open_store();
      for (int n = 0; n < each; ++n) {
        mine.transact([](transaction& t) {
          t.write("/count", std::to_string(std::stoi(*t.read("/count")) + 1));
        });
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_EQ(store.read("/count"), std::to_string(4 * each));
}

TEST_F(EmulatedStore, AWatcherSleepsUntilAnotherThreadWrites) {
  store.watch("/w", "t");
  events(store);
  std::thread writer([&] {
    emulated_store other = dom0.open_store();
    for (int i = 1; i <= 2000; ++i) {
      other.write("/w", std::to_string(i));
    }
  });
  bool lost = false;
  while (store.read("/w") != "2000" && !lost) {
    pollfd descriptor{store.fd(), POLLIN, 0};
    lost = ::poll(&descriptor, 1, 10'000) != 1;
    events(store);
  }
  writer.join();
  EXPECT_FALSE(lost);
}

TEST_F(EmulatedStore, IntroducingAndReleasingDomainsIsAnnounced) {
  store.watch("@introduceDomain", "new");
  store.watch("@releaseDomain", "gone");
  events(store);
  emulated_guest other = machine.create_domain(8);
  EXPECT_EQ(store.next_event()->token, "new");
  other.vanish();
  EXPECT_EQ(store.next_event()->token, "gone");
  EXPECT_EQ(store.next_event(), std::nullopt);
}

TEST_F(EmulatedStore, ConnectionsAreGivenBack) {
  for (int i = 0; i < 100; ++i) {
    emulated_store one = dom0.open_store();
    one.watch("/w", "t");
    emulated_store moved = std::move(one);
    EXPECT_EQ(moved.next_event()->path, "/w");
    moved = dom0.open_store();
    EXPECT_EQ(moved.next_event(), std::nullopt);
  }
  std::vector<emulated_store> all;
  expect_system_error(ENOSPC, "store connections", [&] {
    for (int i = 0; i < 100; ++i) {
      all.push_back(dom0.open_store());
    }
  });
}

}  // namespace
}  // namespace pvring::platform::test
