// SPDX-License-Identifier: MIT
// pvring-net: makes a network device for a guest on a Xen host, joins it to a TAP device, and
// serves it until it is told to end or the guest is gone.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <pvring/net/backend.hpp>
#include <pvring/net/tap_uplink.hpp>
#include <pvring/platform/xen.hpp>
#include <pvring/xenbus/toolstack.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "blk_backend/signals.hpp"

namespace {

namespace net = pvring::net;

struct config : net::default_config {
  using platform = pvring::platform::xen;
};
static_assert(pvring::net::backend_config<config>);

enum exit_code : int { fine = 0, failed = 1, usage = 2 };

struct settings {
  net::identity device{.type = "pvring-vif"};
  pvring::xenbus::vif_options nodes;
  std::string tap;
  net::options options;
};

void show(pvring::log::level level, std::string_view message) noexcept {
  constexpr std::string_view names[] = {"debug", "info", "warning", "error"};
  const std::string_view name = names[static_cast<std::size_t>(level)];
  std::fprintf(stderr, "pvring-net %.*s: %.*s\n", static_cast<int>(name.size()), name.data(),
               static_cast<int>(message.size()), message.data());
}

void add_options(CLI::App& app, settings& wanted) {
  app.add_option("--domain", wanted.device.domain, "the guest's domain: see xl list")->required();
  app.add_option("--device", wanted.device.device, "number of its device: 0 for eth0")
      ->capture_default_str();
  app.add_option(
         "--tap", wanted.tap,
         "TAP device to join it to; made where it is not there. Put it on a bridge with: ip "
         "link set TAP master BRIDGE up")
      ->required();
  app.add_option("--type", wanted.device.type,
                 "directory of the device below backend/: any but vif, which is the kernel's")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& type) {
            return type == "vif" ? std::string("the kernel's backend serves vif") : std::string();
          },
          "", "not vif"));
  app.add_option("--mac", wanted.nodes.mac, "the guest's address, as in 00:16:3e:00:00:01")
      ->required();
  app.add_option("--rate", wanted.nodes.rate,
                 "BYTES,MICROSECONDS that the guest may transmit; unlimited where it is missing");
  app.add_option("--queues", wanted.options.max_queues, "queues that are offered")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--grants", wanted.options.strategy, "grant strategy: batched_copy or map_each");
  app.add_option_function<std::string>(
         "--delivery",
         [&wanted](const std::string& name) {
           wanted.options.delivery.when = name == "inline"     ? net::delivery::at_once
                                          : name == "deferred" ? net::delivery::deferred
                                                               : net::delivery::automatic;
         },
         "when a packet is put into the guest")
      ->check(CLI::IsMember({"automatic", "inline", "deferred"}))
      ->default_str("automatic");
  app.add_flag_callback(
      "--one-channel", [&wanted] { wanted.options.split_channels = false; },
      "one event channel for both rings of a queue");
  app.add_flag_callback(
      "--no-offloads",
      [&wanted] {
        wanted.options.gso = false;
        wanted.options.checksum = false;
      },
      "no super-frames and no blank checksums from the guest");
  app.add_option_function<std::string>(
         "--wait",
         [&wanted](const std::string& text) {
           wanted.options.wait = pvring::wait::policy::parse(text);
         },
         "event, busy or adaptive")
      ->default_str("event");
}

void print_statistics(const net::backend<config>& served) {
  std::uint32_t number = 0;
  for (const net::queue_statistics& q : served.statistics()) {
    std::printf(
        "queue %u: transmitted %llu packets in %llu slots, received %llu in %llu, %llu grant "
        "calls for %llu operations, %llu notifications\n",
        number++, static_cast<unsigned long long>(q.tx_packets),
        static_cast<unsigned long long>(q.tx_slots), static_cast<unsigned long long>(q.rx_packets),
        static_cast<unsigned long long>(q.rx_slots), static_cast<unsigned long long>(q.grant_calls),
        static_cast<unsigned long long>(q.grant_operations),
        static_cast<unsigned long long>(q.notifications));
  }
  std::fflush(stdout);
}

int serve(const settings& wanted) {
  const tool::signals signals;
  pvring::platform::xen host;
  auto store = host.open_store();
  const std::string home = "/local/domain/" + std::to_string(wanted.device.domain);
  if (!store.read(home)) {
    throw std::runtime_error("there is no domain " + std::to_string(wanted.device.domain) + " (" +
                             home + " is missing in the store): see xl list");
  }
  net::tap_uplink uplink(wanted.tap, wanted.options.max_queues);
  const pvring::xenbus::device_path path = pvring::xenbus::create_device(
      store, pvring::xenbus::describe_vif({.backend_domain = wanted.device.backend_domain,
                                           .frontend_domain = wanted.device.domain,
                                           .type = wanted.device.type,
                                           .device = wanted.device.device},
                                          wanted.nodes));
  {
    net::backend<config> served(host, wanted.device, uplink, wanted.options);
    std::printf("%s is on %s\n", path.name().c_str(), uplink.name().c_str());
    std::fflush(stdout);
    while (served.process()) {
      pollfd waiting[2] = {{.fd = served.fd(), .events = POLLIN, .revents = 0},
                           {.fd = signals.fd(), .events = POLLIN, .revents = 0}};
      (void)::poll(waiting, 2, -1);
      while (const auto number = signals.next()) {
        print_statistics(served);
        if (*number != SIGHUP) {
          served.stop();
        }
      }
    }
  }
  pvring::xenbus::force_remove(store, path);
  return fine;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is not caught here may end the process
int main(int argc, char** argv) {
  CLI::App app{
      "Makes a network device for a guest of this Xen host, and serves it until SIGTERM or the "
      "guest's end. SIGHUP prints statistics.\nExit codes: 0 it ended as asked; 1 it could not be "
      "served; 2 the command line is wrong."};
  settings wanted;
  add_options(app, wanted);
  try {
    app.parse(argc, argv);
    net::validate(wanted.options);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? fine : usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pvring-net: %s\n", e.what());
    return usage;
  }
  pvring::log::set_sink(&show);
  try {
    return serve(wanted);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pvring-net: %s\n", e.what());
    return failed;
  }
}
