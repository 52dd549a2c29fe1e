// SPDX-License-Identifier: MIT
// The configuration file: {"type": ..., options for all, "devices": [{"domain": ..., "device": ...,
// "image": ..., options for those}]}. Options have the names of the command line's.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <pvring/xenbus/node.hpp>

#include "device_name.hpp"
#include "logging.hpp"
#include "settings.hpp"

namespace tool {
namespace {

using nlohmann::json;
using pvring::configuration_error;

[[noreturn]] void refuse(const std::string& where, const json& value, const std::string& remedy) {
  throw configuration_error(
      where + " is " + value.dump(-1, ' ', true, json::error_handler_t::replace) + ": " + remedy);
}

std::string entry_of(std::string where, std::string_view separator, std::string_view name) {
  where += separator;
  where += name;
  return where;
}

std::string text(const std::string& where, const json& value) {
  if (!value.is_string()) {
    refuse(where, value, "use a text");
  }
  return value.get<std::string>();
}

bool flag(const std::string& where, const json& value) {
  if (!value.is_boolean()) {
    refuse(where, value, "use true or false");
  }
  return value.get<bool>();
}

template <class Number>
Number number(const std::string& where, const json& value) {
  const auto parsed = pvring::xenbus::parse_unsigned<Number>(value.dump());
  if (!value.is_number() || !parsed) {
    refuse(where, value,
           "use a whole number from 0 to " + std::to_string(std::numeric_limits<Number>::max()));
  }
  return *parsed;
}

// An option's value as the command line would have it.
std::string as_option(const std::string& where, const json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number()) {
    return value.dump();
  }
  if (value.is_array()) {  // of CPUs
    std::string all;
    for (const json& one : value) {
      all += (all.empty() ? "" : ",") + as_option(where, one);
    }
    return all;
  }
  refuse(where, value, "use a text, a number or a list of numbers");
}

// Checked where it stands, so that the message can say where that is.
std::pair<std::string, std::string> device_option_of(const std::string& where,
                                                     const std::string& name, const json& value) {
  std::pair<std::string, std::string> option(name, as_option(where, value));
  try {
    device_options scratch;
    apply(scratch, option.first, option.second);
  } catch (const configuration_error& e) {
    throw configuration_error(where + ": " + e.what());
  }
  return option;
}

device_rule read_device(const std::string& where, const json& entry) {
  if (!entry.is_object()) {
    refuse(where, entry, R"(use an object such as {"domain": 3, "device": "xvda"})");
  }
  device_rule rule;
  for (const auto& [name, value] : entry.items()) {
    const std::string at = entry_of(where, ".", name);
    if (name == "domain") {
      rule.domain = number<pvring::domain_id>(at, value);
    } else if (name == "device") {
      rule.device = parse_device(value.is_number() ? value.dump() : text(at, value));
    } else if (name == "image") {
      // As attach writes it.
      rule.image = std::filesystem::absolute(text(at, value)).lexically_normal();
    } else if (name == "attach") {
      rule.attach = flag(at, value);
    } else if (name == "read-only") {
      rule.read_only = flag(at, value);
    } else if (name == "cdrom") {
      rule.cdrom = flag(at, value);
    } else if (name == "removable") {
      rule.removable = flag(at, value);
    } else if (name == "discard") {
      rule.discard = flag(at, value);
    } else {
      rule.options.push_back(device_option_of(at, name, value));
    }
  }
  if (rule.attach && !(rule.domain && rule.device && rule.image)) {
    refuse(where, entry, "a device that is to be attached needs domain, device and image");
  }
  return rule;
}

void read_devices(const std::string& at, const json& list, std::vector<device_rule>& into) {
  if (!list.is_array()) {
    refuse(at, list, "use a list of devices");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    into.push_back(read_device(at + '[' + std::to_string(i) + ']', list[i]));
  }
}

// What is not a device's. False for any other name; the command line wins.
bool read_daemon_option(const std::string& at, const std::string& name, const json& value,
                        serve_command& into) {
  serve_command ignored;
  serve_command& to = into.given.contains("--" + name) ? ignored : into;
  if (name == "type") {
    to.what.type = text(at, value);
  } else if (name == "backend-domain") {
    to.what.backend_domain = number<pvring::domain_id>(at, value);
  } else if (name == "stats") {
    to.what.stats_seconds = number<std::uint16_t>(at, value);
  } else if (name == "metrics") {
    to.metrics = text(at, value);
  } else if (name == "journals") {
    to.journals = text(at, value);
  } else if (name == "trace") {
    to.trace = text(at, value);
  } else if (name == "log-level") {
    to.log_level = text(at, value);
    if (!is_log_level(to.log_level)) {
      refuse(at, value, "use debug, info, warning or error");
    }
  } else if (name == "log-json") {
    to.log_json = flag(at, value);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void read_config(const std::string& path, serve_command& into) {
  std::ifstream file(path);
  if (!file) {
    throw configuration_error("option --config is '" + path +
                              "': it cannot be read; name a JSON file that this process may read");
  }
  json all;
  try {
    all = json::parse(file, nullptr, true, true);
  } catch (const json::parse_error& e) {
    throw configuration_error("option --config is '" + path + "': it is no JSON: " + e.what());
  }
  if (!all.is_object()) {
    refuse(path, all, R"(use an object such as {"grants": "auto", "devices": []})");
  }
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto& [name, value] : all.items()) {
    const std::string at = entry_of(path, ": ", name);
    if (name == "devices") {
      read_devices(at, value, into.what.rules);
    } else if (!read_daemon_option(at, name, value, into)) {
      options.push_back(device_option_of(at, name, value));
    }
  }
  // Those of the command line come last, and win.
  into.options.insert(into.options.begin(), options.begin(), options.end());
}

}  // namespace tool
