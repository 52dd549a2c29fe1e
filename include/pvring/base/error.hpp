// SPDX-License-Identifier: MIT
// The named ways in which things go wrong outside the data path: what a peer did to break the
// protocol, and what is wrong with a node, an image or an option. The data path itself speaks
// negative errno values.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pvring {

/// A domain's number, as hypervisor and store use it.
using domain_id = std::uint16_t;

/// What a peer did to break the protocol. The device it happened on is closed; nothing else is.
enum class protocol_error : std::uint8_t {
  none,
  request_producer_overrun,  ///< req_prod is further ahead of our responses than the ring has slots
  response_producer_overrun,    ///< rsp_prod is ahead of the requests (seen by a frontend)
  attach_indices_inconsistent,  ///< req_prod and rsp_prod of a ring to attach to do not fit each
                                ///< other
  unknown_response,             ///< a response whose id is not in flight (seen by a frontend)
  wrong_response_operation,     ///< a response that echoes another operation (seen by a frontend)
  packet_unfinished,            ///< a packet whose slots run past req_prod
  packet_crosses_page,          ///< a packet's slot that reaches past the end of its page
  packet_too_many_slots,        ///< a packet of more slots than anybody sends
  packet_bad_extra,             ///< an extra info of a type that is not known, or too many of them
};

/// The error's name, as logs and the store's error node show it.
[[nodiscard]] constexpr std::string_view to_string(protocol_error error) noexcept {
  switch (error) {
    case protocol_error::none:
      return "none";
    case protocol_error::request_producer_overrun:
      return "request producer overran the ring";
    case protocol_error::response_producer_overrun:
      return "response producer overran the requests";
    case protocol_error::attach_indices_inconsistent:
      return "ring indices do not fit each other";
    case protocol_error::unknown_response:
      return "response to a request that is not in flight";
    case protocol_error::wrong_response_operation:
      return "response with another operation than its request";
    case protocol_error::packet_unfinished:
      return "packet whose slots run past the request producer";
    case protocol_error::packet_crosses_page:
      return "packet slot that reaches past the end of its page";
    case protocol_error::packet_too_many_slots:
      return "packet of too many slots";
    case protocol_error::packet_bad_extra:
      return "packet with extra info of an unknown type, or with too much of it";
  }
  return "unknown protocol error";
}

/// A setting, image or option that cannot be used; the message says which, why, and what to do.
class configuration_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something that another process has now, or one that has not quite ended. It may be worth trying
/// again.
class in_use_error : public configuration_error {
 public:
  using configuration_error::configuration_error;
};

/// A store node that is missing, malformed or out of range. The message names node, value, domain
/// and remedy.
class node_error : public configuration_error {
 public:
  /// \param node   full path of the node
  /// \param value  what it held; empty when it is missing
  /// \param domain the domain that writes it
  /// \param remedy what would be accepted
  node_error(std::string node, std::string value, domain_id domain, std::string_view remedy)
      : configuration_error(
            "node " + node + " (written by domain " + std::to_string(domain) + ") " +
            (value.empty() ? std::string("is missing") : "is '" + printable(value) + "'") + ": " +
            std::string(remedy)),
        node_(std::move(node)),
        value_(std::move(value)),
        domain_(domain) {}

  [[nodiscard]] const std::string& node() const noexcept { return node_; }
  [[nodiscard]] const std::string& value() const noexcept { return value_; }
  [[nodiscard]] domain_id domain() const noexcept { return domain_; }

 private:
  // A peer chooses the value: what is logged is bounded in length and free of control characters.
  static std::string printable(std::string_view value) {
    constexpr std::size_t longest = 64;
    std::string out;
    for (char c : value.substr(0, longest)) {
      out += (c >= ' ' && c < '\x7f') ? c : '?';
    }
    if (value.size() > longest) {
      out += "...";
    }
    return out;
  }

  std::string node_;
  std::string value_;
  domain_id domain_;
};

}  // namespace pvring
