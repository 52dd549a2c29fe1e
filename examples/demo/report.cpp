// SPDX-License-Identifier: MIT
// Formatting only: every number is computed elsewhere. Table, JSON and chart all say which numbers
// mean something on Xen.
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "columns.hpp"

namespace demo {
std::string table(const std::vector<outcome>& outcomes) {
  // All cells as text first, so that no column is wider than it has to be.
  std::vector<std::vector<std::string>> rows{{"", ""}, {"strategy", "phase"}};
  for (const column& c : columns()) {
    rows[0].emplace_back(c.group);
    rows[1].emplace_back(c.title);
  }
  for (const outcome& one : outcomes) {
    for (const phase& p : one.phases) {
      std::vector<std::string>& row = rows.emplace_back();
      row = {one.strategy, p.name};
      for (const column& c : columns()) {
        row.push_back(fmt::format("{:.{}f}", c.value(p), c.decimals));
      }
    }
  }
  std::string text;
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      // Names to the left, numbers to the right.
      line += i < 2 ? fmt::format("{:<{}} ", rows[r][i], widths[i] + 1)
                    : fmt::format("{:>{}}", rows[r][i], widths[i] + 2);
    }
    text += line + '\n';
    if (r == 1) {
      text += std::string(line.size(), '-') + '\n';
    }
  }
  return text +
         "read: the whole disk, in large requests; mixed: reads, writes, flushes and discards; "
         "reopened: the whole "
         "disk again.\nA batch is what is answered at once.\n" +
         note + "\n";
}

void write_json(const std::string& path, const settings& wanted, const disk_image& image,
                const std::vector<outcome>& outcomes) {
  nlohmann::ordered_json document;
  document["note"] = note;
  document["image"] = {
      {"origin", image.origin()}, {"bytes", image.bytes()}, {"tail_from", image.tail()}};
  document["settings"] = {{"queues", wanted.queues},
                          {"ring_pages", wanted.ring_pages},
                          {"depth_per_queue", wanted.depth},
                          {"load_seconds", wanted.load.count()},
                          {"seed", wanted.seed},
                          {"buffered", wanted.buffered}};
  for (const outcome& one : outcomes) {
    nlohmann::ordered_json strategy{
        {"strategy", one.strategy},     {"choice", one.choice},
        {"sha256", one.digest},         {"verified_sectors", one.verified_sectors},
        {"mixed_reads", one.reads},     {"mixed_writes", one.writes},
        {"mixed_flushes", one.flushes}, {"mixed_discards", one.discards}};
    for (const phase& p : one.phases) {
      nlohmann::ordered_json numbers{{"phase", p.name},
                                     {"requests", p.cost.requests},
                                     {"bytes", p.bytes},
                                     {"seconds", p.cost.wall}};
      for (const column& c : columns()) {
        numbers[c.key] = c.value(p);
      }
      numbers["hypercalls_per_request"] = p.per_request(p.cost.hypercalls);
      strategy["phases"].push_back(std::move(numbers));
    }
    document["strategies"].push_back(std::move(strategy));
  }
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  if (!file.flush()) {
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace demo
