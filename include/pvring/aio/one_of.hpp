// SPDX-License-Identifier: MIT
// An engine that is one of several, decided when an image is opened: by its name, by what this
// kernel allows. What that costs is one branch per pass, not per request; what it saves is a
// compiled backend per engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "../base/config.hpp"
#include "counters.hpp"
#include "engine.hpp"

namespace pvring::aio {

namespace detail {

/// Calls `f` with what a variant holds, one of the alternatives from `I` on: unlike std::visit it
/// cannot throw. A chain of comparisons, whose outcome is the same in every pass.
template <std::size_t I, class Variant, class F>
decltype(auto) dispatch(Variant& of, F& f) noexcept {
  if constexpr (I + 1 == std::variant_size_v<std::remove_const_t<Variant>>) {
    return f(*std::get_if<I>(&of));
  } else {
    if (of.index() == I) {
      return f(*std::get_if<I>(&of));
    }
    return dispatch<I + 1>(of, f);
  }
}

}  // namespace detail

/// Two engines that share a type of image cannot be told apart: the types are distinct.
template <engine... Engines>
struct one_of {
  using policy_kind = pvring::policy_kind::engine;
  class image;
  class context;
};

/// The image of one of the engines. It answers what that one answers.
template <engine... Engines>
class one_of<Engines...>::image {
 public:
  /// Opens it with what that image's constructor takes. \throws what that throws
  template <class Image, class... Arguments>
  explicit image(std::in_place_type_t<Image> which, Arguments&&... arguments)
      : images_(which, std::forward<Arguments>(arguments)...) {}

  image(const image&) = delete;
  image& operator=(const image&) = delete;

  [[nodiscard]] std::uint64_t size() const noexcept {
    return ask([](const auto& of) noexcept { return of.size(); });
  }
  [[nodiscard]] bool read_only() const noexcept {
    return ask([](const auto& of) noexcept { return of.read_only(); });
  }
  [[nodiscard]] bool can_flush() const noexcept {
    return ask([](const auto& of) noexcept { return of.can_flush(); });
  }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept {
    return ask([](const auto& of) noexcept { return of.discard_granularity(); });
  }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept {
    return ask([](const auto& of) noexcept { return of.physical_block_size(); });
  }
  [[nodiscard]] bool buffers_free_at_completion() const noexcept {
    return ask([](const auto& of) noexcept { return of.buffers_free_at_completion(); });
  }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept {
    return ask([](const auto& of) noexcept { return of.buffers_free_at_exit(); });
  }
  [[nodiscard]] std::uint32_t alignment() const noexcept {
    return ask([](const auto& of) noexcept { return of.alignment(); });
  }
  [[nodiscard]] std::string_view name() const noexcept {
    return ask([](const auto& of) noexcept { return std::string_view(of.name()); });
  }

  /// What the image has beyond the concept, where it has it.
  std::uint64_t refresh_size() {
    return std::visit(
        [](auto& of) {
          if constexpr (requires { of.refresh_size(); }) {
            return std::uint64_t{of.refresh_size()};
          } else {
            return std::uint64_t{of.size()};
          }
        },
        images_);
  }
  [[nodiscard]] std::string identity() const {
    return std::visit(
        [](const auto& of) {
          if constexpr (requires { of.identity(); }) {
            return std::string(of.identity());
          } else {
            return std::string(of.name());
          }
        },
        images_);
  }

  [[nodiscard]] bool guarded() const noexcept {
    return ask([](const auto& of) noexcept {
      if constexpr (requires { of.guarded(); }) {
        return bool{of.guarded()};
      } else {
        return true;
      }
    });
  }
  [[nodiscard]] std::uint32_t most_contexts() const noexcept {
    return ask([](const auto& of) noexcept {
      if constexpr (requires { of.most_contexts(); }) {
        return std::uint32_t{of.most_contexts()};
      } else {
        return std::numeric_limits<std::uint32_t>::max();
      }
    });
  }

  /// Calls `f` with the image as what it is.
  template <class F>
  decltype(auto) visit(F&& f) {
    return std::visit(std::forward<F>(f), images_);
  }

 private:
  friend class context;

  template <class F>
  decltype(auto) ask(F f) const noexcept {
    return detail::dispatch<0>(images_, f);
  }

  std::variant<typename Engines::image...> images_;
};

/// A context on such an image: that of the image's engine.
template <engine... Engines>
class one_of<Engines...>::context {
 public:
  /// \throws what that engine's context throws
  context(image& of, context_options options) {
    make(of, options, std::index_sequence_for<Engines...>());
  }

  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() = default;

  void submit(std::span<transfer* const> batch) noexcept {
    with([=](auto& c) noexcept { c.submit(batch); });
  }
  template <class F>
  std::size_t reap(F&& f) noexcept {
    return with([&](auto& c) noexcept { return c.reap(f); });
  }
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return with([](const auto& c) noexcept { return c.in_flight(); });
  }
  [[nodiscard]] std::size_t capacity() const noexcept {
    return with([](const auto& c) noexcept { return c.capacity(); });
  }
  [[nodiscard]] int fd() const noexcept {
    return with([](const auto& c) noexcept { return c.fd(); });
  }
  [[nodiscard]] bool arm() noexcept {
    return with([](auto& c) noexcept { return c.arm(); });
  }
  void disarm() noexcept {
    with([](auto& c) noexcept { c.disarm(); });
  }
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const noexcept {
    return with([](const auto& c) noexcept -> std::optional<std::chrono::steady_clock::time_point> {
      if constexpr (requires { c.deadline(); }) {
        return c.deadline();
      } else {
        return std::nullopt;
      }
    });
  }
  void expect_buffers_in(std::span<std::byte> region) noexcept {
    with([=](auto& c) noexcept {
      if constexpr (requires { c.expect_buffers_in(region); }) {
        c.expect_buffers_in(region);
      }
    });
  }
  /// Zeroes where the engine counts nothing.
  [[nodiscard]] aio::counters& counters() noexcept {
    return with([this](auto& c) noexcept -> aio::counters& {
      if constexpr (requires { c.counters(); }) {
        return c.counters();
      } else {
        return nothing_;
      }
    });
  }

 private:
  template <std::size_t... I>
  void make(image& of, context_options options, std::index_sequence<I...>) {
    ((of.images_.index() == I
          ? (void)contexts_.template emplace<I + 1>(std::get<I>(of.images_), options)
          : void()),
     ...);
  }

  // The first alternative is there only until the right one is made.
  template <class F>
  decltype(auto) with(F f) noexcept {
    return detail::dispatch<1>(contexts_, f);
  }
  template <class F>
  decltype(auto) with(F f) const noexcept {
    return detail::dispatch<1>(contexts_, f);
  }

  std::variant<std::monostate, typename Engines::context...> contexts_;
  aio::counters nothing_;
};

}  // namespace pvring::aio
