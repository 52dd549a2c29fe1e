// SPDX-License-Identifier: MIT
#include "claim.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <pvring/base/log.hpp>
#include <sstream>

#include "exit_codes.hpp"

namespace tool {
namespace {

// When a process started: with it, a number that was given out again is another process. Empty:
// there is none.
std::string start_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  // The program's name may hold anything; what follows it does not.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  constexpr int start_after_name = 20;
  for (int i = 0; i < start_after_name; ++i) {
    fields >> field;
  }
  return fields ? field : "";
}

}  // namespace

claim::claim(store_connection& store, pvring::domain_id backend_domain, const std::string& type)
    : store_(store),
      node_("/local/domain/" + std::to_string(backend_domain) + "/pvring/serving/" + type) {
  const std::string self = std::to_string(::getpid());
  const std::string mine = self + ' ' + start_of(self);
  store_.transact([&](store_access& t) {
    const std::string other = t.read(node_).value_or("");
    const std::size_t space = other.find(' ');
    if (space != std::string::npos && other != mine &&
        start_of(other.substr(0, space)) == other.substr(space + 1)) {
      throw command_error(failed, "process " + other.substr(0, space) +
                                      " serves the devices of type " + type + " already (" + node_ +
                                      "): stop it, or use another --type");
    }
    t.write(node_, mine);
  });
}

claim::~claim() {
  try {
    store_.remove(node_);
  } catch (const std::exception& e) {
    pvring::log::write(pvring::log::level::debug, e.what());  // a store that is gone
  }
}

}  // namespace tool
