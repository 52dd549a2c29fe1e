// SPDX-License-Identifier: MIT
// Typed reading and writing of single store nodes. A peer writes many of them, so a value is
// validated whole, and what is wrong with it is said with the node's path, its value, its writer
// and what would be accepted.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "../base/error.hpp"
#include "../platform/store.hpp"
#include "../protocol/xenbus.hpp"

namespace pvring::xenbus {

using protocol::xenbus_state;

/// The longest absolute path that a store accepts.
inline constexpr std::size_t longest_path = 3072;

/// `directory` and the names below it, with one '/' between each two.
template <class... Names>
  requires(std::convertible_to<const Names&, std::string_view> && ...)
[[nodiscard]] std::string join(std::string_view directory, const Names&... names) {
  std::string path(directory);
  ((path += '/', path += std::string_view(names)), ...);
  return path;
}

/// Whether a value read from the store can be used as an absolute path: components that are not
/// empty, of the characters that a store allows. Nothing else about it is trusted.
[[nodiscard]] constexpr bool is_absolute_path(std::string_view path) noexcept {
  if (path.size() < 2 || path.size() > longest_path || path.front() != '/' || path.back() == '/') {
    return false;
  }
  char previous = '\0';
  for (const char c : path) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '@' || c == '/';
    if (!allowed || (c == '/' && previous == '/')) {
      return false;
    }
    previous = c;
  }
  return true;
}

/// What a number in a node may be.
template <std::unsigned_integral T>
struct bounds {
  T least = 0;
  T most = std::numeric_limits<T>::max();
};

/// The decimal number that `text` consists of, or nothing: no sign, no space, no other base, no
/// overflow.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> parse_unsigned(std::string_view text,
                                              bounds<T> within = {}) noexcept {
  T number{};
  const char* const end = text.data() + text.size();
  // from_chars takes no sign for an unsigned type and skips nothing, so "all of it was used" is the
  // whole check.
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc{} || stopped != end || number < within.least ||
      number > within.most) {
    return std::nullopt;
  }
  return number;
}

namespace detail {

/// A value that a peer chose, for a message: bounded, and free of control characters.
[[nodiscard]] inline std::string quoted(std::string_view value) {
  constexpr std::size_t longest = 64;
  std::string text = "'";
  for (const char c : value.substr(0, longest)) {
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text + (value.size() > longest ? "...'" : "'");
}

template <std::unsigned_integral T>
[[nodiscard]] std::string expected_number(bounds<T> within) {
  return "write a decimal number from " + std::to_string(within.least) + " to " +
         std::to_string(within.most);
}

template <std::unsigned_integral T>
[[nodiscard]] T checked_number(const std::string& path, const std::string& value, domain_id writer,
                               bounds<T> within) {
  if (const auto number = parse_unsigned<T>(value, within)) {
    return *number;
  }
  throw node_error(path, value, writer,
                   (value.empty() ? "it is there, but empty; " : "") + expected_number(within));
}

}  // namespace detail

/// The number in a node that has to be there.
/// \param writer the domain that writes the node; only named in the error
/// \throws node_error when the node is missing, malformed or out of bounds
template <std::unsigned_integral T, platform::node_access Access>
[[nodiscard]] T read_unsigned(Access& access, const std::string& path, domain_id writer,
                              bounds<T> within = {}) {
  const std::optional<std::string> value = access.read(path);
  if (!value) {
    throw node_error(path, "", writer, detail::expected_number(within));
  }
  return detail::checked_number(path, *value, writer, within);
}

/// The number in a node that may be missing.
/// \throws node_error when the node is there, but malformed or out of bounds
template <std::unsigned_integral T, platform::node_access Access>
[[nodiscard]] std::optional<T> find_unsigned(Access& access, const std::string& path,
                                             domain_id writer, bounds<T> within = {}) {
  const std::optional<std::string> value = access.read(path);
  return value ? std::optional<T>(detail::checked_number(path, *value, writer, within))
               : std::nullopt;
}

/// The number in a node, or `fallback` where the node is missing. The fallback need not lie within
/// the bounds.
/// \throws node_error when the node is there, but malformed or out of bounds
template <std::unsigned_integral T, platform::node_access Access>
[[nodiscard]] T read_unsigned_or(Access& access, const std::string& path, domain_id writer,
                                 T fallback, bounds<T> within = {}) {
  return find_unsigned<T>(access, path, writer, within).value_or(fallback);
}

/// A feature's node: any number, and all but 0 mean yes; `fallback` where the node is missing.
/// \throws node_error when the node is there, but not a number
template <platform::node_access Access>
[[nodiscard]] bool read_flag_or(Access& access, const std::string& path, domain_id writer,
                                bool fallback) {
  return read_unsigned_or<std::uint32_t>(access, path, writer, fallback ? 1 : 0) != 0;
}

/// The text of a node that has to be there and has to say something.
/// \throws node_error when it does not
template <platform::node_access Access>
[[nodiscard]] std::string read_text(Access& access, const std::string& path, domain_id writer,
                                    std::string_view remedy) {
  std::optional<std::string> value = access.read(path);
  if (!value || value->empty()) {
    throw node_error(path, "", writer, remedy);
  }
  return *std::move(value);
}

/// Which of `names` a node says, as an index; `fallback` where the node is missing.
/// \throws node_error when it says anything else, and lists what it may say
template <platform::node_access Access>
[[nodiscard]] std::size_t read_one_of(Access& access, const std::string& path, domain_id writer,
                                      std::span<const std::string_view> names,
                                      std::size_t fallback) {
  const std::optional<std::string> value = access.read(path);
  if (!value) {
    return fallback;
  }
  std::string remedy = value->empty() ? "it is there, but empty; write one of" : "write one of";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (*value == names[i]) {
      return i;
    }
    remedy += ' ' + detail::quoted(names[i]);
  }
  throw node_error(path, *value, writer, remedy);
}

/// The text of a node, or nothing where it is missing or may not be read. The directory of a device
/// that was removed is gone with its permissions, and whether its name exists is then a secret.
template <platform::node_access Access>
[[nodiscard]] std::optional<std::string> read_if_allowed(Access& access, std::string_view path) {
  try {
    return access.read(path);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::permission_denied) {
      throw;
    }
    return std::nullopt;
  }
}

/// The state in `directory`. A missing node and a value that is no state are both `unknown`:
/// whoever wrote it is not there to be talked to.
template <platform::node_access Access>
[[nodiscard]] xenbus_state read_state(Access& access, std::string_view directory) {
  const std::optional<std::string> value = read_if_allowed(access, join(directory, "state"));
  return value ? protocol::parse_xenbus_state(*value).value_or(xenbus_state::unknown)
               : xenbus_state::unknown;
}

/// Writes a node unless it holds this value already, so that no watch fires for nothing. Returns
/// whether it wrote.
template <platform::node_access Access>
bool write_if_changed(Access& access, std::string_view path, std::string_view value) {
  if (access.read(path) == value) {
    return false;
  }
  access.write(path, value);
  return true;
}

template <platform::node_access Access>
bool write_if_changed(Access& access, std::string_view path, std::unsigned_integral auto value) {
  return write_if_changed(access, path, std::string_view(std::to_string(value)));
}

}  // namespace pvring::xenbus
