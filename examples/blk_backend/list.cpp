// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <pvring/xenbus/node.hpp>
#include <tuple>
#include <vector>

#include "device_name.hpp"
#include "devices.hpp"

namespace tool {
namespace {

namespace xenbus = pvring::xenbus;

struct line {
  xenbus::device_identity identity;
  std::string backend;
  std::string frontend;
  std::string backend_state;
  std::string frontend_state;
  std::string image;
  std::string mode;
  std::string strategy;
  std::uint64_t queues = 0;
  std::uint64_t requests = 0;  ///< per second, as the rest
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::string error;
};

line describe(store_connection& store, const xenbus::device_identity& identity) {
  const xenbus::device_path path = [&] {
    try {
      return resolve_from_backend(store, identity);
    } catch (const pvring::node_error&) {
      return xenbus::device_path(identity);
    }
  }();
  const auto text = [&](const auto&... names) {
    return store.read(xenbus::join(path.backend(), names...)).value_or("");
  };
  const auto number = [&](std::string_view name) {
    return xenbus::parse_unsigned<std::uint64_t>(text(std::string_view("pvring"), name))
        .value_or(0);
  };
  return {.identity = identity,
          .backend = path.backend(),
          .frontend = path.frontend(),
          .backend_state = std::string(to_string(xenbus::read_state(store, path.backend()))),
          .frontend_state = std::string(to_string(xenbus::read_state(store, path.frontend()))),
          .image = text(std::string_view("params")),
          .mode = text(std::string_view("mode")),
          .strategy = text(std::string_view("pvring"), std::string_view("strategy")),
          .queues = number("queues"),
          .requests = number("requests-per-second"),
          .bytes_read = number("read-bytes-per-second"),
          .bytes_written = number("write-bytes-per-second"),
          .error = store.read(path.backend_error()).value_or("")};
}

std::vector<line> collect(store_connection& store, const list_settings& wanted) {
  const std::string root = "/local/domain/" + std::to_string(wanted.backend_domain) + "/backend";
  std::vector<line> lines;
  for (const std::string& type : store.list(root)) {
    if (!wanted.type.empty() && type != wanted.type) {
      continue;
    }
    for (const std::string& domain : store.list(xenbus::join(root, type))) {
      for (const std::string& device : store.list(xenbus::join(root, type, domain))) {
        if (const auto identity =
                xenbus::parse_backend_directory(xenbus::join(root, type, domain, device))) {
          line one = describe(store, *identity);
          // Whatever its type is called: a block device is where the guest looks for one.
          if (!wanted.type.empty() || one.frontend.find("/device/vbd/") != std::string::npos) {
            lines.push_back(std::move(one));
          }
        }
      }
    }
  }
  std::sort(lines.begin(), lines.end(), [](const line& a, const line& b) {
    return std::tie(a.identity.frontend_domain, a.identity.device, a.identity.type) <
           std::tie(b.identity.frontend_domain, b.identity.device, b.identity.type);
  });
  return lines;
}

void print_json(const std::vector<line>& lines) {
  auto all = nlohmann::ordered_json::array();
  for (const line& one : lines) {
    nlohmann::ordered_json device{{"domain", one.identity.frontend_domain},
                                  {"device", device_name(one.identity.device)},
                                  {"number", one.identity.device},
                                  {"type", one.identity.type},
                                  {"path", one.backend},
                                  {"backend", one.backend_state},
                                  {"frontend", one.frontend_state},
                                  {"image", one.image},
                                  {"read_only", one.mode == "r"},
                                  {"strategy", one.strategy},
                                  {"queues", one.queues},
                                  {"requests_per_second", one.requests},
                                  {"read_bytes_per_second", one.bytes_read},
                                  {"write_bytes_per_second", one.bytes_written}};
    if (!one.error.empty()) {
      device["error"] = one.error;
    }
    all.push_back(std::move(device));
  }
  using handler = nlohmann::ordered_json::error_handler_t;
  std::printf("%s\n", all.dump(2, ' ', true, handler::replace).c_str());
}

void print_table(const std::vector<line>& lines) {
  if (lines.empty()) {
    std::printf("no devices\n");
    return;
  }
  std::printf("%6s %-7s %-13s %-13s %-13s %-16s %6s %8s %8s %8s  %s\n", "domain", "device", "type",
              "backend", "guest", "strategy", "queues", "req/s", "MB/s in", "MB/s out", "image");
  for (const line& one : lines) {
    std::printf(
        "%6u %-7s %-13s %-13s %-13s %-16s %6llu %8llu %8.1f %8.1f  %s%s\n",
        unsigned{one.identity.frontend_domain}, device_name(one.identity.device).c_str(),
        one.identity.type.c_str(), one.backend_state.c_str(), one.frontend_state.c_str(),
        one.strategy.empty() ? "-" : one.strategy.c_str(),
        static_cast<unsigned long long>(one.queues), static_cast<unsigned long long>(one.requests),
        static_cast<double>(one.bytes_written) / 1e6, static_cast<double>(one.bytes_read) / 1e6,
        one.image.c_str(), one.mode == "r" ? " (read-only)" : "");
    if (!one.error.empty()) {
      std::printf("       error: %s\n", one.error.c_str());
    }
  }
}

}  // namespace

exit_code list(platform_access& platform, const list_settings& wanted) {
  const auto store = platform.open_store();
  const std::vector<line> lines = collect(*store, wanted);
  wanted.json ? print_json(lines) : print_table(lines);
  return fine;
}

}  // namespace tool
