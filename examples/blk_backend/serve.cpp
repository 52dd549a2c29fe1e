// SPDX-License-Identifier: MIT
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <pvring/base/log.hpp>
#include <pvring/platform/emulated/host.hpp>

#include "claim.hpp"
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

exit_code serve_on(platform_access& platform, const serve_command& wanted, const signals& stop,
                   event_loop& loop, const std::function<void()>& make_devices) {
  const auto store = platform.open_store();
  const claim alone(*store, wanted.what.backend_domain, wanted.what.type);
  make_devices();
  std::optional<trace_file> trace;
  serve_settings what = wanted.what;
  if (!wanted.trace.empty()) {
    trace.emplace(wanted.trace);
    what.trace = &*trace;
  }
  server serving(platform, what, stop, loop);
  std::optional<metrics_output> metrics;
  if (!wanted.metrics.empty()) {
    metrics.emplace(wanted.metrics, serving, loop);
  }
  return serving.run();
}

// Who may write there could have a guest's requests done that the guest never made.
void check_journals(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    throw configuration_error("option --journals is '" + path + "': it " + why +
                              "; name a directory of this user's alone, on a file system in "
                              "memory such as /run, or none");
  };
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    refuse(std::string("cannot be made (") + std::strerror(errno) + ")");
  }
  struct ::stat what {};
  if (::lstat(path.c_str(), &what) != 0 || !S_ISDIR(what.st_mode)) {
    refuse("is no directory");
  }
  if (what.st_uid != ::geteuid() || (what.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse("is open to other users");
  }
}

// An emulated machine goes with its daemon, so that nobody could take over there.
void choose_journals(serve_command& wanted) {
  if (wanted.journals.empty() && !is_emulated(wanted.where)) {
    wanted.journals = usual_journals;
  }
  if (wanted.journals.empty() || wanted.journals == "none") {
    return;
  }
  wanted.what.journals = std::filesystem::absolute(wanted.journals).lexically_normal();
  check_journals(wanted.what.journals);
}

void prepare(serve_command& wanted) {
  if (!wanted.config.empty()) {
    read_config(wanted.config, wanted);
  }
  for (const auto& [name, value] : wanted.options) {
    apply(wanted.what.defaults, name, value);
  }
  validate(wanted.what.defaults);
  choose_journals(wanted);
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
    return serve_on(*platform, wanted, stop, loop,
                    [&] { attach_configured(*platform, wanted.what); });
  }
  need_socket(wanted.where);
  const auto host = make_host();
  const auto platform = open_emulated(host);
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
  const exit_code how =
      serve_on(*platform, wanted, stop, loop, [&] { attach_configured(*platform, wanted.what); });
  loop.remove(door.fd());
  return how;
}

exit_code run_attach(const attach_command& wanted, serve_command how, const signals& stop) {
  if (wanted.serve) {
    prepare(how);
  }
  const auto platform = join_platform(how.where);
  const auto make = [&] {
    std::printf("%s\n", attach(*platform, wanted.what).c_str());
    (void)std::fflush(stdout);
  };
  if (!wanted.serve) {
    make();
    return fine;
  }
  how.what.type = wanted.what.identity.type;
  how.what.backend_domain = wanted.what.identity.backend_domain;
  how.what.only = wanted.what.identity;
  event_loop loop;
  return serve_on(*platform, how, stop, loop, make);
}

}  // namespace tool
