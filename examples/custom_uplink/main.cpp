// SPDX-License-Identifier: MIT
// Two guests talk through the network backend, and one of them has an uplink that writes down what
// passes. Checks that the file holds what was sent.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <pvring/net/backend.hpp>
#include <pvring/net/pair_uplink.hpp>
#include <pvring/platform/emulated.hpp>
#include <pvring/testing/strict_net_frontend.hpp>
#include <pvring/xenbus/toolstack.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "capture.hpp"

namespace {

using namespace std::chrono_literals;
namespace net = pvring::net;

struct plain : net::default_config {
  using uplink = net::pair_uplink;
};
struct captured : net::default_config {
  using uplink = capture<net::pair_uplink>;
};
static_assert(net::backend_config<captured>);

/// A guest's device, and its backend on a thread.
template <class Config>
class vif {
 public:
  vif(const pvring::platform::emulated_host& machine, pvring::domain_id domain,
      typename Config::uplink& uplink)
      : host_(machine), guest_(machine.create_domain(domain)), store_(host_.open_store()) {
    const auto path = pvring::xenbus::create_device(
        store_, pvring::xenbus::describe_vif({.frontend_domain = domain, .type = "vif"}, {}));
    backend_.emplace(host_, net::identity{.domain = domain}, uplink);
    thread_ = std::thread([this] { backend_->run(); });
    front_.emplace(machine, path.identity());
    if (!front_->connect()) {
      throw std::runtime_error("domain " + std::to_string(domain) + ": " + front_->error());
    }
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
  ~vif() {
    front_->close();
    backend_->stop();
    thread_.join();
  }
  vif(const vif&) = delete;
  vif& operator=(const vif&) = delete;
  pvring::testing::strict_net_frontend& front() { return *front_; }

 private:
  pvring::platform::emulated host_;
  pvring::platform::emulated_guest guest_;
  pvring::platform::emulated_store store_;
  std::optional<net::backend<Config>> backend_;
  std::thread thread_;
  std::optional<pvring::testing::strict_net_frontend> front_;
};

int run(const std::string& file) {
  constexpr std::uint64_t packets = 1000;
  constexpr std::size_t bytes = 700;
  const auto machine = pvring::platform::emulated_host::create();
  auto [left, right] = net::pair_uplink::make();
  capture<net::pair_uplink> written(std::move(left), file);
  std::uint64_t got = 0;
  {
    vif<captured> a(machine, 3, written);
    vif<plain> b(machine, 4, right);
    auto& from = a.front().queue(0);
    auto& to = b.front().queue(0);
    const std::vector<std::byte> frame(bytes, std::byte{2});
    const auto last = std::chrono::steady_clock::now() + 30s;
    for (std::uint64_t sent = 0; got < packets && std::chrono::steady_clock::now() < last;) {
      while (sent < packets && sent - got < 32 && from.send(frame)) {
        ++sent;
      }
      to.post();
      to.publish();
      from.publish();
      from.poll();
      if (to.poll([&](const pvring::testing::received_packet& p) {
            got += p.bytes.size() == bytes ? 1 : 0;
          }) == 0) {
        to.wait(5ms);
      }
    }
  }
  std::printf("%llu packets arrived, %llu are in %s\n", static_cast<unsigned long long>(got),
              static_cast<unsigned long long>(written.frames()), file.c_str());
  return got == packets && written.frames() == packets ? 0 : 1;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::string(argv[1]) == "--smoke";
  if (argc > 2 || (argc == 2 && !smoke && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: %s [FILE.pcap]\n", argv[0]);
    return 2;
  }
  try {
    const std::string file = argc == 2 && !smoke ? argv[1] : "guests.pcap";
    const int status = run(file);
    const std::uint64_t expected = 24 + 1000 * (16 + 700);
    if (status == 0 && std::filesystem::file_size(file) != expected) {
      std::fprintf(stderr, "%s is not of %llu bytes\n", file.c_str(),
                   static_cast<unsigned long long>(expected));
      return 1;
    }
    return status;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
}
