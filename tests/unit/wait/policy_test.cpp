// SPDX-License-Identifier: MIT
// Wait policies as values: what is read, what is refused and how the refusal reads; and the window
// that an adaptive policy keeps for each source.

#include "pvring/wait/policy.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

namespace {

using namespace std::chrono_literals;
namespace wait = pvring::wait;

std::string refusal(std::string_view text) {
  try {
    (void)wait::policy::parse(text);
  } catch (const pvring::configuration_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(WaitPolicy, IsAdaptiveUnlessSaidOtherwise) {
  EXPECT_EQ(wait::policy().kind(), wait::policy_kind::adaptive);
  EXPECT_EQ(to_string(wait::policy()), to_string(wait::policy(wait::adaptive{})));
}

TEST(WaitPolicy, ReadsTheNames) {
  EXPECT_EQ(wait::policy::parse("event").kind(), wait::policy_kind::event);
  EXPECT_EQ(wait::policy::parse("busy").kind(), wait::policy_kind::busy);
  EXPECT_EQ(to_string(wait::policy::parse("adaptive")), to_string(wait::policy()));
}

TEST(WaitPolicy, ReadsOptionsInAnyOrder) {
  const wait::policy p =
      wait::policy::parse("adaptive:max=3ms,start=500ns,idle=2s,shrink=4,grow=3");
  EXPECT_EQ(p.kind(), wait::policy_kind::adaptive);
  EXPECT_EQ(p.options().start, 500ns);
  EXPECT_EQ(p.options().max, 3ms);
  EXPECT_EQ(p.options().idle, 2s);
  EXPECT_EQ(p.options().grow, 3U);
  EXPECT_EQ(p.options().shrink, 4U);
}

TEST(WaitPolicy, IsReadBackAsItWasWritten) {
  for (const std::string_view text :
       {"event", "busy", "adaptive:start=20us,max=80us", "adaptive:grow=5,idle=1s"}) {
    const std::string written = to_string(wait::policy::parse(text));
    EXPECT_EQ(to_string(wait::policy::parse(written)), written);
  }
}

TEST(WaitPolicy, NamesTheOptionAndTheValueThatItRefuses) {
  EXPECT_EQ(refusal("poll"), "wait policy: 'poll' is none of event, busy, adaptive");
  EXPECT_EQ(refusal(""), "wait policy: '' is none of event, busy, adaptive");
  EXPECT_EQ(refusal("busy:max=1us"), "wait policy: 'busy' takes no options, but has 'max=1us'");
  EXPECT_EQ(refusal("adaptive:"), "wait policy: '' is not of the form option=value");
  EXPECT_EQ(refusal("adaptive:max"), "wait policy: 'max' is not of the form option=value");
  EXPECT_EQ(refusal("adaptive:min=1us"),
            "wait policy: 'min' (with value '1us') is none of the options start, grow, shrink, "
            "max, idle");
  EXPECT_EQ(refusal("adaptive:start=20"),
            "wait policy: start='20' is not a whole number followed by ns, us, ms or s");
  EXPECT_EQ(refusal("adaptive:start=-1us"),
            "wait policy: start='-1us' is not a whole number followed by ns, us, ms or s");
  EXPECT_EQ(refusal("adaptive:start=99999999999s"),
            "wait policy: start='99999999999s' is not a whole number followed by ns, us, ms or s");
  EXPECT_EQ(refusal("adaptive:start="),
            "wait policy: start='' is not a whole number followed by ns, us, ms or s");
  EXPECT_EQ(refusal("adaptive:start=20us,"), "wait policy: '' is not of the form option=value");
  EXPECT_EQ(refusal("adaptive:grow=2.5"), "wait policy: grow='2.5' is not a whole number");
}

TEST(WaitPolicy, RefusesValuesThatDoNotFitEachOther) {
  EXPECT_EQ(refusal("adaptive:start=0us"), "wait policy: start=0ns: must be more than 0");
  EXPECT_EQ(refusal("adaptive:max=10us"),
            "wait policy: max=10000ns: must be at least start=20000ns");
  EXPECT_EQ(refusal("adaptive:idle=100us"),
            "wait policy: idle=100000ns: must be at least max=200000ns");
  EXPECT_EQ(
      refusal("adaptive:max=2s,idle=3s"),
      "wait policy: max=2000000000ns: must be at most 1s; the policy that never sleeps is busy");
  EXPECT_EQ(refusal("adaptive:grow=1"), "wait policy: grow=1: must be a factor from 2 to 1024");
  EXPECT_EQ(refusal("adaptive:shrink=4000"),
            "wait policy: shrink=4000: must be a divisor from 2 to 1024");
  EXPECT_THROW(wait::policy(wait::adaptive{.start = -1ns}), pvring::configuration_error);
}

// start 20us, twice and half, max 200us, idle 10ms
const wait::adaptive options{};

wait::window grown_to(std::chrono::nanoseconds length) {
  wait::window w;
  while (w.length() < length) {
    w.brought_work(options.max, options);
  }
  return w;
}

TEST(Window, IsClosedUntilWorkComesSoon) {
  wait::window w;
  EXPECT_FALSE(w.open(0ns));
  w.brought_work(5ms, options);
  EXPECT_EQ(w.length(), 0ns);
  w.brought_work(200us, options);
  EXPECT_EQ(w.length(), options.start);
  EXPECT_TRUE(w.open(options.start - 1ns));
  EXPECT_FALSE(w.open(options.start));
}

TEST(Window, GrowsWhilePollingPaysWithLittleToSpareUpToMax) {
  wait::window w = grown_to(20us);
  w.brought_work(5us, options);
  EXPECT_EQ(w.length(), 20us);  // pays, and there is time to spare
  w.brought_work(10us, options);
  EXPECT_EQ(w.length(), 40us);
  w.brought_work(60us, options);  // missed, but a longer window would have paid
  EXPECT_EQ(w.length(), 80us);
  for (int i = 0; i < 5; ++i) {
    w.brought_work(200us, options);
  }
  EXPECT_EQ(w.length(), 200us);
}

TEST(Window, GivesUpAfterAFewWaitsThatAreTooLong) {
  wait::window w = grown_to(200us);
  int waits = 0;
  for (; w.length() != 0ns; ++waits) {
    w.brought_work(1ms, options);
  }
  EXPECT_EQ(waits, 4);  // 100, 50, 25, closed
}

TEST(Window, ClosesAtOnceAfterAnIdleTime) {
  wait::window w = grown_to(200us);
  w.brought_work(10ms, options);
  EXPECT_EQ(w.length(), 0ns);
}

TEST(Window, ShrinksWhenItRanOutForAnotherSourcesWork) {
  wait::window w = grown_to(40us);
  w.brought_nothing(39us, options);
  EXPECT_EQ(w.length(), 40us);  // it had not run out
  w.brought_nothing(40us, options);
  EXPECT_EQ(w.length(), 20us);
  w.brought_nothing(50us, options);
  EXPECT_EQ(w.length(), 0ns);
  w.brought_nothing(50us, options);
  EXPECT_EQ(w.length(), 0ns);
}

}  // namespace
