// SPDX-License-Identifier: MIT
// Counters of all devices as OpenMetrics text: in a file, or for whoever connects to a socket.
#pragma once

#include <optional>
#include <string>

#include "host_socket.hpp"
#include "server.hpp"

namespace tool {

[[nodiscard]] std::string open_metrics(const std::vector<server::report>& devices);

class metrics_output {
 public:
  /// \param target of --metrics: a path, or `unix:PATH`. \throws configuration_error
  metrics_output(const std::string& target, server& of, event_loop& loop);
  metrics_output(const metrics_output&) = delete;
  metrics_output& operator=(const metrics_output&) = delete;
  ~metrics_output();

 private:
  void write_file();
  void answer();

  server& of_;
  event_loop& loop_;
  std::string path_;
  std::optional<unix_listener> door_;
};

}  // namespace tool
