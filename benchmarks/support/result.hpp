// SPDX-License-Identifier: MIT
// What a measurement has to say: figures with verdicts, the values behind them, charts and notes.
// Measuring code fills it; report.hpp prints and keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "statistics.hpp"

namespace bench {

enum class verdict : std::uint8_t {
  met,
  missed,
  reported,  ///< measured, no target
  unjudged,  ///< a smoke run
  skipped,   ///< cannot be measured here; the note says why
  wrong,     ///< a result is not what it has to be
};

[[nodiscard]] constexpr std::string_view to_string(verdict which) noexcept {
  constexpr std::string_view names[] = {"met",        "MISSED",  "reported",
                                        "not judged", "skipped", "WRONG"};
  return names[static_cast<std::size_t>(which)];
}

/// A line of the table.
struct figure {
  std::string what;
  std::string target;
  double value = 0;
  double spread = 0;
  std::string unit;  ///< "x" for ratios
  bench::verdict verdict = verdict::reported;
};

/// Values of one thing, one per repetition.
struct series {
  std::string name;
  std::string unit;
  std::vector<double> values;
};

/// A line, or the bars of one colour.
struct plot {
  std::string name;
  std::vector<double> x;  ///< of lines
  std::vector<double> y;
  std::vector<double> spread;  ///< empty, or one per y
};

struct chart {
  enum class kind : std::uint8_t { bars, lines };
  std::string name;  ///< of the file
  std::string title;
  std::string x_label;
  std::string y_label;
  chart::kind style = kind::bars;
  bool log_x = false;
  bool log_y = false;
  std::vector<std::string> categories;  ///< of bars, along x
  std::vector<plot> plots;
};

/// A small table of its own, below the one of all targets.
struct table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// One target's outcome.
class result {
 public:
  result(std::string name, std::string title, bool judged)
      : name_(std::move(name)), title_(std::move(title)), judged_(judged) {}

  /// How it was measured, in a sentence or two; kept with the values.
  std::string method;
  std::vector<figure> figures;
  std::vector<series> values;
  std::vector<bench::chart> charts;
  std::vector<bench::table> tables;
  std::vector<std::string> notes;
  std::vector<std::string> errors;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& title() const noexcept { return title_; }

  void at_most(std::string what, const summary& measured, double limit, std::string unit = "x") {
    judge(std::move(what), "<= ", measured, limit, measured.middle <= limit, std::move(unit));
  }
  void at_least(std::string what, const summary& measured, double limit, std::string unit = "x") {
    judge(std::move(what), ">= ", measured, limit, measured.middle >= limit, std::move(unit));
  }
  void report(std::string what, const summary& measured, std::string unit = "x") {
    figures.push_back({std::move(what), "-", measured.middle, measured.spread, std::move(unit),
                       verdict::reported});
  }
  void skip(std::string what, std::string target, const std::string& why) {
    notes.push_back(what + " is skipped: " + why);
    figures.push_back({std::move(what), std::move(target), 0, 0, "", verdict::skipped});
  }

  /// A result that has to be so, whatever the speed. Returns `holds`.
  bool check(bool holds, const std::string& what) {
    if (!holds) {
      errors.push_back(what);
    }
    return holds;
  }
  template <class A, class B>
  bool check_equal(const A& got, const B& expected, const std::string& what) {
    return check(got == expected,
                 what + ": " + std::to_string(got) + ", expected " + std::to_string(expected));
  }

  void keep(std::string what, std::string unit, std::vector<double> measured) {
    values.push_back({std::move(what), std::move(unit), std::move(measured)});
  }

 private:
  void judge(std::string what, std::string_view relation, const summary& measured, double limit,
             bool met, std::string unit) {
    std::string number = std::to_string(limit);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') {
      number.pop_back();
    }
    const verdict outcome = !judged_ ? verdict::unjudged : met ? verdict::met : verdict::missed;
    std::string target = std::string(relation) + number + (unit.empty() ? "" : " " + unit);
    figures.push_back({std::move(what), std::move(target), measured.middle, measured.spread,
                       std::move(unit), outcome});
  }

  std::string name_;
  std::string title_;
  bool judged_;
};

/// Bars of medians with their spread, from the series of a result whose unit is `unit`.
[[nodiscard]] inline bench::chart bars_of(const result& from, std::string_view unit,
                                          std::string name, std::string title) {
  bench::chart out{.name = std::move(name),
                   .title = std::move(title),
                   .x_label = "",
                   .y_label = std::string(unit),
                   .categories = {},
                   .plots = {}};
  plot bars{.name = "median, with median absolute deviation", .x = {}, .y = {}, .spread = {}};
  for (const series& s : from.values) {
    if (s.unit == unit) {
      const summary of = summarize(s.values);
      out.categories.push_back(s.name);
      bars.y.push_back(of.middle);
      bars.spread.push_back(of.spread);
    }
  }
  out.plots.push_back(std::move(bars));
  return out;
}

}  // namespace bench
