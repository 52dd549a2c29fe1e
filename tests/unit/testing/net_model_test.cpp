// SPDX-License-Identifier: MIT
// The model of a queue's packets: each kind of damage is told from a packet that is right.
#include "pvring/testing/net_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pvring::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

std::vector<std::byte> frame(std::size_t bytes, std::uint32_t sequence, std::uint8_t stream = 0) {
  std::vector<std::byte> out(bytes);
  make_frame(out, stream, sequence);
  return out;
}

// Three packets that were sent.
class NetModel : public ::testing::Test {
 protected:
  void send(net_model& model) const {
    model.sent(14, {});
    model.sent(100, info);
    model.sent(5000, {});
  }
  static std::vector<std::byte> packet(std::uint32_t number) {
    constexpr std::size_t lengths[] = {14, 100, 5000};
    return frame(lengths[number], number);
  }

  net::packet_info info{
      .checksum = net::checksum::blank, .gso = net::gso::tcpv4, .gso_size = 50, .hash = {1, 2, 3}};
};

TEST_F(NetModel, TakesWhatArrivesAsItWasSent) {
  net_model model;
  send(model);
  EXPECT_EQ(model.next(), 3U);
  EXPECT_EQ(model.arrived(packet(0), {}), std::nullopt);
  EXPECT_EQ(model.arrived(packet(1), info), std::nullopt);
  EXPECT_EQ(model.pending(), 1U);
  EXPECT_EQ(model.arrived(packet(2), {}), std::nullopt);
  EXPECT_EQ(model.pending(), 0U);
  EXPECT_EQ(model.arrived(), 3U);
}

TEST_F(NetModel, NoticesAPacketThatIsLost) {
  net_model model;
  send(model);
  EXPECT_THAT(model.arrived(packet(1), info),
              Optional(HasSubstr("packet 1 came where 0 was next")));
}

TEST_F(NetModel, CountsWhatMayBeLost) {
  net_model model(0, net_losses::allowed);
  send(model);
  EXPECT_EQ(model.arrived(packet(1), info), std::nullopt);
  EXPECT_EQ(model.lost(), 1U);
  EXPECT_THAT(model.arrived(packet(0), {}),
              Optional(HasSubstr("packet 0 came twice, or was overtaken")))
      << "the order is kept, whatever is lost";
  EXPECT_EQ(model.give_up(), 1U);
  EXPECT_EQ(model.lost(), 2U);
  EXPECT_EQ(model.pending(), 0U);
}

TEST_F(NetModel, NoticesAPacketThatCameTwiceOrWasNeverSent) {
  net_model model;
  send(model);
  EXPECT_EQ(model.arrived(packet(0), {}), std::nullopt);
  EXPECT_THAT(model.arrived(packet(0), {}), Optional(HasSubstr("came twice")));
  EXPECT_THAT(model.arrived(frame(60, 3), {}), Optional(HasSubstr("packet 3 was never sent")));
}

TEST_F(NetModel, NoticesAPacketOfAnotherStreamOrOfNone) {
  net_model model(7);
  model.sent(60, {});
  EXPECT_THAT(model.arrived(frame(60, 0, 8), {}), Optional(HasSubstr("none of stream 7")));
  EXPECT_THAT(model.arrived(std::vector<std::byte>(60), {}), Optional(HasSubstr("none of stream")));
  EXPECT_THAT(model.arrived(std::vector<std::byte>(13), {}), Optional(HasSubstr("13 bytes")));
  EXPECT_EQ(model.arrived(frame(60, 0, 7), {}), std::nullopt);
}

TEST_F(NetModel, NoticesEachByteThatIsNotAsItWasSent) {
  for (const std::size_t at : {0U, 13U, 14U, 63U, 99U}) {
    net_model model;
    model.sent(100, {});
    auto bytes = frame(100, 0);
    bytes[at] ^= std::byte{1};
    EXPECT_NE(model.arrived(bytes, {}), std::nullopt) << "byte " << at;
  }
}

TEST_F(NetModel, NoticesAnotherLength) {
  for (const std::size_t length : {99U, 101U}) {
    net_model model;
    model.sent(100, {});
    EXPECT_THAT(model.arrived(frame(length, 0), {}),
                Optional(HasSubstr(std::to_string(length) + " bytes of 100")));
  }
}

TEST_F(NetModel, NoticesWhatIsSaidOfAPacketAndWasNot) {
  const auto arrives = [this](auto&& change) {
    net_model model;
    model.sent(100, info);
    net::packet_info changed = info;
    change(changed);
    return model.arrived(frame(100, 0), changed);
  };
  EXPECT_EQ(arrives([](net::packet_info&) {}), std::nullopt);
  EXPECT_THAT(arrives([](auto& i) { i.checksum = net::checksum::validated; }),
              Optional(HasSubstr("checksum state 2 in place of 1")));
  EXPECT_THAT(arrives([](auto& i) { i.gso = net::gso::tcpv6; }),
              Optional(HasSubstr("segmentation 2 in place of 1")));
  EXPECT_THAT(arrives([](auto& i) { i.gso_size = 49; }), Optional(HasSubstr("segment size 49")));
  EXPECT_THAT(arrives([](auto& i) { i.hash.algorithm = 0; }),
              Optional(HasSubstr("hash algorithm 0")));
  EXPECT_THAT(arrives([](auto& i) { i.hash.type = 0; }), Optional(HasSubstr("hash type 0")));
  EXPECT_THAT(arrives([](auto& i) { i.hash.value = 4; }), Optional(HasSubstr("hash 4")));
}

TEST_F(NetModel, ExpectsNoHashWhereNoneWasAgreed) {
  net_model model(0, net_losses::none, false);
  model.sent(100, {.hash = {1, 2, 3}});
  EXPECT_EQ(model.arrived(frame(100, 0), {}), std::nullopt);
  model.sent(100, {.hash = {1, 2, 3}});
  EXPECT_NE(model.arrived(frame(100, 1), {.hash = {1, 2, 3}}), std::nullopt);
}

TEST_F(NetModel, MakesFramesForSingleStationsThatDifferEverywhere) {
  const auto one = frame(4096, 1);
  const auto two = frame(4096, 2);
  EXPECT_EQ(one[0] & std::byte{1}, std::byte{0}) << "for one station";
  EXPECT_EQ(sequence_of(one, 0), 1U);
  std::size_t same = 0;
  for (std::size_t at = 14; at < one.size(); ++at) {
    same += one[at] == two[at] ? 1 : 0;
  }
  EXPECT_LT(same, one.size() / 64) << "by chance one byte of 256 is the same";
  EXPECT_EQ(sequence_of(frame(60, 0xfedcba98U), 0), 0xfedcba98U);
}

}  // namespace
}  // namespace pvring::testing
