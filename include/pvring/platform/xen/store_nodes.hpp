// SPDX-License-Identifier: MIT
// Access to the store's nodes over libxenstore, outside of a transaction or within one. Everything
// that the library returns is freed on every path.
#pragma once

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "../store.hpp"
#include "diagnosis.hpp"
#include "library.hpp"

namespace pvring::platform::detail {

struct free_memory {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
template <class T>
using owned = std::unique_ptr<T, free_memory>;

/// Whether the connection is lost, after a call failed with `error`.
[[nodiscard]] inline bool is_connection_lost(xs_handle* handle, int error) noexcept {
  switch (error) {
    case EBADF:
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
    case EIO:
      return true;
    case EINVAL:
      // The store's own word for a bad path, and the library's for a reply that never came. After
      // the latter the library has closed the connection, so this cannot wait.
      return !owned<char>(xs_get_domain_path(handle, 0));
    default:
      return false;
  }
}

/// Throws what `error` says about a call that did `what` ("write '/a/b'").
[[noreturn]] inline void throw_store_error(xs_handle* handle, int error, const std::string& what) {
  const char* remedy = "";
  if (is_connection_lost(handle, error)) {
    error = EIO;
    remedy = ": the connection to xenstored is lost, and only a new one will work";
  } else if (error == EACCES || error == EPERM) {
    remedy = ": the node's permissions do not allow it to this domain";
  } else if (error == ENOSPC) {
    remedy = ": this domain's quota in the store is used up";
  } else if (error == E2BIG) {
    remedy = ": longer than the store's messages";
  }
  throw std::system_error(error, std::generic_category(), "store: cannot " + what + remedy);
}

/// As a C string. What comes behind a zero would silently be left out: refused.
[[nodiscard]] inline std::string c_string(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    throw std::system_error(
        EINVAL, std::generic_category(),
        "store: '" + std::string(text.substr(0, text.find('\0'))) + "' is followed by a zero byte");
  }
  return std::string(text);
}

/// What `call` returns once no signal comes in between; errno is 0 where it set none.
template <class Call>
auto uninterrupted(Call&& call) {
  while (true) {
    errno = 0;
    auto result = call();
    if (result || errno != EINTR) {
      return result;
    }
  }
}

/// Models `node_access`.
class xenstore_nodes {
 public:
  [[nodiscard]] std::optional<std::string> read(std::string_view path) {
    const std::string node = c_string(path);
    unsigned length = 0;
    const owned<char> value(uninterrupted(
        [&] { return static_cast<char*>(xs_read(handle_, transaction_, node.c_str(), &length)); }));
    if (value) {
      return std::string(value.get(), length);
    }
    fail_unless_missing("read", node);
    return std::nullopt;
  }

  void write(std::string_view path, std::string_view value) {
    const std::string node = c_string(path);
    if (!uninterrupted([&] {
          return xs_write(handle_, transaction_, node.c_str(), value.data(),
                          static_cast<unsigned>(value.size()));
        })) {
      fail("write", node);
    }
  }

  void remove(std::string_view path) {
    const std::string node = c_string(path);
    if (!uninterrupted([&] { return xs_rm(handle_, transaction_, node.c_str()); })) {
      fail_unless_missing("remove", node);
    }
  }

  [[nodiscard]] std::vector<std::string> list(std::string_view path) {
    const std::string node = c_string(path);
    unsigned count = 0;
    // The names lie in the same piece of memory.
    const owned<char*> names(
        uninterrupted([&] { return xs_directory(handle_, transaction_, node.c_str(), &count); }));
    if (names) {
      return {names.get(), names.get() + count};
    }
    fail_unless_missing("list", node);
    return {};
  }

  void set_permissions(std::string_view path, node_permissions permissions) {
    const std::string node = c_string(path);
    // The first entry names the owner, who may do anything, and says what everybody else may.
    std::array<xs_permissions, 2> entries{
        {{permissions.owner, XS_PERM_NONE}, {permissions.reader.value_or(0), XS_PERM_READ}}};
    const unsigned count = permissions.reader ? 2 : 1;
    if (!uninterrupted([&] {
          return xs_set_permissions(handle_, transaction_, node.c_str(), entries.data(), count);
        })) {
      fail("set the permissions of", node);
    }
  }

 protected:
  xenstore_nodes(xs_handle* handle, xs_transaction_t transaction) noexcept
      : handle_(handle), transaction_(transaction) {}
  ~xenstore_nodes() = default;
  xenstore_nodes(const xenstore_nodes&) = default;
  xenstore_nodes& operator=(const xenstore_nodes&) = default;

  [[nodiscard]] xs_handle* handle() const noexcept { return handle_; }
  [[nodiscard]] xs_transaction_t id() const noexcept { return transaction_; }

  [[noreturn]] void fail(const char* what, const std::string& node) const {
    const int error = failure();
    throw_store_error(handle_, error, std::string(what) + " '" + node + "'");
  }

 private:
  void fail_unless_missing(const char* what, const std::string& node) const {
    if (errno != ENOENT) {
      fail(what, node);
    }
  }

  xs_handle* handle_;
  xs_transaction_t transaction_;
};

}  // namespace pvring::platform::detail
