// SPDX-License-Identifier: MIT
// Tables on stdout, values in JSON, charts through gnuplot: the one place that knows how results
// look.
#include "report.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "command.hpp"

namespace bench {
namespace {

std::string formatted(double value) {
  char text[32];
  if (value == std::floor(value) && std::abs(value) < 1e9) {
    (void)std::snprintf(text, sizeof text, "%.0f", value);
  } else if (std::abs(value) >= 1000) {
    (void)std::snprintf(text, sizeof text, "%.0f", value);
  } else if (std::abs(value) >= 100) {
    (void)std::snprintf(text, sizeof text, "%.1f", value);
  } else {
    (void)std::snprintf(text, sizeof text, std::abs(value) >= 0.1 ? "%.2f" : "%.4f", value);
  }
  return text;
}

std::string with_unit(double value, const std::string& unit) {
  return formatted(value) + (unit.empty() ? "" : " " + unit);
}

void print_table(const std::vector<std::string>& columns,
                 const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& column : columns) {
    widths.push_back(column.size());
  }
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
      out += cells[i];
      if (i + 1 != cells.size()) {
        out.append(widths[i] - cells[i].size() + 2, ' ');
      }
    }
    std::printf("%s\n", out.c_str());
  };
  line(columns);
  std::size_t total = 0;
  for (const std::size_t width : widths) {
    total += width + 2;
  }
  std::printf("%s\n", std::string(total - 2, '-').c_str());
  for (const auto& row : rows) {
    line(row);
  }
}

std::vector<std::string> cells(const std::string& name, const figure& f) {
  const bool measured = f.verdict != verdict::skipped;
  return {name,
          f.what,
          f.target,
          measured ? with_unit(f.value, f.unit) : "-",
          measured && f.spread != 0 ? "+-" + formatted(f.spread) : "-",
          std::string(to_string(f.verdict))};
}

// ---- charts
// -----------------------------------------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::string script_of(const chart& from, const std::string& file) {
  std::string s;
  s += "set encoding utf8\n";
  s += "set terminal svg size 960,560 dynamic background rgb 'white' font 'sans-serif,13' "
       "noenhanced\n";
  s += "set output " + quoted(file) + "\n";
  s += "set title " + quoted(from.title) + "\n";
  s += "set xlabel " +
       quoted(from.x_label.empty() ? std::string(caveat)
                                   : from.x_label + "    (" + std::string(caveat) + ")") +
       "\n";
  s += "set ylabel " + quoted(from.y_label) + "\n";
  s += "set grid ytics lc rgb '#dddddd'\nset border 3\nset tics nomirror\n";
  s += from.log_x ? "set logscale x 2\n" : "";
  s += from.log_y ? "set logscale y 10\n" : "set yrange [0:*]\n";
  const bool bars = from.style == chart::kind::bars;
  for (std::size_t p = 0; p < from.plots.size(); ++p) {
    s += "$p" + std::to_string(p) + " << END\n";
    const plot& of = from.plots[p];
    for (std::size_t i = 0; i < of.y.size(); ++i) {
      const double spread = i < of.spread.size() ? of.spread[i] : 0;
      s += (bars ? quoted(from.categories.at(i)) : std::to_string(of.x.at(i))) + " " +
           std::to_string(of.y[i]) + " " + std::to_string(spread) + "\n";
    }
    s += "END\n";
  }
  static constexpr const char* colours[] = {"#3b6ea8", "#c8642d", "#4f9a54",
                                            "#8c5aa8", "#8a8a8a", "#b8a02a"};
  if (bars) {
    s += "set style data histogram\nset style histogram errorbars gap 2 lw 1\nset style fill solid "
         "0.9\nset boxwidth 0.8\n";
    s += "set xtics rotate by -18 left\nset bmargin 7\nset rmargin 12\nset key top left\n";
  } else {
    s += "set key outside right top\n";
  }
  s += "plot ";
  for (std::size_t p = 0; p < from.plots.size(); ++p) {
    const std::string source = (p != 0 ? ", $p" : "$p") + std::to_string(p);
    const std::string title = " title " + quoted(from.plots[p].name);
    const std::string colour = " lc rgb '" + std::string(colours[p % std::size(colours)]) + "'";
    s += source + (bars ? " using 2:3:xtic(1)" + title + colour
                        : " using 1:2:3 with yerrorlines" + colour + " pt 7 ps 0.5 lw 1.5" + title);
  }
  return s + "\n";
}

// ---- JSON
// -------------------------------------------------------------------------------------------------------------

using json = nlohmann::json;

json about_machine() {
  json out;
  utsname name{};
  if (::uname(&name) == 0) {
    out["kernel"] = name.release;
    out["architecture"] = name.machine;
  }
  out["cpus"] = std::thread::hardware_concurrency();
  std::ifstream load("/proc/loadavg");
  double one = 0;
  if (load >> one) {
    out["load"] = one;  // how much else ran
  }
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    if (line.starts_with("model name")) {
      out["cpu"] = line.substr(line.find(':') + 2);
      break;
    }
  }
  return out;
}

json to_json(const result& from) {
  json out;
  out["name"] = from.name();
  out["title"] = from.title();
  out["method"] = from.method;
  for (const figure& f : from.figures) {
    json entry{{"what", f.what}, {"target", f.target}, {"verdict", to_string(f.verdict)}};
    if (f.verdict != verdict::skipped) {
      entry["median"] = f.value;
      entry["spread"] = f.spread;
      entry["unit"] = f.unit;
    }
    out["figures"].push_back(std::move(entry));
  }
  for (const series& s : from.values) {
    out["values"].push_back({{"name", s.name}, {"unit", s.unit}, {"values", s.values}});
  }
  for (const table& t : from.tables) {
    out["tables"].push_back({{"title", t.title}, {"columns", t.columns}, {"rows", t.rows}});
  }
  for (const chart& c : from.charts) {
    for (const plot& p : c.plots) {
      out["plots"].push_back({{"chart", c.name},
                              {"name", p.name},
                              {"x", p.x},
                              {"y", p.y},
                              {"spread", p.spread},
                              {"categories", c.categories}});
    }
  }
  out["notes"] = from.notes;
  out["errors"] = from.errors;
  return out;
}

}  // namespace

void print_progress(const result& of) {
  std::printf("%s: %s\n", of.name().c_str(), of.title().c_str());
  for (const figure& f : of.figures) {
    const auto line = cells("", f);
    std::printf("  %s: %s %s (%s) %s\n", line[1].c_str(), line[3].c_str(), line[4].c_str(),
                line[2].c_str(), line[5].c_str());
  }
  for (const std::string& note : of.notes) {
    std::printf("  note: %s\n", note.c_str());
  }
  for (const std::string& error : of.errors) {
    std::printf("  WRONG: %s\n", error.c_str());
  }
  (void)std::fflush(stdout);
}

int report(const std::string& program, const std::vector<result>& results, const settings& how) {
  std::vector<std::vector<std::string>> rows;
  bool wrong = false;
  bool missed = false;
  json file{{"program", program},         {"caveat", caveat},
            {"smoke", how.smoke},         {"repetitions", how.repetitions},
            {"machine", about_machine()}, {"results", json::array()}};
  std::vector<std::string> written;
  const bool draws = has_command("gnuplot");
  for (const result& r : results) {
    for (const figure& f : r.figures) {
      rows.push_back(cells(r.name(), f));
      missed |= f.verdict == verdict::missed;
    }
    for (const std::string& error : r.errors) {
      rows.push_back({r.name(), error, "right", "-", "-", std::string(to_string(verdict::wrong))});
      wrong = true;
    }
    file["results"].push_back(to_json(r));
    for (const chart& c : r.charts) {
      const std::string path = how.out + "/" + program + "-" + c.name + ".svg";
      if (!draws) {
        continue;
      }
      const command_result drawn = run_command({"gnuplot", "-"}, script_of(c, path));
      if (drawn.status == 0) {
        written.push_back(path);
      } else {
        std::printf("no chart %s: %s\n", path.c_str(), drawn.output.c_str());
      }
    }
  }
  const std::string json_path = how.out + "/" + program + ".json";
  std::ofstream(json_path) << file.dump(1) << '\n';

  for (const result& r : results) {
    for (const table& t : r.tables) {
      std::printf("\n%s: %s\n\n", r.name().c_str(), t.title.c_str());
      print_table(t.columns, t.rows);
    }
  }
  std::printf("\n");
  print_table({"", "what", "target", "measured", "spread", "verdict"}, rows);
  std::printf("\n%.*s Medians of %zu interleaved repetitions; spread: median absolute deviation.\n",
              static_cast<int>(caveat.size()), caveat.data(), how.repetitions);
  std::printf("values: %s\n", json_path.c_str());
  for (const std::string& path : written) {
    std::printf("chart: %s\n", path.c_str());
  }
  if (!draws) {
    std::printf("gnuplot is missing: no charts were drawn\n");
  }
  return wrong || (how.strict && missed) ? 1 : 0;
}

}  // namespace bench
