// SPDX-License-Identifier: MIT
// In a network namespace of its own: nothing here touches the machine's network.
#include "pvring/net/tap_uplink.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sched.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pvring::net {
namespace {

using ::testing::HasSubstr;

// Namespaces belong to threads. Returns why it was not possible, or nothing.
std::string in_namespace(const std::function<void()>& body) {
  std::string why;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      why = std::string("no network namespace: ") + std::strerror(errno);
      return;
    }
    body();
  }).join();
  return why;
}

/// The kernel's end of a TAP device, as raw frames.
class kernel_side {
 public:
  explicit kernel_side(const std::string& name)
      : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    ifreq request{};
    std::memcpy(request.ifr_name, name.data(), name.size());
    EXPECT_EQ(::ioctl(socket_.get(), SIOCGIFFLAGS, &request), 0);
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_NOARP);
    EXPECT_EQ(::ioctl(socket_.get(), SIOCSIFFLAGS, &request), 0);
    EXPECT_EQ(::ioctl(socket_.get(), SIOCGIFINDEX, &request), 0);
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = request.ifr_ifindex;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  [[nodiscard]] bool send(const std::vector<std::byte>& frame) const {
    return ::send(socket_.get(), frame.data(), frame.size(), 0) ==
           static_cast<ssize_t>(frame.size());
  }
  // The next frame of this EtherType; the kernel's own (router solicitations) are passed over.
  [[nodiscard]] std::optional<std::vector<std::byte>> receive(std::byte type) const {
    for (int i = 0; i < 50; ++i) {
      pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 2000) != 1) {
        return std::nullopt;
      }
      std::vector<std::byte> frame(65'536);
      const ssize_t got = ::recv(socket_.get(), frame.data(), frame.size(), 0);
      if (got > 14 && frame[12] == type) {
        frame.resize(static_cast<std::size_t>(got));
        return frame;
      }
    }
    return std::nullopt;
  }

 private:
  unique_fd socket_;
};

std::vector<std::byte> frame_of(std::size_t length, std::byte type) {
  std::vector<std::byte> out(length, std::byte{7});
  std::fill_n(out.begin(), 6, std::byte{0xff});
  std::fill_n(out.begin() + 6, 6, std::byte{2});
  out[12] = type;
  out[13] = std::byte{0xb5};
  return out;
}

// A frame of the uplink's that is none of the kernel's own.
std::ptrdiff_t next(tap_uplink::port& port, std::vector<std::byte>& into, packet_info& info,
                    std::byte type) {
  for (int i = 0; i < 50; ++i) {
    pollfd ready{.fd = port.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 2000) != 1) {
      return 0;
    }
    info = {};
    const std::ptrdiff_t length = port.receive(into, info);
    if (length < 0 || (length > 14 && into[12] == type)) {
      return length;
    }
  }
  return 0;
}

constexpr std::byte experimental{0x88};

TEST(TapUplink, moves_frames_between_a_port_and_the_kernel) {
  const std::string why = in_namespace([] {
    tap_uplink uplink("pvr-t0");
    EXPECT_EQ(uplink.mtu(), 1500U);
    uplink.set_offloads({true, true, true, true, true});
    auto port = uplink.open(0);
    uplink.set_carrier(true);
    const kernel_side kernel("pvr-t0");
    for (const std::size_t length : {60U, 1000U, 1514U}) {
      const auto frame = frame_of(length, experimental);
      ASSERT_TRUE(kernel.send(frame));
      std::vector<std::byte> into(max_frame_bytes);
      packet_info info;
      ASSERT_EQ(next(port, into, info, experimental), static_cast<std::ptrdiff_t>(length));
      into.resize(length);
      EXPECT_EQ(into, frame);

      auto head = std::vector<std::byte>(frame.begin(), frame.begin() + 20);
      auto rest = std::vector<std::byte>(frame.begin() + 20, frame.end());
      const std::array<iovec, 2> parts{iovec{head.data(), head.size()},
                                       iovec{rest.data(), rest.size()}};
      ASSERT_EQ(port.transmit(parts, {}), 0);
      const auto got = kernel.receive(experimental);
      ASSERT_TRUE(got);
      EXPECT_EQ(*got, frame);
    }
  });
  if (!why.empty()) {
    GTEST_SKIP() << why;
  }
}

TEST(TapUplink, refuses_what_the_kernel_could_not_finish) {
  const std::string why = in_namespace([] {
    tap_uplink uplink("pvr-t1");
    auto port = uplink.open(0);
    const kernel_side kernel("pvr-t1");
    auto frame = frame_of(100, experimental);
    const std::array<iovec, 1> parts{iovec{frame.data(), frame.size()}};
    EXPECT_EQ(port.transmit(parts, {.checksum = checksum::blank}), -EINVAL);
    EXPECT_EQ(port.transmit(parts, {.gso = gso::tcpv4, .gso_size = 10}), -EINVAL);
    EXPECT_EQ(port.transmit(parts, {.checksum = checksum::validated}), 0);
  });
  if (!why.empty()) {
    GTEST_SKIP() << why;
  }
}

TEST(TapUplink, has_as_many_queues_as_are_opened_and_can_be_opened_again) {
  const std::string why = in_namespace([] {
    tap_uplink uplink("pvr-t2", 3);
    for (int round = 0; round < 3; ++round) {
      std::vector<tap_uplink::port> ports;
      for (std::uint32_t i = 0; i < 3; ++i) {
        ports.push_back(uplink.open(i));
      }
      const kernel_side kernel("pvr-t2");
      auto frame = frame_of(100, experimental);
      const std::array<iovec, 1> parts{iovec{frame.data(), frame.size()}};
      for (auto& port : ports) {
        ASSERT_EQ(port.transmit(parts, {}), 0);
        EXPECT_TRUE(kernel.receive(experimental));
      }
    }
  });
  if (!why.empty()) {
    GTEST_SKIP() << why;
  }
}

TEST(TapUplink, of_a_device_that_is_taken_away_says_so) {
  const std::string why = in_namespace([] {
    tap_uplink uplink("pvr-t3");
    auto port = uplink.open(0);
    const kernel_side kernel("pvr-t3");
    ASSERT_EQ(std::system("ip link delete pvr-t3"), 0);
    std::vector<std::byte> into(max_frame_bytes);
    packet_info info;
    EXPECT_LT(port.receive(into, info), 0);
    const std::array<iovec, 1> parts{iovec{into.data(), 100}};
    EXPECT_LT(port.transmit(parts, {}), 0);
  });
  if (!why.empty()) {
    GTEST_SKIP() << why;
  }
}

TEST(TapUplink, names_the_device_and_the_remedy) {
  EXPECT_THROW(tap_uplink(""), configuration_error);
  EXPECT_THROW(tap_uplink("a-name-that-is-too-long"), configuration_error);
  EXPECT_THROW(tap_uplink("x", 0), configuration_error);
  const std::string why = in_namespace([] {
    try {
      const tap_uplink loopback("lo");
      ADD_FAILURE() << "lo is no TAP device";
    } catch (const std::system_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("lo"));
      EXPECT_THAT(e.what(), HasSubstr("no TAP device"));
    }
  });
  if (!why.empty()) {
    GTEST_SKIP() << why;
  }
}

}  // namespace
}  // namespace pvring::net
