// SPDX-License-Identifier: MIT
#include "logging.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pvring/base/log.hpp>
#include <string_view>

namespace tool {
namespace {

using pvring::log::level;

constexpr std::string_view names[] = {"debug", "info", "warning", "error"};
constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                spdlog::level::warn, spdlog::level::err};

void as_text(level severity, std::string_view message) noexcept {
  try {
    spdlog::log(levels[static_cast<std::size_t>(severity)], message);
  } catch (const std::exception&) {
    return;  // nowhere to say it
  }
}

void as_json(level severity, std::string_view message) noexcept {
  try {
    using namespace std::chrono;
    const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch());
    const nlohmann::ordered_json line{{"time", static_cast<double>(now.count()) / 1000},
                                      {"level", names[static_cast<std::size_t>(severity)]},
                                      {"message", message}};
    using handler = nlohmann::ordered_json::error_handler_t;
    spdlog::log(levels[static_cast<std::size_t>(severity)],
                std::string_view(line.dump(-1, ' ', true, handler::replace)));
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

bool is_log_level(const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

void start_logging(const std::string& wanted, bool json) {
  auto logger = spdlog::stderr_logger_mt("pvring-blk");
  logger->set_pattern(json ? "%v" : "%Y-%m-%d %H:%M:%S.%e %l: %v");
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (names[i] == wanted) {
      logger->set_level(levels[i]);
    }
  }
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  pvring::log::set_sink(json ? &as_json : &as_text);
}

}  // namespace tool
