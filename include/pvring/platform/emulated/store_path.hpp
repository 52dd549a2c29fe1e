// SPDX-License-Identifier: MIT
// Paths of store nodes: which are valid, what a relative one means, and which lies below which.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "layout.hpp"

namespace pvring::platform::detail {

/// The directory that paths without a leading '/' begin at.
[[nodiscard]] inline std::string home_of(domain_id domain) {
  return "/local/domain/" + std::to_string(domain);
}

[[noreturn]] inline void throw_store(int error, std::string_view path, std::string_view why) {
  throw std::system_error(error, std::generic_category(),
                          "store node " + std::string(path) + ": " + std::string(why));
}

/// The absolute form of `path`. Throws std::system_error naming it: EINVAL, ENAMETOOLONG.
[[nodiscard]] inline std::string absolute_path(std::string_view path, domain_id domain) {
  const auto is_valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '@' || c == '/';
  };
  std::string full =
      path.starts_with('/') ? std::string(path) : home_of(domain) + "/" + std::string(path);
  if (full.size() > longest_path) {
    throw_store(ENAMETOOLONG, path,
                "a path has at most " + std::to_string(longest_path) + " characters here");
  }
  std::size_t name = 0;
  for (std::size_t i = 1; i < full.size(); ++i) {
    name = full[i] == '/' ? 0 : name + 1;
    if (!is_valid(full[i]) || (full[i] == '/' && full[i - 1] == '/')) {
      throw_store(
          EINVAL, path,
          "a path consists of names of letters, digits, '-', '_' and '@' with single '/' between");
    }
    if (name > store_node::longest_name) {
      throw_store(ENAMETOOLONG, path,
                  "a name has at most " + std::to_string(store_node::longest_name) + " characters");
    }
  }
  if (full.size() > 1 && full.ends_with('/')) {
    throw_store(EINVAL, path, "a path does not end with '/'");
  }
  return full;
}

/// Whether `path` is `top` or lies below it.
[[nodiscard]] inline bool is_at_or_below(std::string_view path, std::string_view top) noexcept {
  if (top == "/") {
    return path.starts_with('/');
  }
  return path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/');
}

/// Takes the first name off `rest`, which begins with '/' or is empty.
[[nodiscard]] inline std::string_view take_name(std::string_view& rest) noexcept {
  rest.remove_prefix(rest.empty() ? 0 : 1);
  const std::string_view name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(name.size());
  return name;
}

}  // namespace pvring::platform::detail
