// SPDX-License-Identifier: MIT
// See fake_xen.hpp. Everything that is returned comes from malloc, as from the library.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake_xen.hpp"

struct xs_handle {};

namespace fake {

void store_daemon::fire(const std::string& path, const std::string& token) {
  if (events.empty() && pipe[1] >= 0 && ::write(pipe[1], "", 1) != 1) {
    std::abort();
  }
  events.emplace_back(path, token);
}

bool store_daemon::refuses(const std::string& call) {
  if (dead) {
    errno = dead_error;
    return true;
  }
  return fails(calls[call]);
}

}  // namespace fake

namespace {

fake::store_daemon& the_daemon() { return fake::current->store; }

char* copy_of(const std::string& text) {
  auto* memory = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(memory, text.c_str(), text.size() + 1);
  return memory;
}

}  // namespace

extern "C" {

xs_handle* xs_open(unsigned long) {
  if (fake::fails(the_daemon().open)) {
    return nullptr;
  }
  fake::current->order.emplace_back("open store");
  return new xs_handle;
}

void xs_close(xs_handle* handle) {
  fake::current->order.emplace_back("close store");
  delete handle;
}

void xs_daemon_destroy_postfork(xs_handle* handle) {
  fake::current->order.emplace_back("drop store");
  delete handle;
}

const char* xs_daemon_socket() { return "/run/xenstored/socket"; }

char* xs_get_domain_path(xs_handle*, unsigned domain) {
  if (the_daemon().dead && the_daemon().dead_for_domain_path) {
    errno = EBADF;
    return nullptr;
  }
  return copy_of("/local/domain/" + std::to_string(domain));
}

void* xs_read(xs_handle*, xs_transaction_t t, const char* path, unsigned* length) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("read")) {
    return nullptr;
  }
  const auto& nodes = t != XBT_NULL && s.changed.contains(path) ? s.changed : s.nodes;
  const auto at = nodes.find(path);
  if (at == nodes.end()) {
    errno = ENOENT;
    return nullptr;
  }
  *length = static_cast<unsigned>(at->second.size());
  return copy_of(at->second);
}

bool xs_write(xs_handle*, xs_transaction_t t, const char* path, const void* data, unsigned length) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("write")) {
    return false;
  }
  const std::string value(static_cast<const char*>(data), length);
  (t != XBT_NULL ? s.changed : s.nodes)[path] = value;
  return true;
}

bool xs_rm(xs_handle*, xs_transaction_t, const char* path) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("rm")) {
    return false;
  }
  if (s.nodes.erase(path) == 0) {
    errno = ENOENT;
    return false;
  }
  return true;
}

char** xs_directory(xs_handle*, xs_transaction_t, const char* path, unsigned* count) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("directory")) {
    return nullptr;
  }
  const std::string top = std::string(path) + "/";
  std::vector<std::string> names;
  std::size_t bytes = 0;
  for (const auto& [node, value] : s.nodes) {
    if (node.starts_with(top)) {
      names.push_back(node.substr(top.size()));
      bytes += names.back().size() + 1;
    }
  }
  if (names.empty() && !s.nodes.contains(path)) {
    errno = ENOENT;
    return nullptr;
  }
  // Never nothing: malloc might return null for it, which would be a failure.
  auto** memory = static_cast<char**>(std::malloc(names.size() * sizeof(char*) + bytes + 1));
  char* text = reinterpret_cast<char*>(memory + names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    memory[i] = text;
    std::memcpy(text, names[i].c_str(), names[i].size() + 1);
    text += names[i].size() + 1;
  }
  *count = static_cast<unsigned>(names.size());
  return memory;
}

bool xs_set_permissions(xs_handle*, xs_transaction_t, const char* path, xs_permissions* entries,
                        unsigned count) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("set_permissions")) {
    return false;
  }
  s.permissions[path].assign(entries, entries + count);
  return true;
}

bool xs_watch(xs_handle*, const char* path, const char* token) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("watch")) {
    return false;
  }
  s.watches.emplace_back(path, token);
  s.fire(path, token);
  return true;
}

bool xs_unwatch(xs_handle*, const char* path, const char* token) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("unwatch")) {
    return false;
  }
  if (std::erase(s.watches, std::pair<std::string, std::string>(path, token)) == 0) {
    errno = ENOENT;
    return false;
  }
  return true;
}

int xs_fileno(xs_handle*) {
  fake::store_daemon& s = the_daemon();
  if (fake::fails(s.calls["fileno"])) {
    return -1;
  }
  if (s.pipe[0] < 0 && ::pipe(s.pipe) != 0) {
    std::abort();
  }
  return s.pipe[0];
}

char** xs_check_watch(xs_handle*) {
  fake::store_daemon& s = the_daemon();
  if (fake::fails(s.calls["check_watch"])) {
    return nullptr;
  }
  if (s.events.empty()) {
    // The library's own answers: nothing yet, or never again.
    errno = s.dead ? EINVAL : EAGAIN;
    return nullptr;
  }
  const auto [path, token] = s.events.front();
  s.events.pop_front();
  char none = 0;
  if (s.events.empty() && ::read(s.pipe[0], &none, 1) != 1) {
    std::abort();
  }
  auto** memory =
      static_cast<char**>(std::malloc(2 * sizeof(char*) + path.size() + token.size() + 2));
  memory[0] = reinterpret_cast<char*>(memory + 2);
  memory[1] = memory[0] + path.size() + 1;
  std::memcpy(memory[0], path.c_str(), path.size() + 1);
  std::memcpy(memory[1], token.c_str(), token.size() + 1);
  return memory;
}

xs_transaction_t xs_transaction_start(xs_handle*) {
  fake::store_daemon& s = the_daemon();
  if (s.refuses("transaction_start")) {
    return XBT_NULL;
  }
  ++s.starts;
  s.changed.clear();
  return ++s.transaction;
}

bool xs_transaction_end(xs_handle*, xs_transaction_t, bool abort) {
  fake::store_daemon& s = the_daemon();
  s.ends.emplace_back(abort ? "abort" : "commit");
  if (s.refuses("transaction_end") || (!abort && fake::fails(s.commit))) {
    return false;
  }
  if (!abort) {
    for (const auto& [path, value] : s.changed) {
      s.nodes[path] = value;
    }
  }
  s.changed.clear();
  return true;
}

}  // extern "C"
