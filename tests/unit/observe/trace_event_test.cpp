// SPDX-License-Identifier: MIT
// The trace must be valid JSON with the members that Perfetto needs; checked byte for byte, as the
// format is small and stable.
#include "pvring/observe/trace_event.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "manual_clock.hpp"

namespace {

using pvring::observe::stage;
using pvring::observe::trace_event_writer;
using recorder = pvring::observe::basic_full<manual_clock, 4>::recorder;

TEST(TraceEvent, EmptyTraceIsStillATrace) {
  std::ostringstream out;
  trace_event_writer(out).finish();
  EXPECT_EQ(out.str(), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
}

TEST(TraceEvent, RequestIsABarWithABarForEachStageInIt) {
  manual_clock::nanoseconds =
      manual_clock::duration(9'007'199'254'740'993'000);  // more digits than a double has
  recorder r(32);
  r.stage(7, stage::seen);
  manual_clock::advance(1001);
  r.stage(7, stage::submitted);
  manual_clock::advance(2000);
  r.stage(7, stage::responded);
  manual_clock::advance(500);
  r.published(true);
  std::ostringstream out;
  {
    trace_event_writer writer(out);
    writer.add("xvda \"queue\" 0\n", 0, r);
  }
  EXPECT_EQ(out.str(),
            R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","name":"process_name","pid":1,"tid":1,"args":{"name":"xvda \"queue\" 0 "}},
{"ph":"M","name":"thread_name","pid":1,"tid":8,"args":{"name":"slot 7"}},
{"ph":"X","name":"request","pid":1,"tid":8,"ts":9007199254740993.000,"dur":3.001},
{"ph":"X","name":"submit","pid":1,"tid":8,"ts":9007199254740993.000,"dur":1.001},
{"ph":"X","name":"respond","pid":1,"tid":8,"ts":9007199254740994.001,"dur":2.000},
{"ph":"i","s":"t","name":"notified","pid":1,"tid":8,"ts":9007199254740996.501}
]}
)");
}

TEST(TraceEvent, QueuesAreProcessesAndSlotsAreNamedOnce) {
  recorder a(2);
  recorder b(2);
  for (int i = 0; i < 2; ++i) {
    a.stage(0, stage::seen);
    a.stage(0, stage::responded);
  }
  b.stage(1, stage::seen);
  b.stage(1, stage::responded);
  std::ostringstream out;
  trace_event_writer writer(out);
  writer.add("a", 0, a);
  writer.add("b", 1, b);
  writer.finish();
  const std::string text = out.str();
  const auto occurrences = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++n;
    }
    return n;
  };
  EXPECT_EQ(occurrences("\"slot 0\""), 1U);
  EXPECT_EQ(occurrences("\"slot 1\""), 1U);
  EXPECT_EQ(occurrences("\"name\":\"request\",\"pid\":1"), 2U);
  EXPECT_EQ(occurrences("\"name\":\"request\",\"pid\":2"), 1U);
  EXPECT_EQ(occurrences("\n]}"), 1U) << "finished once";
}

}  // namespace
