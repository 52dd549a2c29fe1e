// SPDX-License-Identifier: MIT
#include "pvring/ring/journal.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string_view>
#include <vector>

namespace pvring::ring {
namespace {

struct request {
  std::uint64_t id;
  std::uint64_t words[3];
  bool operator==(const request&) const = default;
};

using shared = shared_journal::bind<request>;
using none = no_journal::bind<request>;
static_assert(journal<shared, request> && journal<none, request>);
static_assert(journal_policy<shared_journal, request> && journal_policy<no_journal, request>);
static_assert(!journal_policy<int, request>);
static_assert(none::bytes(32) == 0 && std::is_empty_v<none>, "what is not kept costs nothing");

constexpr std::size_t slots = 8;

request numbered(std::uint64_t id) { return {id, {id * 3, id * 5, ~id}}; }

std::span<const std::byte> terms(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Journal : testing::Test {
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(shared::bytes(slots) / 8 + 1);
  std::span<std::byte> bytes = std::as_writable_bytes(std::span(memory));
  shared kept{bytes, slots};

  // What a successor would find.
  [[nodiscard]] journal_finding found(std::string_view with = "terms") {
    shared next(bytes, slots);
    return next.open(terms(with));
  }
  [[nodiscard]] std::vector<request> unanswered() {
    shared next(bytes, slots);
    EXPECT_EQ(next.open(terms("terms")), journal_finding::usable);
    std::vector<request> out;
    for (const std::uint32_t place : next.outstanding()) {
      out.push_back(next.request(place));
    }
    return out;
  }
};

TEST_F(Journal, IsAbsentUntilItWasBegun) {
  EXPECT_EQ(found(), journal_finding::absent);
  kept.begin(terms("terms"), 0);
  EXPECT_EQ(found(), journal_finding::usable);
  EXPECT_TRUE(unanswered().empty());
}

TEST_F(Journal, OfAnotherAgreementIsForeign) {
  kept.begin(terms("terms"), 0);
  EXPECT_EQ(found("term"), journal_finding::foreign);
  EXPECT_EQ(found("terms2"), journal_finding::foreign);
  EXPECT_EQ(found("Terms"), journal_finding::foreign);
  shared larger(bytes.first(shared::bytes(slots)), slots / 2);
  EXPECT_EQ(larger.open(terms("terms")), journal_finding::foreign);
}

TEST_F(Journal, KnowsWhatWasTakenAndNotAnsweredInRingOrder) {
  kept.begin(terms("terms"), 0);
  kept.record(5, 0, numbered(10));
  kept.record(2, 1, numbered(11));
  kept.record(7, 2, numbered(12));
  EXPECT_TRUE(unanswered().empty()) << "not committed: the ring still has them";
  kept.commit(3);
  EXPECT_EQ(unanswered(), (std::vector{numbered(10), numbered(11), numbered(12)}));
  kept.answered(2, 0);
  EXPECT_EQ(unanswered().size(), 3U) << "nobody has seen that answer";
  kept.publish(1);
  EXPECT_EQ(unanswered(), (std::vector{numbered(10), numbered(12)}));
}

TEST_F(Journal, GoesOnAcrossTheEndOfTheIndexRange) {
  const std::uint32_t start = 0xffff'fffe;
  kept.begin(terms("terms"), start);
  for (std::uint32_t i = 0; i < 5; ++i) {
    kept.record(i, start + i, numbered(i));
  }
  kept.commit(start + 5);
  for (std::uint32_t i = 0; i < 4; ++i) {
    kept.answered(3 - i, start + i);
  }
  kept.publish(start + 4);
  EXPECT_EQ(unanswered(), std::vector{numbered(4)});
  shared next(bytes, slots);
  ASSERT_EQ(next.open(terms("terms")), journal_finding::usable);
  EXPECT_EQ(next.where().req_cons, 3U);
  EXPECT_EQ(next.where().rsp_prod, 2U);
}

TEST_F(Journal, RemembersAFailureForGood) {
  kept.begin(terms("terms"), 0);
  kept.fail();
  shared next(bytes, slots);
  ASSERT_EQ(next.open(terms("terms")), journal_finding::usable);
  EXPECT_TRUE(next.failed());
  kept.begin(terms("terms"), 0);
  EXPECT_FALSE(next.failed());
}

TEST_F(Journal, SaysWhoseItIsToWhoeverLooks) {
  EXPECT_FALSE(shared::look_at(bytes));
  kept.begin(terms("terms"), 0);
  auto left = shared::look_at(bytes);
  ASSERT_TRUE(left);
  EXPECT_TRUE(std::ranges::equal(left->agreement, terms("terms")));
  EXPECT_FALSE(left->failed);
  kept.fail();
  left = shared::look_at(bytes);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->failed);
  memory[6] = shared::agreement_bytes + 1;  // the agreement's length
  EXPECT_FALSE(shared::look_at(bytes));
}

TEST_F(Journal, OfASuccessorIsOneForTheNext) {
  kept.begin(terms("terms"), 40);
  kept.record(0, 40, numbered(1));
  kept.record(1, 41, numbered(2));
  kept.commit(42);
  kept.answered(1, 40);
  kept.publish(41);
  shared second(bytes, slots);
  ASSERT_EQ(second.open(terms("terms")), journal_finding::usable);
  second.record(1, 42, numbered(3));
  second.commit(43);
  EXPECT_EQ(unanswered(), (std::vector{numbered(1), numbered(3)}));
  second.answered(0, 41);
  second.answered(1, 42);
  second.publish(43);
  EXPECT_TRUE(unanswered().empty());
}

TEST_F(Journal, OfASuccessorDoesNotTakeAnUnseenAnswerOfItsPredecessorForItsOwn) {
  kept.begin(terms("terms"), 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    kept.record(i, i, numbered(i));
  }
  kept.commit(3);
  kept.answered(1, 0);  // and killed before it was published
  shared second(bytes, slots);
  ASSERT_EQ(second.open(terms("terms")), journal_finding::usable);
  second.resume();
  second.answered(2, 0);
  second.publish(1);
  EXPECT_EQ(unanswered(), (std::vector{numbered(0), numbered(1)}));
}

// Whatever the bytes are, looking at them is safe, and a journal that is called usable has as many
// requests as its indices say, each in a place of its own.
TEST_F(Journal, OfAnyBytesIsUsableOnlyWhenItsNumbersFit) {
  std::mt19937_64 random(3);
  std::size_t usable = 0;
  for (int round = 0; round < 20'000; ++round) {
    kept.begin(terms("terms"), 0);
    for (std::uint32_t i = 0; i < 6; ++i) {
      kept.record(i, i, numbered(i));
    }
    kept.commit(6);
    kept.answered(3, 0);
    kept.answered(0, 1);
    kept.publish(2);
    for (std::uint64_t i = 0; i < 1 + random() % 3; ++i) {
      const std::uint64_t value =
          random() % 2 != 0 ? random() : (std::uint64_t{1} << 32U) + random() % 10;
      memory[random() % memory.size()] = value;
    }
    shared next(bytes, slots);
    if (next.open(terms("terms")) == journal_finding::usable) {
      ++usable;
      ASSERT_EQ(next.outstanding().size(), next.where().req_cons - next.where().rsp_prod);
      std::vector<bool> seen(slots);
      for (const std::uint32_t place : next.outstanding()) {
        ASSERT_LT(place, slots);
        ASSERT_FALSE(seen[place]);
        seen[place] = true;
      }
    }
  }
  EXPECT_NE(usable, 0U);
  EXPECT_NE(usable, 20'000U);
}

// --- killed at any instruction -------------------------------------------------------------------

// One step of a backend's life.
struct action {
  enum class kind : std::uint8_t { record, commit, answered, publish } what;
  std::uint32_t place;
  std::uint32_t index;

  void perform(shared& kept) const noexcept {
    switch (what) {
      case kind::record:
        kept.record(place, index, numbered(index));
        break;
      case kind::commit:
        kept.commit(index);
        break;
      case kind::answered:
        kept.answered(place, index);
        break;
      case kind::publish:
        kept.publish(index);
        break;
    }
  }
};

// What is unanswered, by ring index.
using unanswered_requests = std::map<std::uint32_t, request>;

// Passes of a backend: each takes some requests, answers some in any order, and publishes.
struct life {
  static constexpr std::uint32_t start = 0xffff'fff0;
  std::vector<action> actions;
  std::vector<unanswered_requests> after{{}};  // the first i actions

  life() {
    std::mt19937 random(11);
    std::vector<std::uint32_t> free{0, 1, 2, 3, 4, 5, 6, 7};
    static_assert(slots == 8);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> busy;  // place, index
    std::uint32_t taken = start;
    std::uint32_t answered = start;
    unanswered_requests now;
    const auto add = [&](action next) {
      actions.push_back(next);
      after.push_back(now);
    };
    for (int pass = 0; pass < 20; ++pass) {
      for (std::size_t i = std::min<std::size_t>(random() % 4, free.size()); i != 0; --i) {
        const std::uint32_t place = free[random() % free.size()];
        std::erase(free, place);
        busy.emplace_back(place, taken);
        add({action::kind::record, place, taken++});
      }
      for (const auto& [place, index] : busy) {
        now[index] = numbered(index);
      }
      add({action::kind::commit, 0, taken});
      std::vector<std::pair<std::uint32_t, std::uint32_t>> done;
      for (std::size_t i = random() % (busy.size() + 1); i != 0; --i) {
        const auto which = busy.begin() + static_cast<std::ptrdiff_t>(random() % busy.size());
        add({action::kind::answered, which->first, answered++});
        done.push_back(*which);
        busy.erase(which);
      }
      for (const auto& [place, index] : done) {
        now.erase(index);
        free.push_back(place);
      }
      add({action::kind::publish, 0, answered});
    }
  }
};

TEST_F(Journal, IsRightWhateverInstructionIsTheLast) {
  const life planned;
  const std::size_t length = shared::bytes(slots) + sizeof(std::uint64_t);
  void* const mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span<std::byte> memory_of_child(static_cast<std::byte*>(mapped), shared::bytes(slots));
  auto* const steps =
      reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(mapped) + shared::bytes(slots));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
      ::_exit(77);
    }
    (void)::raise(SIGSTOP);
    shared own(memory_of_child, slots);
    own.begin(terms("terms"), life::start);
    std::atomic_ref(*steps).fetch_add(1, std::memory_order_seq_cst);
    for (const action& next : planned.actions) {
      next.perform(own);
      std::atomic_ref(*steps).fetch_add(1, std::memory_order_seq_cst);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << "a child could not be traced: " << status;

  std::vector<std::byte> before;
  std::vector<std::uint64_t> copy(memory.size());
  std::uint64_t instructions = 0;
  std::uint64_t states = 0;
  bool right = true;
  while (right) {
    ASSERT_EQ(::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0) << errno;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) {
      break;
    }
    ++instructions;
    // Only where something changed is there anything to look at.
    if (before.size() == length && std::memcmp(before.data(), mapped, length) == 0) {
      continue;
    }
    before.assign(static_cast<std::byte*>(mapped), static_cast<std::byte*>(mapped) + length);
    ++states;
    const std::uint64_t done = *steps;
    std::memcpy(copy.data(), mapped, memory_of_child.size());
    shared next(std::as_writable_bytes(std::span(copy)), slots);
    const journal_finding found = next.open(terms("terms"));
    if (done == 0) {
      right = found == journal_finding::absent || found == journal_finding::usable;
      continue;
    }
    unanswered_requests now;
    if (found == journal_finding::usable) {
      for (const std::uint32_t place : next.outstanding()) {
        const request r = next.request(place);
        now[static_cast<std::uint32_t>(r.id)] = r;
      }
    }
    // Before an action is counted, both what was and what is to be are right.
    right = found == journal_finding::usable &&
            (now == planned.after[done - 1] ||
             (done < planned.after.size() && now == planned.after[done]));
    EXPECT_TRUE(right) << "after step " << done << ", instruction " << instructions << ": "
                       << to_string(found) << ", " << now.size() << " unanswered";
  }
  if (WIFSTOPPED(status)) {
    (void)::kill(child, SIGKILL);
    (void)::waitpid(child, &status, 0);
  } else {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(*steps, planned.after.size());
    EXPECT_GT(states, planned.after.size() * 2);
  }
  (void)::munmap(mapped, length);
}

}  // namespace
}  // namespace pvring::ring
