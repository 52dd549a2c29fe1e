// SPDX-License-Identifier: MIT
#include "claim.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <pvring/base/log.hpp>
#include <sstream>
#include <thread>

#include "exit_codes.hpp"

namespace tool {
namespace {

// A process as /proc shows it. When it started tells it from another one that was given the same
// number; empty: there is none, or it is dead and only not yet waited for.
struct process_sight {
  std::string start;
  bool ending = false;  ///< it executes nothing any more, but its I/O is not done
};

process_sight look_at(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  // The program's name may hold anything; what follows it does not.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string state;
  std::string field;
  fields >> state;
  // See proc(5): the flags of the kernel are the 6th field after the state, the start is the 19th.
  constexpr int flags_after_state = 6;
  constexpr int start_after_state = 19;
  constexpr unsigned long exiting = 0x4;
  unsigned long flags = 0;
  for (int i = 1; i <= start_after_state; ++i) {
    fields >> field;
    if (i == flags_after_state) {
      flags = std::strtoul(field.c_str(), nullptr, 0);
    }
  }
  if (!fields || state == "Z" || state == "X") {
    return {};
  }
  return {field, (flags & exiting) != 0};
}

}  // namespace

claim::claim(store_connection& store, pvring::domain_id backend_domain, const std::string& type)
    : store_(store),
      node_("/local/domain/" + std::to_string(backend_domain) + "/pvring/serving/" + type) {
  const std::string self = std::to_string(::getpid());
  const std::string mine = self + ' ' + look_at(self).start;
  // One that was told to end may need a moment for its I/O, and one that was killed ends when its
  // storage has done what it was asked for.
  constexpr std::chrono::seconds moment(2);
  constexpr std::chrono::seconds longest(60);
  const auto start = std::chrono::steady_clock::now();
  for (std::string holder = take(mine); !holder.empty(); holder = take(mine)) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited >= longest || (waited >= moment && !look_at(holder).ending)) {
      throw command_error(failed,
                          fmt::format("process {} serves the devices of type {} already ({}): stop "
                                      "it, or use another --type",
                                      holder, type, node_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string claim::take(const std::string& mine) {
  std::string holder;
  store_.transact([&](store_access& t) {
    const std::string other = t.read(node_).value_or("");
    const std::size_t space = std::min(other.find(' '), other.size());
    holder = other.substr(0, space);
    if (holder.empty() || other == mine ||
        look_at(holder).start != other.substr(std::min(space + 1, other.size()))) {
      holder.clear();
      t.write(node_, mine);
    }
  });
  return holder;
}

claim::~claim() {
  try {
    store_.remove(node_);
  } catch (const std::exception& e) {
    pvring::log::write(pvring::log::level::debug, e.what());  // a store that is gone
  }
}

}  // namespace tool
