// SPDX-License-Identifier: MIT
// What a ring needs to know of a protocol: how long a slot is, how a request is fetched and a
// response stored. A custom protocol is a struct with these members.
#pragma once

#include <concepts>
#include <cstddef>

#include "shared_access.hpp"

namespace pvring::ring {

/// A protocol of a backend's ring.
///
/// - `fetch(source, request&)`: loads what it needs from the slot, each byte once.
/// - `echo_of(request, options...)`: what the response gives back; made from the private copy. The
/// queue calls it.
/// - `store(sink, echo, status)`: writes a response field by field, never with padding.
template <class P>
concept back_protocol = requires(slot_source source, slot_sink sink, typename P::request& request,
                                 const typename P::echo& echo, typename P::status status) {
  { P::slot_bytes } -> std::convertible_to<std::size_t>;
  { P::fetch(source, request) } noexcept -> std::same_as<void>;
  { P::store(sink, echo, status) } noexcept -> std::same_as<void>;
};

/// A protocol of a frontend's ring.
template <class P>
concept front_protocol =
    requires(slot_source source, slot_sink sink, const typename P::request& request) {
      { P::slot_bytes } -> std::convertible_to<std::size_t>;
      { P::store_request(sink, request) } noexcept -> std::same_as<void>;
      { P::fetch_response(source) } noexcept -> std::same_as<typename P::response>;
    };

}  // namespace pvring::ring
