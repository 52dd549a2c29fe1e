// SPDX-License-Identifier: MIT
// The command line of benchmark programs. Few options, so there is no library behind it.
#include "settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace bench {
namespace {

[[noreturn]] void help(std::string_view about, const std::vector<std::string>& parts) {
  std::string names;
  for (const std::string& part : parts) {
    names += (names.empty() ? "" : ", ") + part;
  }
  std::printf(
      "%.*s\n\n"
      "  --smoke            a few seconds: results are checked, speed is not judged\n"
      "  --only LIST        parts to run, separated by commas: %s\n"
      "  --out DIR          where JSON and SVG charts go (default: here)\n"
      "  --repetitions N    interleaved repetitions of each measurement (default 11)\n"
      "  --strict           fail when a target is missed, not only when a result is wrong\n"
      "  --help             this\n",
      static_cast<int>(about.size()), about.data(), names.c_str());
  std::exit(0);
}

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "%s; --help lists the options\n", why.c_str());
  std::exit(2);
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma != 0) {
      out.emplace_back(list.substr(0, comma));
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

std::uint64_t number(std::string_view option, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0) {
    refuse(std::string(option) + " needs a number above 0, not '" + std::string(text) + "'");
  }
  return value;
}

}  // namespace

bool settings::wants(std::string_view part) const {
  return only.empty() || std::find(only.begin(), only.end(), part) != only.end();
}

settings read_settings(int argc, char** argv, std::string_view about,
                       const std::vector<std::string>& parts) {
  settings out;
  bool repetitions_given = false;
  std::error_code ignored;
  out.self = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    std::string_view value;
    bool has_value = false;
    if (const std::size_t equals = option.find('='); equals != std::string_view::npos) {
      value = option.substr(equals + 1);
      option = option.substr(0, equals);
      has_value = true;
    }
    const auto take_value = [&] {
      if (!has_value) {
        if (++i == argc) {
          refuse(std::string(option) + " needs a value");
        }
        value = argv[i];
      }
      return value;
    };
    if (option == "--help" || option == "-h") {
      help(about, parts);
    } else if (option == "--smoke") {
      out.smoke = true;
    } else if (option == "--strict") {
      out.strict = true;
    } else if (option == "--only") {
      out.only = split(take_value());
    } else if (option == "--out") {
      out.out = std::string(take_value());
    } else if (option == "--repetitions") {
      out.repetitions = number(option, take_value());
      repetitions_given = true;
    } else if (option == "--variant") {
      out.variant = std::string(take_value());
    } else if (option == "--rounds") {
      out.rounds = number(option, take_value());
    } else {
      refuse("unknown option '" + std::string(argv[i]) + "'");
    }
  }
  for (const std::string& part : out.only) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
      refuse("there is no part '" + part + "'");
    }
  }
  if (out.smoke && !repetitions_given) {
    out.repetitions = 2;
  }
  std::filesystem::create_directories(out.out);
  return out;
}

}  // namespace bench
