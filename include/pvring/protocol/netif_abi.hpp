// SPDX-License-Identifier: MIT
// The transmit and receive rings of the network protocol as a ring sees them: how a request is
// fetched from a slot, each byte once, and how a response is stored. A slot may hold an extra info
// instead of a request or response; which it is, only the slot before it says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../base/untrusted.hpp"
#include "netif.hpp"

namespace pvring::protocol::netif {

/// A slot's extra info: a private copy that nobody has checked yet.
struct extra_info {
  std::uint8_t type = extra_type::none;
  std::uint8_t flags = 0;
  std::array<std::uint8_t, 6> data{};

  [[nodiscard]] std::uint16_t gso_size() const noexcept {
    return static_cast<std::uint16_t>(data[0] | data[1] << 8U);
  }
  [[nodiscard]] std::uint8_t gso_type() const noexcept { return data[2]; }
  [[nodiscard]] std::uint8_t hash_type() const noexcept { return data[0]; }
  [[nodiscard]] std::uint8_t hash_algorithm() const noexcept { return data[1]; }
  [[nodiscard]] std::uint32_t hash_value() const noexcept {
    return data[2] | std::uint32_t{data[3]} << 8U | std::uint32_t{data[4]} << 16U |
           std::uint32_t{data[5]} << 24U;
  }

  [[nodiscard]] static extra_info of_gso(std::uint8_t type, std::uint16_t size) noexcept {
    return {
        extra_type::gso,
        0,
        {static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(size >> 8U), type, 0, 0, 0}};
  }
  [[nodiscard]] static extra_info of_hash(std::uint8_t algorithm, std::uint8_t type,
                                          std::uint32_t value) noexcept {
    return {
        extra_type::hash,
        0,
        {type, algorithm, static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8U),
         static_cast<std::uint8_t>(value >> 16U), static_cast<std::uint8_t>(value >> 24U)}};
  }
  [[nodiscard]] static extra_info of_multicast(
      bool add, const std::array<std::uint8_t, 6>& address) noexcept {
    return {add ? extra_type::multicast_add : extra_type::multicast_delete, 0, address};
  }
};

namespace detail {
// An extra info as the two words that it lies in.
inline extra_info extra_from(std::uint32_t low, std::uint32_t high) noexcept {
  return {static_cast<std::uint8_t>(low),
          static_cast<std::uint8_t>(low >> 8U),
          {static_cast<std::uint8_t>(low >> 16U), static_cast<std::uint8_t>(low >> 24U),
           static_cast<std::uint8_t>(high), static_cast<std::uint8_t>(high >> 8U),
           static_cast<std::uint8_t>(high >> 16U), static_cast<std::uint8_t>(high >> 24U)}};
}
inline std::uint32_t low_of(const extra_info& from) noexcept {
  return from.type | std::uint32_t{from.flags} << 8U | std::uint32_t{from.data[0]} << 16U |
         std::uint32_t{from.data[1]} << 24U;
}
inline std::uint32_t high_of(const extra_info& from) noexcept {
  return from.data[2] | std::uint32_t{from.data[3]} << 8U | std::uint32_t{from.data[4]} << 16U |
         std::uint32_t{from.data[5]} << 24U;
}
}  // namespace detail

/// A part of a packet that the guest sends.
struct tx_request {
  std::uint32_t gref = 0;
  untrusted<std::uint16_t> offset;  ///< bytes into the page
  std::uint16_t flags = 0;          ///< see tx_flag
  std::uint16_t id = 0;             ///< the peer's own mark, given back as it is
  untrusted<std::uint16_t> size;    ///< bytes; in a packet's first request those of the packet
};

/// A transmit slot as fetched: a private copy of all its bytes, read as whatever it turns out to
/// be.
class tx_slot {
 public:
  tx_slot() = default;
  explicit tx_slot(const tx_request& from) noexcept
      : words_{from.gref, from.offset.echo() | std::uint32_t{from.flags} << 16U,
               from.id | std::uint32_t{from.size.echo()} << 16U} {}
  explicit tx_slot(const extra_info& from) noexcept
      : words_{detail::low_of(from), detail::high_of(from), 0} {}

  [[nodiscard]] tx_request as_request() const noexcept {
    return {words_[0], untrusted(static_cast<std::uint16_t>(words_[1])),
            static_cast<std::uint16_t>(words_[1] >> 16U), static_cast<std::uint16_t>(words_[2]),
            untrusted(static_cast<std::uint16_t>(words_[2] >> 16U))};
  }
  [[nodiscard]] extra_info as_extra() const noexcept {
    return detail::extra_from(words_[0], words_[1]);
  }

 private:
  friend struct tx_wire;
  std::array<std::uint32_t, 3> words_{};
};

/// The transmit ring: a protocol for back_ring and front_ring.
struct tx_wire {
  using request = tx_slot;
  using status = netif::status;
  struct echo {
    std::uint16_t id;
  };
  struct response {
    std::uint16_t id;
    std::int16_t status;
  };

  static constexpr std::size_t slot_bytes = sizeof(tx_request_layout);

  // Slots of 12 bytes are aligned to 4: nothing wider can be loaded at once.
  template <class Source>
  static void fetch(Source slot, request& into) noexcept {
    for (std::size_t i = 0; i < into.words_.size(); ++i) {
      into.words_[i] = slot.template load<std::uint32_t>(i * sizeof(std::uint32_t));
    }
  }

  template <class Sink>
  static void store_request(Sink slot, const request& from) noexcept {
    for (std::size_t i = 0; i < from.words_.size(); ++i) {
      slot.template store<std::uint32_t>(i * sizeof(std::uint32_t), from.words_[i]);
    }
  }

  /// What the response to a request gives back. An extra info has no id: its response, of status
  /// null, has whatever `echo` says.
  [[nodiscard]] static echo echo_of(const tx_request& from) noexcept { return {from.id}; }

  template <class Sink>
  static void store(Sink slot, const echo& to, status result) noexcept {
    slot.template store<std::uint32_t>(
        0, to.id | std::uint32_t{static_cast<std::uint16_t>(result)} << 16U);
  }

  template <class Source>
  [[nodiscard]] static response fetch_response(Source slot) noexcept {
    const auto word = slot.template load<std::uint32_t>(0);
    return {static_cast<std::uint16_t>(word), static_cast<std::int16_t>(word >> 16U)};
  }
};

/// What becomes of a receive slot: a part of a packet, or an extra info.
struct rx_outcome {
  bool is_extra = false;
  std::uint16_t offset = 0;  ///< bytes into the page
  std::uint16_t flags = 0;   ///< see rx_flag
  std::int16_t status = 0;   ///< bytes, or a negative status
  extra_info extra;
};

/// The receive ring: a protocol for back_ring and front_ring.
struct rx_wire {
  struct request {
    std::uint32_t gref = 0;
    std::uint16_t id = 0;
  };
  using status = rx_outcome;
  struct echo {
    std::uint16_t id;
  };
  /// A response as fetched: a private copy, read as whatever it turns out to be.
  struct response {
    std::uint32_t low = 0;
    std::uint32_t high = 0;

    [[nodiscard]] std::uint16_t id() const noexcept { return static_cast<std::uint16_t>(low); }
    [[nodiscard]] std::uint16_t offset() const noexcept {
      return static_cast<std::uint16_t>(low >> 16U);
    }
    [[nodiscard]] std::uint16_t flags() const noexcept { return static_cast<std::uint16_t>(high); }
    [[nodiscard]] std::int16_t status() const noexcept {
      return static_cast<std::int16_t>(high >> 16U);
    }
    [[nodiscard]] extra_info as_extra() const noexcept { return detail::extra_from(low, high); }
  };

  static constexpr std::size_t slot_bytes = sizeof(rx_request_layout);

  template <class Source>
  static void fetch(Source slot, request& into) noexcept {
    into.id = slot.template load<std::uint16_t>(offsetof(rx_request_layout, id));
    into.gref = slot.template load<std::uint32_t>(offsetof(rx_request_layout, gref));
  }

  template <class Sink>
  static void store_request(Sink slot, const request& from) noexcept {
    slot.template store<std::uint32_t>(offsetof(rx_request_layout, id), from.id);
    slot.template store<std::uint32_t>(offsetof(rx_request_layout, gref), from.gref);
  }

  [[nodiscard]] static echo echo_of(const request& from) noexcept { return {from.id}; }

  template <class Sink>
  static void store(Sink slot, const echo& to, const status& result) noexcept {
    if (result.is_extra) {
      slot.template store<std::uint32_t>(0, detail::low_of(result.extra));
      slot.template store<std::uint32_t>(4, detail::high_of(result.extra));
    } else {
      slot.template store<std::uint32_t>(0, to.id | std::uint32_t{result.offset} << 16U);
      slot.template store<std::uint32_t>(
          4, result.flags | std::uint32_t{static_cast<std::uint16_t>(result.status)} << 16U);
    }
  }

  template <class Source>
  [[nodiscard]] static response fetch_response(Source slot) noexcept {
    return {slot.template load<std::uint32_t>(0), slot.template load<std::uint32_t>(4)};
  }
};

}  // namespace pvring::protocol::netif
