// SPDX-License-Identifier: MIT
#include <cstdio>
#include <optional>
#include <pvring/base/log.hpp>
#include <pvring/platform/emulated/host.hpp>

#include "host_socket.hpp"
#include "logging.hpp"
#include "metrics.hpp"
#include "platforms.hpp"
#include "settings.hpp"
#include "trace_file.hpp"

namespace tool {
namespace {

using pvring::configuration_error;

bool is_emulated(const platform_settings& wanted) {
  if (wanted.platform.empty()) {
    return !built_with_xen();
  }
  return wanted.platform == "emulated";
}

void need_socket(const platform_settings& wanted) {
  if (wanted.socket.empty()) {
    throw configuration_error(
        "option --socket is missing: name the path at which the daemon hands out its emulated "
        "machine");
  }
}

// Room for some thirty devices of four queues.
pvring::platform::emulated_host make_host() {
  return pvring::platform::emulated_host::create(
      {.domains = 32, .grant_handles = 160, .event_handles = 160, .store_connections = 80});
}

void attach_configured(platform_access& platform, const serve_settings& wanted) {
  for (const device_rule& rule : wanted.rules) {
    if (!rule.attach) {
      continue;
    }
    try {
      (void)attach(platform, {.identity = {.backend_domain = wanted.backend_domain,
                                           .frontend_domain = *rule.domain,
                                           .type = wanted.type,
                                           .device = *rule.device},
                              .image = *rule.image,
                              .read_only = rule.read_only,
                              .cdrom = rule.cdrom,
                              .removable = rule.removable,
                              .discard = rule.discard});
    } catch (const std::exception& e) {
      // One that is there already, or cannot be: the others are served all the same.
      pvring::log::write(pvring::log::level::warning, e.what());
    }
  }
}

exit_code serve_on(platform_access& platform, serve_command& wanted, const signals& stop,
                   event_loop& loop) {
  std::optional<trace_file> trace;
  if (!wanted.trace.empty()) {
    trace.emplace(wanted.trace);
    wanted.what.trace = &*trace;
  }
  server serving(platform, wanted.what, stop, loop);
  std::optional<metrics_output> metrics;
  if (!wanted.metrics.empty()) {
    metrics.emplace(wanted.metrics, serving, loop);
  }
  return serving.run();
}

void prepare(serve_command& wanted) {
  if (!wanted.config.empty()) {
    read_config(wanted.config, wanted);
  }
  for (const auto& [name, value] : wanted.options) {
    apply(wanted.what.defaults, name, value);
  }
  validate(wanted.what.defaults);
  start_logging(wanted.log_level, wanted.log_json);
}

}  // namespace

std::unique_ptr<platform_access> join_platform(const platform_settings& wanted) {
  if (!is_emulated(wanted)) {
    return open_xen();
  }
  need_socket(wanted);
  return open_emulated(join_host(wanted.socket));
}

exit_code run_serve(serve_command wanted, const signals& stop) {
  prepare(wanted);
  event_loop loop;
  if (!is_emulated(wanted.where)) {
    const auto platform = open_xen();
    attach_configured(*platform, wanted.what);
    return serve_on(*platform, wanted, stop, loop);
  }
  need_socket(wanted.where);
  const auto host = make_host();
  const auto platform = open_emulated(host);
  attach_configured(*platform, wanted.what);
  const unix_listener door("--socket", wanted.where.socket);
  loop.add(door.fd(), [&] {
    if (const pvring::unique_fd peer = door.accept()) {
      try {
        host.send(peer.get());
      } catch (const std::exception& e) {
        pvring::log::write(pvring::log::level::warning, e.what());
      }
    }
  });
  const exit_code how = serve_on(*platform, wanted, stop, loop);
  loop.remove(door.fd());
  return how;
}

exit_code run_attach(const attach_command& wanted, serve_command how, const signals& stop) {
  if (wanted.serve) {
    prepare(how);
  }
  const auto platform = join_platform(how.where);
  std::printf("%s\n", attach(*platform, wanted.what).c_str());
  if (!wanted.serve) {
    return fine;
  }
  (void)std::fflush(stdout);
  how.what.type = wanted.what.identity.type;
  how.what.backend_domain = wanted.what.identity.backend_domain;
  how.what.only = wanted.what.identity;
  event_loop loop;
  return serve_on(*platform, how, stop, loop);
}

}  // namespace tool
