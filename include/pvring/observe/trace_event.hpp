// SPDX-License-Identifier: MIT
// Writes what observe::full recorded as trace-event JSON, which Perfetto (ui.perfetto.dev) opens: a
// process per queue, a thread per slot, a bar per request with a bar for each of its stages in it.
#pragma once

#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "full.hpp"
#include "observer.hpp"

namespace pvring::observe {

/// One trace. The text is complete once `finish` has been called, or the writer is gone.
class trace_event_writer {
 public:
  /// \param out must outlive the writer; the caller checks its state afterwards
  explicit trace_event_writer(std::ostream& out) : out_(out) {
    out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  }
  trace_event_writer(const trace_event_writer&) = delete;
  trace_event_writer& operator=(const trace_event_writer&) = delete;
  ~trace_event_writer() { finish(); }

  /// Adds one queue's requests. \param name shown for it, such as "xvda queue 0" \param number
  /// another for each queue
  template <class Recorder>
  void add(std::string_view name, std::uint32_t number, const Recorder& queue) {
    event("{\"ph\":\"M\",\"name\":\"process_name\"," + place(number, 0) + ",\"args\":{\"name\":\"" +
          escaped(name) + "\"}}");
    std::vector<bool> named;
    queue.for_each([&](const request_record& request) {
      if (request.slot >= named.size()) {
        named.resize(std::size_t{request.slot} + 1);
      }
      if (!named[request.slot]) {
        named[request.slot] = true;
        event("{\"ph\":\"M\",\"name\":\"thread_name\"," + place(number, request.slot) +
              ",\"args\":{\"name\":\"slot " + std::to_string(request.slot) + "\"}}");
      }
      add_request(number, request);
    });
  }

  /// Ends the JSON text; nothing may be added afterwards.
  void finish() {
    if (!finished_) {
      finished_ = true;
      out_ << "\n]}\n";
    }
  }

 private:
  // What goes on until a stage is reached.
  static std::string_view activity_until(stage reached) noexcept {
    constexpr std::array<std::string_view, stage_count> names{"seen",   "acquire", "submit",
                                                              "engine", "respond", "notify"};
    return names[static_cast<std::size_t>(reached)];
  }

  void add_request(std::uint32_t number, const request_record& request) {
    std::uint64_t before = request.time(stage::seen);
    bar("request", number, request.slot, before, request.time(stage::responded));
    for (const stage reached :
         {stage::acquired, stage::submitted, stage::completed, stage::responded}) {
      if (const std::uint64_t now = request.time(reached); now != 0) {
        bar(activity_until(reached), number, request.slot, before, now);
        before = now;
      }
    }
    // A point rather than a bar: the slot may serve the next request by then, and bars of one
    // thread must nest.
    if (const std::uint64_t now = request.time(stage::notified); now != 0) {
      event("{\"ph\":\"i\",\"s\":\"t\",\"name\":\"notified\"," + place(number, request.slot) +
            ",\"ts\":" + microseconds(now) + "}");
    }
  }

  void bar(std::string_view name, std::uint32_t number, std::uint32_t slot, std::uint64_t from,
           std::uint64_t to) {
    event("{\"ph\":\"X\",\"name\":\"" + std::string(name) + "\"," + place(number, slot) +
          ",\"ts\":" + microseconds(from) + ",\"dur\":" + microseconds(to - from) + "}");
  }

  void event(std::string_view text) {
    out_ << (first_ ? "\n" : ",\n") << text;
    first_ = false;
  }

  // A process or thread that is number 0 is the kernel's to Perfetto, so numbers begin at 1.
  static std::string place(std::uint32_t number, std::uint32_t slot) {
    return "\"pid\":" + std::to_string(std::uint64_t{number} + 1) +
           ",\"tid\":" + std::to_string(std::uint64_t{slot} + 1);
  }

  // Digits by hand: a double has too few of them for nanoseconds since boot in microseconds.
  static std::string microseconds(std::uint64_t nanoseconds) {
    std::array<char, 32> text{};
    const int length = std::snprintf(text.data(), text.size(), "%" PRIu64 ".%03u",
                                     nanoseconds / 1000, static_cast<unsigned>(nanoseconds % 1000));
    return {text.data(), static_cast<std::size_t>(length)};
  }

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
      }
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
  }

  std::ostream& out_;
  bool first_ = true;
  bool finished_ = false;
};

}  // namespace pvring::observe
