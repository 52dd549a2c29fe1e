// SPDX-License-Identifier: MIT
// pvring-blk: serves disks to guests, and makes and removes the devices. The command line is here;
// what the commands do is elsewhere.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <pvring/version.hpp>
#include <string>

#include "device_name.hpp"
#include "platforms.hpp"
#include "settings.hpp"

namespace {

using tool::exit_code;

constexpr const char* exit_codes =
    "Exit codes: 0 fine; 1 something went wrong on the way; 2 an option, the configuration or an "
    "image cannot be\nused; 3 the device exists already or is not there, or there is no such "
    "domain; 4 the other end did not do its\npart in time; 5 wrong data (try).";

std::string version() {
  return "pvring-blk " + std::to_string(PVRING_VERSION_MAJOR) + '.' +
         std::to_string(PVRING_VERSION_MINOR) + '.' + std::to_string(PVRING_VERSION_PATCH);
}

void add_platform(CLI::App& to, tool::platform_settings& where) {
  to.add_option("--platform", where.platform,
                std::string("where the guests are (default: ") +
                    (tool::built_with_xen() ? "xen" : "emulated") + ")")
      ->check(CLI::IsMember({"xen", "emulated"}));
  to.add_option("--socket", where.socket,
                "where the daemon of an emulated machine hands it out (with --platform emulated)");
}

void add_type(CLI::App& to, std::string& type, pvring::domain_id& backend_domain) {
  to.add_option("--type", type, "the directory below backend/ in which the devices are")
      ->capture_default_str();
  to.add_option("--backend-domain", backend_domain, "the domain that this program runs in")
      ->capture_default_str();
}

void add_device(CLI::App& to, pvring::domain_id& domain, std::string& device) {
  to.add_option("--domain", domain, "the guest's number")->required();
  to.add_option("--device", device, "the disk in the guest, such as xvda, or its number")
      ->required();
}

void add_serving(CLI::App& to, tool::serve_command& wanted) {
  for (const tool::device_option& option : tool::all_device_options()) {
    to.add_option_function<std::string>(
          "--" + std::string(option.name),
          [&wanted, name = std::string(option.name)](const std::string& value) {
            wanted.options.emplace_back(name, value);
          },
          std::string(option.help))
        ->type_name(std::string(option.values));
  }
  to.add_option("--stats", wanted.what.stats_seconds,
                "seconds between looks at rates, which are logged and shown by list; 0: never")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  to.add_option("--metrics", wanted.metrics,
                "counters as OpenMetrics text: a file that is kept fresh, or unix:PATH for a "
                "socket that answers with them");
  to.add_option("--journals", wanted.journals,
                "directory of what a daemon that is started after this one was killed needs to "
                "take its guests over; none: their connections end with it (default: " +
                    std::string(tool::usual_journals) + ", on Xen)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // the service's own comes first
  to.add_option("--trace", wanted.trace,
                "record every request, and write the latest of each queue to this file when it "
                "ends (trace-event JSON, for ui.perfetto.dev)");
  to.add_option("--log-level", wanted.log_level, "least severe messages that are shown")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  to.add_flag("--log-json", wanted.log_json, "log one JSON object per line");
}

struct command_line {
  tool::signals stop;
  std::function<exit_code()> run;

  tool::serve_command serve;
  tool::attach_command attach;
  tool::detach_settings detach;
  tool::platform_settings where;
  tool::list_settings list;
  tool::try_settings trial;
  std::string device;
  bool no_discard = false;
  unsigned force_after = 0;
};

void add_serve(CLI::App& app, command_line& line) {
  CLI::App& serve = *app.add_subcommand("serve", "serve every device of a type, until SIGTERM");
  add_platform(serve, line.serve.where);
  add_type(serve, line.serve.what.type, line.serve.what.backend_domain);
  add_serving(serve, line.serve);
  serve.add_option("--config", line.serve.config,
                   "JSON file with options, also for single devices; see the man page");
  serve.callback([&line, &serve] {
    for (const CLI::Option* option : serve.get_options()) {
      if (option->count() != 0) {
        line.serve.given.insert(option->get_name());
      }
    }
    line.run = [&line] { return tool::run_serve(line.serve, line.stop); };
  });
}

void add_attach(CLI::App& app, command_line& line) {
  CLI::App& attach = *app.add_subcommand("attach", "give a guest a disk; prints the device's path");
  line.attach.what.identity.type = tool::usual_type;
  auto& identity = line.attach.what.identity;
  add_platform(attach, line.serve.where);
  add_type(attach, identity.type, identity.backend_domain);
  add_device(attach, identity.frontend_domain, line.device);
  attach
      .add_option(
          "--image", line.attach.what.image,
          "the disk: a file, a block device, or the URI of an NBD server's (nbd://, nbd+unix://)")
      ->required();
  attach.add_flag("--read-only", line.attach.what.read_only, "the guest cannot write");
  attach.add_flag("--cdrom", line.attach.what.cdrom, "a CD-ROM: read-only and removable");
  attach.add_flag("--removable", line.attach.what.removable, "a removable disk");
  attach.add_flag("--no-discard", line.no_discard, "the guest cannot give space back");
  attach.add_flag("--serve", line.attach.serve,
                  "serve it too, until it is over; the options below are for that");
  add_serving(attach, line.serve);
  attach.callback([&line] {
    line.run = [&line] {
      line.attach.what.identity.device = tool::parse_device(line.device);
      line.attach.what.discard = !line.no_discard;
      return tool::run_attach(line.attach, line.serve, line.stop);
    };
  });
}

void add_detach(CLI::App& app, command_line& line) {
  CLI::App& detach = *app.add_subcommand("detach", "take a disk away, when the guest lets it go");
  line.detach.identity.type = tool::usual_type;
  auto& identity = line.detach.identity;
  add_platform(detach, line.where);
  add_type(detach, identity.type, identity.backend_domain);
  add_device(detach, identity.frontend_domain, line.device);
  detach
      .add_option("--timeout", line.detach.timeout_seconds,
                  "seconds to wait for the guest before giving up")
      ->capture_default_str();
  CLI::Option& force = *detach.add_option("--force-after", line.force_after,
                                          "seconds after which it is removed all the same");
  detach.callback([&line, &force] {
    line.run = [&line, forced = force.count() != 0] {
      line.detach.identity.device = tool::parse_device(line.device);
      if (forced) {
        line.detach.force_after_seconds = line.force_after;
      }
      return tool::detach(*tool::join_platform(line.where), line.detach, line.stop);
    };
  });
}

void add_list(CLI::App& app, command_line& line) {
  CLI::App& list = *app.add_subcommand("list", "show devices, states and rates");
  add_platform(list, line.where);
  add_type(list, line.list.type, line.list.backend_domain);
  list.add_flag("--json", line.list.json, "as JSON");
  list.callback([&line] {
    line.run = [&line] { return tool::list(*tool::join_platform(line.where), line.list); };
  });
}

void add_try(CLI::App& app, command_line& line) {
  CLI::App& trial = *app.add_subcommand(
      "try", "play the guest of a disk on an emulated machine: read all of it, write a block");
  trial.add_option("--socket", line.trial.socket, "of the daemon")->required();
  add_device(trial, line.trial.domain, line.device);
  trial.add_option("--queues", line.trial.queues, "queues to use, where they are offered")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  trial.add_option("--ring-order", line.trial.ring_order, "ring of 2^N pages, where offered")
      ->check(CLI::Range(0, 4))
      ->capture_default_str();
  trial.add_option("--seconds", line.trial.seconds, "go on reading for that long");
  trial.add_option("--copy-to", line.trial.copy_to, "write what is read into this file");
  trial.callback([&line] {
    line.run = [&line] {
      line.trial.device = tool::parse_device(line.device);
      return tool::try_disk(line.trial, line.stop);
    };
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    command_line line;
    CLI::App app{"Serves disk images to Xen guests from user space.", "pvring-blk"};
    app.footer(exit_codes);
    app.require_subcommand(1);
    app.set_version_flag("--version", version());
    add_serve(app, line);
    add_attach(app, line);
    add_detach(app, line);
    add_list(app, line);
    add_try(app, line);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      return app.exit(e) == 0 ? tool::fine : tool::bad_usage;
    }
    return line.run();
  } catch (const tool::command_error& e) {
    std::fprintf(stderr, "pvring-blk: %s\n", e.what());
    return e.code();
  } catch (const pvring::configuration_error& e) {
    std::fprintf(stderr, "pvring-blk: %s\n", e.what());
    return tool::bad_usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pvring-blk: %s\n", e.what());
    return tool::failed;
  }
}
