// SPDX-License-Identifier: MIT
// Formatting only; each number is stated once for table, JSON and chart.
#include "report.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace demo_net {
namespace {

struct column {
  const char* key;
  const char* title;
  const char* chart;  ///< empty: not there
  int decimals;
  double (*value)(const outcome&);
};

constexpr column columns[] = {
    {"ping_ms", "ping ms", "", 3, [](const outcome& o) { return o.ping_ms; }},
    {"gbps_1", "Gb/s 1", "", 2, [](const outcome& o) { return o.gigabits[0]; }},
    {"gbps_1_back", "back 1", "", 2, [](const outcome& o) { return o.gigabits[1]; }},
    {"gbps_4", "Gb/s 4", "Gb/s, 4 streams", 2, [](const outcome& o) { return o.gigabits[2]; }},
    {"gbps_4_back", "back 4", "", 2, [](const outcome& o) { return o.gigabits[3]; }},
    {"packets_per_second", "packets/s", "", 0,
     [](const outcome& o) { return o.packets_per_second; }},
    {"backend_cpu_seconds_per_gib", "CPU s/GiB", "backend CPU, s per GiB", 2,
     [](const outcome& o) { return o.backend_cpu_seconds_per_gib; }},
    {"grant_calls_per_packet", "calls/pkt", "grant calls per packet", 3,
     [](const outcome& o) { return o.grant_calls_per_packet; }},
    {"grant_operations_per_packet", "ops/pkt", "", 2,
     [](const outcome& o) { return o.grant_operations_per_packet; }},
    {"notifications_per_packet", "notif./pkt", "notifications per packet", 3,
     [](const outcome& o) { return o.notifications_per_packet; }},
    {"slots_per_packet", "slots/pkt", "", 2, [](const outcome& o) { return o.slots_per_packet; }},
};

}  // namespace

std::string table(const std::vector<outcome>& outcomes) {
  std::string text = fmt::format("{:<34}", "strategy, delivery, offloads");
  for (const column& c : columns) {
    text += fmt::format("{:>11}", c.title);
  }
  const std::size_t width = text.size();
  text += '\n' + std::string(width, '-') + '\n';
  for (const outcome& one : outcomes) {
    text += fmt::format("{:<34}", one.what.name());
    for (const column& c : columns) {
      text += fmt::format("{:>11.{}f}", c.value(one), c.decimals);
    }
    text += '\n';
  }
  return text + note + '\n';
}

void write_json(const std::string& path, const settings& wanted,
                const std::vector<outcome>& outcomes) {
  nlohmann::ordered_json document;
  document["note"] = note;
  document["settings"] = {{"queues", wanted.queues},
                          {"iperf_seconds", wanted.seconds},
                          {"file_mib", wanted.file_mib},
                          {"kernel_tcp", wanted.kernel}};
  for (const outcome& one : outcomes) {
    nlohmann::ordered_json numbers{{"strategy", one.what.strategy},
                                   {"delivery", one.what.delivery},
                                   {"offloads", one.what.offloads},
                                   {"sha256", one.sha256}};
    for (const column& c : columns) {
      numbers[c.key] = c.value(one);
    }
    document["combinations"].push_back(std::move(numbers));
  }
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  if (!file.flush()) {
    throw std::runtime_error("cannot write " + path);
  }
}

void write_chart(const std::string& path, const std::vector<outcome>& outcomes) {
  const std::string script = path + ".gnuplot";
  {
    std::ofstream file(script);
    file << "set terminal svg size 1320,760 noenhanced font 'sans,12' background rgb 'white'\n"
         << "set output '" << path << "'\n"
         << "set multiplot layout 2,2 title \"pvring demo net\\n"
         << note << "\" font 'sans,12'\n"
         << "unset key\nset style fill solid 0.8 noborder\nset boxwidth 0.6\nset yrange [0:*]\n"
         << "set grid ytics\nset xtics font 'sans,8' nomirror rotate by -20\n"
         << "set offsets 0,0,graph 0.12,0\n";
    for (const column& c : columns) {
      if (c.chart[0] == '\0') {
        continue;
      }
      file << fmt::format("set title '{}'\n$data << EOD\n", c.chart);
      int row = 0;
      for (const outcome& one : outcomes) {
        file << fmt::format("{0} \"{1}\" {2:.4f} {2:.{3}f}\n", row++, one.what.name(), c.value(one),
                            c.decimals);
      }
      file << fmt::format(
          "EOD\nplot [-0.6:{}-0.4] $data using 1:3:($1+1):xticlabels(2) with boxes linecolor "
          "variable, $data using 1:3:4 with labels offset 0,0.7\n",
          row);
    }
    file << "unset multiplot\n";
    if (!file.flush()) {
      throw std::runtime_error("cannot write " + script);
    }
  }
  const int status = std::system(("gnuplot '" + script + "'").c_str());
  std::error_code ignored;
  std::filesystem::remove(script, ignored);
  if (status != 0) {
    throw std::runtime_error("gnuplot failed; install gnuplot-nox, or use --no-chart");
  }
}

}  // namespace demo_net
