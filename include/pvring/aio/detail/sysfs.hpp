// SPDX-License-Identifier: MIT
// Reading what the kernel says in small files: /proc, and /sys or a tree that looks like it.
#pragma once

#include <dirent.h>
#include <limits.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace pvring::aio::detail {

/// The first line of a small file, empty when it cannot be read.
[[nodiscard]] inline std::string first_line(const std::string& path) {
  std::string line;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    std::array<char, PATH_MAX> text{};
    if (std::fgets(text.data(), static_cast<int>(text.size()), file) != nullptr) {
      line = text.data();
      line.erase(std::min(line.find('\n'), line.size()));
    }
    std::fclose(file);
  }
  return line;
}

/// The number in a file of /proc or /sys, `otherwise` when it is not there.
[[nodiscard]] inline std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  const std::string line = first_line(path);
  return line.empty() ? otherwise : std::strtoull(line.c_str(), nullptr, 10);
}

/// The names in a directory without those that begin with a dot; nothing when it cannot be read.
[[nodiscard]] inline std::optional<std::vector<std::string>> names_in(const std::string& path) {
  DIR* const directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    return std::nullopt;
  }
  std::optional<std::vector<std::string>> names(std::in_place);
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') {
      names->emplace_back(entry->d_name);
    }
  }
  if (errno != 0) {
    names.reset();
  }
  ::closedir(directory);
  return names;
}

/// Where sysfs describes a block device.
[[nodiscard]] inline std::string sysfs_of(dev_t device, const std::string& root = "/sys") {
  return root + "/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

}  // namespace pvring::aio::detail
