// SPDX-License-Identifier: MIT
// The smallest protocol a ring can carry: a number goes, and comes back with a status.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pvring/ring/answer.hpp"
#include "pvring/ring/protocol.hpp"

struct ping_protocol {
  struct request {
    std::uint32_t number;
    std::uint32_t check;  // the number's complement: a torn or stale request shows
  };
  struct echo {
    std::uint32_t number;
  };
  using status = std::uint32_t;
  struct response {
    std::uint32_t number;
    std::uint32_t status;
  };
  static constexpr std::size_t slot_bytes = 8;

  template <class Source>
  static void fetch(Source slot, request& into) noexcept {
    into.number = slot.template load<std::uint32_t>(0);
    into.check = slot.template load<std::uint32_t>(4);
  }
  template <class Sink>
  static void store_request(Sink slot, const request& from) noexcept {
    slot.template store<std::uint32_t>(0, from.number);
    slot.template store<std::uint32_t>(4, from.check);
  }
  template <class Sink>
  static void store(Sink slot, const echo& to, status result) noexcept {
    slot.template store<std::uint32_t>(0, to.number);
    slot.template store<std::uint32_t>(4, result);
  }
  template <class Source>
  [[nodiscard]] static response fetch_response(Source slot) noexcept {
    return {slot.template load<std::uint32_t>(0), slot.template load<std::uint32_t>(4)};
  }
};

inline ping_protocol::request ping(std::uint32_t number) { return {number, ~number}; }
