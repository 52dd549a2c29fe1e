// SPDX-License-Identifier: MIT
// A store connection of any platform. It models pvring::platform::store, so that everything but
// the backend itself is compiled once and not for each platform.
#pragma once

#include <functional>
#include <optional>
#include <pvring/platform/store.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

/// A store, or a transaction in it.
class store_access {
 public:
  store_access() = default;
  store_access(const store_access&) = delete;
  store_access& operator=(const store_access&) = delete;
  virtual ~store_access() = default;

  virtual std::optional<std::string> read(std::string_view path) = 0;
  virtual void write(std::string_view path, std::string_view value) = 0;
  virtual void remove(std::string_view path) = 0;
  virtual std::vector<std::string> list(std::string_view path) = 0;
  virtual void set_permissions(std::string_view path,
                               pvring::platform::node_permissions permissions) = 0;
};

class store_connection : public store_access {
 public:
  using transaction = store_access;

  virtual void transact(const std::function<void(transaction&)>& body) = 0;
  virtual void watch(std::string_view path, std::string_view token) = 0;
  virtual void unwatch(std::string_view path, std::string_view token) = 0;
  [[nodiscard]] virtual int fd() const noexcept = 0;
  virtual std::optional<pvring::platform::watch_event> next_event() = 0;
};

static_assert(pvring::platform::store<store_connection>);

/// What `Access` can do, behind the interface `Base`.
template <class Access, class Base>
class forwarding_access : public Base {
 public:
  std::optional<std::string> read(std::string_view path) override { return to().read(path); }
  void write(std::string_view path, std::string_view value) override { to().write(path, value); }
  void remove(std::string_view path) override { to().remove(path); }
  std::vector<std::string> list(std::string_view path) override { return to().list(path); }
  void set_permissions(std::string_view path,
                       pvring::platform::node_permissions permissions) override {
    to().set_permissions(path, permissions);
  }

 private:
  [[nodiscard]] virtual Access& to() noexcept = 0;
};

/// A platform's transaction behind the interface.
template <class Transaction>
class transaction_of final : public forwarding_access<Transaction, store_access> {
 public:
  explicit transaction_of(Transaction& inner) : inner_(inner) {}

 private:
  [[nodiscard]] Transaction& to() noexcept override { return inner_; }
  Transaction& inner_;
};

/// A platform's connection behind the interface.
template <pvring::platform::store Store>
class connection_of final : public forwarding_access<Store, store_connection> {
 public:
  explicit connection_of(Store store) : store_(std::move(store)) {}

  void transact(const std::function<void(store_access&)>& body) override {
    store_.transact([&body](typename Store::transaction& inner) {
      transaction_of<typename Store::transaction> t(inner);
      body(t);
    });
  }
  void watch(std::string_view path, std::string_view token) override { store_.watch(path, token); }
  void unwatch(std::string_view path, std::string_view token) override {
    store_.unwatch(path, token);
  }
  [[nodiscard]] int fd() const noexcept override { return store_.fd(); }
  std::optional<pvring::platform::watch_event> next_event() override { return store_.next_event(); }

 private:
  [[nodiscard]] Store& to() noexcept override { return store_; }
  Store store_;
};

}  // namespace tool
