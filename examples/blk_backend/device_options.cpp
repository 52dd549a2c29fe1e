// SPDX-License-Identifier: MIT
#include "device_options.hpp"

#include <algorithm>
#include <array>
#include <pvring/blk/negotiation.hpp>
#include <pvring/xenbus/node.hpp>

namespace tool {
namespace {

using pvring::configuration_error;

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view remedy) {
  throw configuration_error("option --" + std::string(name) + " is '" + std::string(value) +
                            "': " + std::string(remedy));
}

std::uint32_t number(std::string_view name, std::string_view value, std::uint32_t least,
                     std::uint32_t most) {
  if (const auto n = pvring::xenbus::parse_unsigned<std::uint32_t>(value, {least, most})) {
    return *n;
  }
  refuse(name, value,
         "use a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

void set_grants(device_options& to, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> names{
      {{"auto", ""},
       {"copy", "batched_copy"},
       {"persistent", "persistent_pool"},
       {"map", "map_each"}}};
  const auto* const found = std::find_if(names.begin(), names.end(),
                                         [value](const auto& one) { return one.first == value; });
  if (found == names.end()) {
    refuse("grants", value, "use auto, copy, persistent or map");
  }
  to.blk.strategy = found->second;
}

void set_reap(device_options& to, std::string_view value) {
  using pvring::aio::reap_mode;
  if (value != "user" && value != "syscall" && value != "polled") {
    refuse("reap", value, "use user, syscall or polled");
  }
  to.blk.reap = value == "user"      ? reap_mode::user_space
                : value == "syscall" ? reap_mode::system_call
                                     : reap_mode::polled;
}

void set_wait(device_options& to, std::string_view value) {
  try {
    to.blk.wait = pvring::wait::policy::parse(value);
  } catch (const configuration_error& e) {
    refuse("wait", value, e.what());
  }
}

void set_direct(device_options& to, std::string_view value) {
  using pvring::aio::direct_io;
  if (value != "auto" && value != "on" && value != "off") {
    refuse("direct", value, "use auto, on or off");
  }
  to.direct = value == "auto" ? direct_io::automatic
              : value == "on" ? direct_io::always
                              : direct_io::never;
}

// `0,2-3`
void set_cpus(device_options& to, std::string_view value) {
  constexpr std::uint32_t most = 1023;
  to.blk.cpus.clear();
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::size_t dash = std::min(item.find('-'), item.size());
    const auto first =
        pvring::xenbus::parse_unsigned<std::uint32_t>(item.substr(0, dash), {0, most});
    const auto last = dash == item.size() ? first
                                          : pvring::xenbus::parse_unsigned<std::uint32_t>(
                                                item.substr(dash + 1), {0, most});
    if (!first || !last || *last < *first) {
      refuse("cpus", value, "use numbers of CPUs and ranges of them, such as 0,2-3");
    }
    for (std::uint32_t cpu = *first; cpu <= *last; ++cpu) {
      to.blk.cpus.push_back(static_cast<int>(cpu));
    }
  }
}

void set_engine(device_options& to, std::string_view value) {
  try {
    to.engine = support::parse_engine(value);
  } catch (const configuration_error&) {
    refuse("engine", value, "use auto, libaio or uring");
  }
}

constexpr std::array<device_option, 9> table{{
    {"engine", "auto|libaio|uring",
     "what performs the I/O on files and block devices; auto takes uring where the kernel allows "
     "it",
     &set_engine},
    {"grants", "auto|copy|persistent|map",
     "how the guest's pages are got at; auto takes what suits platform and guest", &set_grants},
    {"reap", "user|syscall|polled",
     "how completions of I/O are found; polled: by asking the device, with the engine uring",
     &set_reap},
    {"wait", "event|busy|adaptive[:start=20us,max=200us,...]",
     "how a queue waits: sleeping, polling, or polling as long as that pays", &set_wait},
    {"queues", "N", "queues that are offered to the guest, 1 to 256",
     [](device_options& to, std::string_view value) {
       to.blk.max_queues = number("queues", value, 1, 256);
     }},
    {"ring-order", "N", "largest ring that is offered: 2^N pages, N from 0 to 4",
     [](device_options& to, std::string_view value) {
       to.blk.max_ring_page_order = number("ring-order", value, 0, 4);
     }},
    {"max-indirect", "N", "segments of a request that are offered; 0: no indirect requests",
     [](device_options& to, std::string_view value) {
       to.blk.max_indirect_segments = number("max-indirect", value, 0, 4096);
     }},
    {"cpus", "LIST", "CPUs to which the queues' threads are pinned in turn, such as 0,2-3",
     &set_cpus},
    {"direct", "auto|on|off", "whether the page cache is bypassed", &set_direct},
}};

}  // namespace

std::span<const device_option> all_device_options() { return table; }

void apply(device_options& to, std::string_view name, std::string_view value) {
  for (const device_option& one : table) {
    if (one.name == name) {
      one.apply(to, value);
      return;
    }
  }
  std::string known;
  for (const device_option& one : table) {
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw configuration_error("'" + std::string(name) + "' is no option of a device; there are " +
                            known);
}

void validate(const device_options& wanted) {
  pvring::blk::validate(wanted.blk);
  if (wanted.blk.reap == pvring::aio::reap_mode::polled &&
      wanted.engine != support::file_engine::uring) {
    refuse("reap", "polled", "choose the engine that can (--engine uring)");
  }
}

}  // namespace tool
