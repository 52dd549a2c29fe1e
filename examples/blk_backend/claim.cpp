// SPDX-License-Identifier: MIT
#include "claim.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <pvring/base/log.hpp>
#include <sstream>
#include <thread>

#include "exit_codes.hpp"

namespace tool {
namespace {

// When a process started: with it, a number that was given out again is another process. Empty:
// there is none, or it is dead and only not yet waited for.
std::string start_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  // The program's name may hold anything; what follows it does not.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string state;
  std::string field;
  fields >> state;
  constexpr int start_after_state = 19;
  for (int i = 0; i < start_after_state; ++i) {
    fields >> field;
  }
  return fields && state != "Z" && state != "X" ? field : "";
}

}  // namespace

claim::claim(store_connection& store, pvring::domain_id backend_domain, const std::string& type)
    : store_(store),
      node_("/local/domain/" + std::to_string(backend_domain) + "/pvring/serving/" + type) {
  const std::string self = std::to_string(::getpid());
  const std::string mine = self + ' ' + start_of(self);
  // One that was told to end, or killed, may need a moment for its I/O.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (std::string holder = take(mine); !holder.empty(); holder = take(mine)) {
    if (std::chrono::steady_clock::now() >= patience) {
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
        start_of(holder) != other.substr(std::min(space + 1, other.size()))) {
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
