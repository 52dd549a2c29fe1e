// SPDX-License-Identifier: MIT
// A guest of the daemon's emulated machine that breaks every rule, connection after connection:
// hostile_guest SOCKET DOMAIN DEVICE SECONDS, for a device of type vbd.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <pvring/testing/scripted_frontend.hpp>

#include "../device_name.hpp"
#include "../host_socket.hpp"

int main(int argc, char** argv) try {
  using state = pvring::protocol::xenbus_state;
  using namespace std::chrono_literals;
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s SOCKET DOMAIN DEVICE SECONDS\n", argv[0]);
    return 2;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[4]));
  const auto host = tool::join_host(argv[1]);
  pvring::testing::scripted_frontend front(
      host, {.frontend_domain = static_cast<pvring::domain_id>(std::atoi(argv[2])),
             .type = "vbd",
             .device = tool::parse_device(argv[3])});
  std::uint32_t connections = 0;
  std::uint64_t misdeeds = 0;
  for (std::uint32_t seed = 1; std::chrono::steady_clock::now() < end; ++seed) {
    front.reset_ring();
    front.write_good_nodes();
    front.go(state::initialising);
    (void)front.wait_for_backend(state::init_wait, 2s);
    front.go(state::initialised);
    if (front.wait_for_backend(state::connected, 2s)) {
      ++connections;
      pvring::testing::hostile_frontend hostile(front, seed);
      for (int i = 0; i < 2000 && front.backend_state() == state::connected; ++i, ++misdeeds) {
        hostile.step();
      }
    }
    front.go(state::closing);
    (void)front.wait_for_backend(state::closing, 2s);
    front.go(state::closed);
    (void)front.wait_for_backend(state::closed, 2s);
  }
  std::printf("%u connections, %llu misdeeds\n", connections,
              static_cast<unsigned long long>(misdeeds));
  return connections == 0 ? 1 : 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
