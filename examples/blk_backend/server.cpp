// SPDX-License-Identifier: MIT
#include "server.hpp"

#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <pvring/base/log.hpp>
#include <pvring/xenbus/error_report.hpp>
#include <pvring/xenbus/node.hpp>
#include <system_error>
#include <utility>

#include "device_name.hpp"

namespace tool {
namespace {

namespace xenbus = pvring::xenbus;
namespace log = pvring::log;

constexpr std::string_view own_directory = "pvring";

std::string root_of(const serve_settings& wanted) {
  const xenbus::device_path some({.backend_domain = wanted.backend_domain, .type = wanted.type});
  const std::string& directory = some.backend();
  // Without domain and device.
  return directory.substr(0, directory.rfind('/', directory.rfind('/') - 1));
}

// Those formats in which the disk is the file's bytes.
std::string image_path(const std::string& node, const std::string& parameters,
                       pvring::domain_id writer) {
  for (const std::string_view format : {"aio:", "file:", "phy:", "raw:"}) {
    if (parameters.starts_with(format)) {
      return parameters.substr(format.size());
    }
  }
  const std::size_t colon = parameters.find(':');
  if (!support::is_uri(parameters) && colon != std::string::npos && parameters.find('/') > colon) {
    throw pvring::node_error(node, parameters, writer,
                             "use the path of a raw image or block device, with aio:, file:, "
                             "phy:, raw: or nothing before it, or a URI");
  }
  return parameters;
}

// Left to us, the engine is one with which the grants that were asked for are possible: io_uring's
// image cannot promise that a killed process leaves no I/O on mapped pages.
support::file_engine engine_for(const device_options& wanted) {
  const bool maps = !wanted.blk.strategy.empty() && wanted.blk.strategy != "batched_copy";
  return maps && wanted.engine == support::file_engine::automatic ? support::file_engine::libaio
                                                                  : wanted.engine;
}

bool same_file(const std::string& one, const std::string& other) {
  if (one == other) {
    return true;  // also where it is a URI
  }
  struct ::stat a {};
  struct ::stat b {};
  if (::stat(one.c_str(), &a) != 0 || ::stat(other.c_str(), &b) != 0) {
    return false;
  }
  return (S_ISBLK(a.st_mode) && S_ISBLK(b.st_mode)) ? a.st_rdev == b.st_rdev
                                                    : a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

server::server(platform_access& platform, const serve_settings& wanted, const signals& stop,
               event_loop& loop)
    : platform_(platform),
      wanted_(wanted),
      stop_(stop),
      loop_(loop),
      root_(root_of(wanted_)),
      store_(platform.open_store()),
      watch_(*store_, root_, "devices"),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      retry_timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  // A store that dies may not make its descriptor readable: it is asked now and then anyway.
  constexpr unsigned longest = 10;
  const unsigned seconds =
      wanted_.stats_seconds == 0 ? longest : std::min(wanted_.stats_seconds, longest);
  const itimerspec period{.it_interval = {static_cast<std::time_t>(seconds), 0},
                          .it_value = {static_cast<std::time_t>(seconds), 0}};
  if (!timer_ || !retry_timer_ || ::timerfd_settime(timer_.get(), 0, &period, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "the timer of the statistics");
  }
  loop_.add(store_->fd(), [this] { read_events(); });
  loop_.add(stop_.fd(), [this] { on_signal(); });
  loop_.add(timer_.get(), [this] { on_tick(); });
  loop_.add(retry_timer_.get(), [this] { on_retry(); });
}

server::~server() {
  for (const int fd : {store_->fd(), stop_.fd(), timer_.get(), retry_timer_.get()}) {
    loop_.remove(fd);
  }
  for (auto& [which, of] : devices_) {
    if (of.device) {
      loop_.remove(of.device->fd());
    }
  }
}

exit_code server::run() {
  log::write(log::level::info, "serving the devices below " + root_);
  remove_lost_journals();
  scan();
  while (!(stopping_ && !serves_any()) && !only_is_over_) {
    loop_.turn();
  }
  log::write(log::level::info, "nothing is served any more");
  return result_;
}

bool server::serves_any() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const auto& one) { return one.second.device != nullptr; });
}

xenbus::device_identity server::identity_of(const key& which) const {
  return {.backend_domain = wanted_.backend_domain,
          .frontend_domain = which.domain,
          .type = wanted_.type,
          .device = which.device};
}

// Journals of guests that went while nobody served them. Each device that is there looks after its
// own.
void server::remove_lost_journals() const {
  if (wanted_.journals.empty()) {
    return;
  }
  for (const auto& file : std::filesystem::directory_iterator(wanted_.journals)) {
    const auto owner = owner_of_journal(file.path().filename().string());
    if (owner &&
        !store_->read(xenbus::join(xenbus::device_path(identity_of(*owner)).backend(), "state"))) {
      std::error_code ignored;
      std::filesystem::remove(file.path(), ignored);
    }
  }
}

// The device, where it is a journal of this type's. Another type's name may begin as this one's, so
// the whole of it counts.
std::optional<server::key> server::owner_of_journal(const std::string& name) const {
  std::vector<std::uint32_t> last;  // domain, device, queue
  for (std::size_t end = name.size(); last.size() < 3;) {
    const std::size_t dash = name.substr(0, end).rfind('-');
    if (dash == std::string::npos) {
      return std::nullopt;
    }
    const auto number =
        xenbus::parse_unsigned<std::uint32_t>(name.substr(dash + 1, end - dash - 1));
    if (!number) {
      return std::nullopt;
    }
    last.insert(last.begin(), *number);
    end = dash;
  }
  const key which{static_cast<pvring::domain_id>(last[0]), last[1]};
  const std::string expected =
      pvring::blk::journal_prefix({.domain = which.domain,
                                   .device = which.device,
                                   .backend_domain = wanted_.backend_domain,
                                   .type = wanted_.type}) +
      std::to_string(last[2]);
  return name == expected ? std::optional(which) : std::nullopt;
}

// --- what there is -------------------------------------------------------------------------------

void server::read_events() {
  // The same device many times over costs one look.
  std::vector<key> touched;
  bool everything = false;
  // What is left stays in the queue: a writer without pause does not keep the other devices.
  constexpr int most_events = 256;
  for (int i = 0; i < most_events; ++i) {
    const auto event = store_->next_event();
    if (!event) {
      break;
    }
    const auto identity = xenbus::parse_backend_directory(event->path);
    if (!identity) {
      everything = true;
      continue;
    }
    const key which{identity->frontend_domain, identity->device};
    const std::string own = xenbus::join(xenbus::device_path(*identity).backend(), own_directory);
    if (!event->path.starts_with(own) &&
        std::find(touched.begin(), touched.end(), which) == touched.end()) {
      touched.push_back(which);
    }
  }
  if (everything) {
    scan();
    return;
  }
  for (const key& which : touched) {
    look(which);
  }
}

void server::scan() {
  std::vector<key> there;
  for (const std::string& domain : store_->list(root_)) {
    const auto id = xenbus::parse_unsigned<pvring::domain_id>(domain);
    for (const std::string& device : store_->list(xenbus::join(root_, domain))) {
      const auto number = xenbus::parse_unsigned<std::uint32_t>(device);
      if (id && number) {
        there.push_back({*id, *number});
      }
    }
  }
  std::erase_if(devices_, [&there](const auto& one) {
    return !one.second.device && std::find(there.begin(), there.end(), one.first) == there.end();
  });
  for (const key& which : there) {
    look(which);
  }
}

void server::look(const key& which) {
  const xenbus::device_identity identity = identity_of(which);
  if (stopping_ || (wanted_.only && *wanted_.only != identity)) {
    return;
  }
  entry& of = devices_[which];
  if (of.device) {
    return;  // its backend has watches of its own
  }
  try {
    const xenbus::device_path usual(identity);
    const auto state = store_->read(xenbus::join(usual.backend(), "state"));
    if (!state) {
      devices_.erase(which);
      return;
    }
    of.over = of.over && *state != "1";
    if (of.over) {
      return;
    }
    if (!of.refused.empty()) {
      answer_unplug(usual.backend());
      if (of.refused == fingerprint(usual)) {
        return;
      }
      of.refused.clear();
      if (*state == "5") {
        store_->write(xenbus::join(usual.backend(), "state"), "1");
      }
    }
    begin(which, of, usual);
  } catch (const pvring::in_use_error& e) {
    wait_for_image(which, of, e.what());
    return;
  } catch (const std::exception& e) {
    refuse(which, of, e.what());
    return;
  }
  of.waiting_since.reset();
  process(which);  // one whose guest is gone is over already, and nothing more would happen to it
}

// --- one device ----------------------------------------------------------------------------------

void server::begin(const key& which, entry& of, const xenbus::device_path& path) {
  const device_request request = request_for(path);
  check_sharing(which, request);
  auto device = platform_.serve(request);
  loop_.add(device->fd(), [this, which] { process(which); });
  of.device = std::move(device);
  of.image = request.image;
  of.read_only = request.file.read_only;
  of.measured = {};
  // What was said when it was refused, or had to wait.
  store_->remove(xenbus::join(path.backend(), "hotplug-error"));
  if (std::exchange(of.said_why, false)) {
    store_->remove(path.backend_error());
  }
  log::write(log::level::info, path.name() + " (" + device_name(which.device) + "): serving " +
                                   request.image + (of.read_only ? ", read-only" : ""));
}

device_request server::request_for(const xenbus::device_path& path) {
  const std::string node = xenbus::join(path.backend(), "params");
  const auto parameters = store_->read(node);
  if (!parameters || parameters->empty()) {
    throw pvring::node_error(node, "", wanted_.backend_domain, "write the path of the image");
  }
  const std::string link = xenbus::join(path.backend(), "frontend");
  if (!store_->read(link)) {
    throw pvring::node_error(link, "", wanted_.backend_domain,
                             "write the path of the guest's directory, /local/domain/" +
                                 std::to_string(path.identity().frontend_domain) + "/device/vbd/" +
                                 std::to_string(path.identity().device));
  }
  device_request out{.identity = path.identity(),
                     .image = image_path(node, *parameters, wanted_.backend_domain),
                     .file = {},
                     .options = {},
                     .trace = wanted_.trace};
  device_options options = wanted_.defaults;
  for (const device_rule& rule : wanted_.rules) {
    if ((!rule.domain || *rule.domain == path.identity().frontend_domain) &&
        (!rule.device || *rule.device == path.identity().device) &&
        (!rule.image || *rule.image == out.image)) {
      for (const auto& [name, value] : rule.options) {
        apply(options, name, value);
      }
    }
  }
  validate(options);
  const auto says = [&](std::string_view name) {
    return store_->read(xenbus::join(path.backend(), name)).value_or("");
  };
  out.options = options.blk;
  // A server may still be busy with what a killed process has sent it, and nobody could tell its
  // successor when that is over: no takeover.
  out.options.journal_directory = support::is_uri(out.image) ? "" : wanted_.journals;
  out.engine = engine_for(options);
  // The image itself is opened as the toolstack says; the rest the backend reads when it connects.
  out.file = {.read_only = says("mode") == "r" || says("device-type") == "cdrom",
              .direct = options.direct,
              .sharing = pvring::aio::image_sharing::guarded};
  return out;
}

void server::check_sharing(const key& which, const device_request& wanted) const {
  for (const auto& [other, of] : devices_) {
    if (other != which && of.device && !(of.read_only && wanted.file.read_only) &&
        same_file(of.image, wanted.image)) {
      throw pvring::configuration_error(
          "image " + wanted.image + " is already served to domain " + std::to_string(other.domain) +
          " as " + device_name(other.device) +
          ", and two guests that write one disk destroy it: use another image, or make both "
          "devices read-only");
    }
  }
}

// What the toolstack wrote: a change is a reason to try again.
std::string server::fingerprint(const xenbus::device_path& path) {
  std::string all = "nodes:";
  for (const std::string_view name : {"params", "mode", "frontend", "frontend-id", "device-type"}) {
    all += '\n' + store_->read(xenbus::join(path.backend(), name)).value_or("");
  }
  return all;
}

void server::refuse(const key& which, entry& of, const std::string& why) {
  const xenbus::device_path path(identity_of(which));
  xenbus::error_report<store_connection> said(*store_, path.name(), path.backend_error());
  said.say(why);
  said.say_to_toolstack(why, path.backend());
  of.refused = fingerprint(path);
  of.waiting_since.reset();
  // Without these it is still being written, by somebody who uses no transaction.
  if (store_->read(xenbus::join(path.backend(), "params")) &&
      store_->read(xenbus::join(path.backend(), "frontend"))) {
    change([&path](store_access& t) {
      const std::string node = xenbus::join(path.backend(), "state");
      const auto state = t.read(node);
      if (state && *state != "5" && *state != "6") {
        t.write(node, "5");
      }
    });
  }
  answer_unplug(path.backend());
  if (wanted_.only) {
    result_ = failed;
    only_is_over_ = true;
  }
}

// Somebody has the image, or I/O of a daemon that was killed is on its way to it: whatever the
// device's state is, it can be served when that is over. A guest that was connected only waits, and
// hears of it late or never; one that is to be given the disk now has a toolstack that wants to
// know.
void server::wait_for_image(const key& which, entry& of, const std::string& why) {
  const xenbus::device_path path(identity_of(which));
  const auto says = [&](std::string_view name) {
    return store_->read(xenbus::join(path.backend(), name)).value_or("");
  };
  const bool connected = says("state") == "4";
  if ((says("state") == "5" && says("online") == "0") || (wanted_.only && !connected)) {
    refuse(which, of, why);
    return;
  }
  constexpr std::chrono::seconds soon(60);
  const auto now = std::chrono::steady_clock::now();
  if (!of.waiting_since) {
    of.waiting_since = now;
    of.said_why = false;
    log::write(log::level::info, path.name() + ": " + why + "; it is tried again");
  }
  const bool late = now - *of.waiting_since > soon;
  if (!of.said_why && (late || !connected)) {
    of.said_why = true;
    xenbus::error_report<store_connection> said(*store_, path.name(), path.backend_error());
    said.say(why);
    if (!connected) {
      said.say_to_toolstack(why, path.backend());
    }
  }
  constexpr long often_ns = 100'000'000;
  const itimerspec once{.it_interval = {},
                        .it_value = {.tv_sec = late ? 2 : 0, .tv_nsec = late ? 0 : often_ns}};
  if (::timerfd_settime(retry_timer_.get(), 0, &once, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "the timer of devices that wait");
  }
}

void server::on_retry() {
  std::uint64_t expired = 0;
  (void)!::read(retry_timer_.get(), &expired, sizeof expired);
  std::vector<key> waiting;
  for (const auto& [which, of] : devices_) {
    if (!of.device && of.waiting_since) {
      waiting.push_back(which);
    }
  }
  for (const key& which : waiting) {
    look(which);
  }
}

// A store that is too busy for what would be nice to have is no reason to end.
void server::change(const std::function<void(store_access&)>& body) {
  try {
    store_->transact(body);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) {
      throw;
    }
    log::write(log::level::warning, e.what());
  }
}

// Whoever unplugs a device that nobody serves waits for Closed.
void server::answer_unplug(const std::string& backend) {
  change([&backend](store_access& t) {
    const std::string node = xenbus::join(backend, "state");
    if (t.read(node) == "5" && t.read(xenbus::join(backend, "online")) == "0") {
      t.write(node, "6");
    }
  });
}

void server::process(const key& which) {
  entry& of = devices_.at(which);
  bool more = false;
  try {
    more = of.device->process();
  } catch (const std::exception& e) {
    loop_.remove(of.device->fd());
    of.device.reset();
    refuse(which, of, e.what());
    return;
  }
  if (!more) {
    end(which, of);
  }
}

void server::end(const key& which, entry& of) {
  const xenbus::device_path path(identity_of(which));
  loop_.remove(of.device->fd());
  of.device.reset();
  of.over = true;
  change([&path](store_access& t) {
    if (t.read(xenbus::join(path.backend(), "state"))) {
      t.remove(xenbus::join(path.backend(), own_directory));
    }
  });
  log::write(log::level::info, path.name() + ": is over");
  only_is_over_ = only_is_over_ || wanted_.only.has_value();
  look(which);  // the toolstack may have made it anew already
}

// --- signals and rates ---------------------------------------------------------------------------

void server::on_signal() {
  while (const auto number = stop_.next()) {
    if (*number == SIGHUP) {
      for (auto& [which, of] : devices_) {
        try {
          if (of.device && of.device->resize()) {
            log::write(log::level::info, xenbus::device_path(identity_of(which)).name() +
                                             ": has now " + std::to_string(of.device->sectors()) +
                                             " sectors");
          }
        } catch (const std::exception& e) {
          log::write(log::level::error, e.what());
        }
      }
      continue;
    }
    if (stopping_) {
      log::write(log::level::warning, "told to stop again: ending without waiting for I/O");
      ::_exit(failed);
    }
    stopping_ = true;
    log::write(log::level::info, "stopping: what is in flight is finished first");
    for (auto& [which, of] : devices_) {
      if (of.device) {
        of.device->stop();
      }
    }
  }
}

void server::on_tick() {
  std::uint64_t expired = 0;
  (void)!::read(timer_.get(), &expired, sizeof expired);
  read_events();
  if (wanted_.stats_seconds != 0) {
    for (auto& [which, of] : devices_) {
      if (of.device) {
        publish(which, of);
      }
    }
  }
  if (on_tick_) {
    on_tick_();
  }
}

void server::publish(const key& which, entry& of) {
  const device_numbers now = of.device->numbers();
  of.measured.look(now);
  const std::string backend = xenbus::device_path(identity_of(which)).backend();
  const std::string own = xenbus::join(backend, own_directory);
  const auto text = [](std::uint64_t number) { return std::to_string(number); };
  const std::pair<std::string_view, std::string> nodes[] = {
      {"strategy", now.strategy.empty() ? "none" : now.strategy},
      {"queues", text(now.queues)},
      {"ring-slots", text(now.ring_slots)},
      {"requests", text(now.requests)},
      {"failed", text(now.failed)},
      {"requests-per-second", text(of.measured.requests)},
      {"read-bytes-per-second", text(of.measured.bytes_read)},
      {"write-bytes-per-second", text(of.measured.bytes_written)}};
  change([&](store_access& t) {
    if (!t.read(xenbus::join(backend, "state"))) {
      return;  // a directory that was removed stays removed
    }
    for (const auto& [name, value] : nodes) {
      xenbus::write_if_changed(t, xenbus::join(own, name), std::string_view(value));
    }
  });
  if (of.measured.requests != 0) {
    log::write(log::level::info, xenbus::device_path(identity_of(which)).name() + ": " +
                                     text(of.measured.requests) + " requests/s, " +
                                     text(of.measured.bytes_read / 1'000'000) + " MB/s read, " +
                                     text(of.measured.bytes_written / 1'000'000) + " MB/s written");
  }
}

std::vector<server::report> server::reports() const {
  std::vector<report> all;
  for (const auto& [which, of] : devices_) {
    report one{.identity = identity_of(which), .served = of.device != nullptr, .numbers = {}};
    if (of.device) {
      one.state = of.device->state();
      one.numbers = of.device->numbers();
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace tool
