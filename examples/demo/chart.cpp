// SPDX-License-Identifier: MIT
// The chart: a gnuplot script with the numbers in it, and running it.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "columns.hpp"
#include "report.hpp"
#include "tool.hpp"

namespace demo {
namespace {

// One small chart: a bar for each strategy, with its number on top.
std::string panel(const column& of, const std::vector<outcome>& outcomes) {
  std::string text = fmt::format("set title '{}'\n$data << EOD\n", of.chart);
  int row = 0;
  for (const outcome& one : outcomes) {
    for (const phase& p : one.phases) {
      if (p.name == mixed_phase) {
        const double value = of.value(p);
        text +=
            fmt::format("{0} \"{1}\" {2:.4f} {2:.{3}f}\n", row, one.strategy, value, of.decimals);
        ++row;
      }
    }
  }
  return text +
         fmt::format(
             "EOD\nplot [-0.6:{}-0.4] $data using 1:3:($1+1):xticlabels(2) with boxes linecolor "
             "variable, $data using 1:3:4 with labels offset 0,0.7\n",
             row);
}

}  // namespace

void write_chart(const std::string& path, const std::vector<outcome>& outcomes) {
  const std::string gnuplot = find_tool("gnuplot", "gnuplot-nox");
  const std::string script = path + ".gnuplot";
  {
    std::ofstream file(script);
    file << "set terminal svg size 1320,760 noenhanced font 'sans,12' background rgb 'white'\n"
         << "set output '" << path << "'\n"
         << "set multiplot layout 2,3 title \"pvring demo, mixed load\\n"
         << note << "\" font 'sans,12'\n"
         << "unset key\nset style fill solid 0.8 noborder\nset boxwidth 0.6\nset yrange [0:*]\nset "
            "grid ytics\n"
         << "set xtics font 'sans,9' nomirror\nset offsets 0,0,graph 0.12,0\n";
    for (const column& c : columns()) {
      file << (c.chart[0] != '\0' ? panel(c, outcomes) : "");
    }
    file << "unset multiplot\n";
    if (!file.flush()) {
      throw std::runtime_error("cannot write " + script);
    }
  }
  const tool_result drawn = run_tool(gnuplot, {script});
  std::error_code ignored;
  std::filesystem::remove(script, ignored);
  if (drawn.status != 0) {
    throw std::runtime_error("gnuplot failed: " + drawn.output);
  }
}

}  // namespace demo
