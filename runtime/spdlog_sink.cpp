#include "kiln/spdlog.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace kiln {
namespace {

constexpr spdlog::level::level_enum level_of(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(static_cast<int>(level) + 1);
}
static_assert(level_of(LogLevel::debug) == spdlog::level::debug &&
              level_of(LogLevel::info) == spdlog::level::info &&
              level_of(LogLevel::warning) == spdlog::level::warn &&
              level_of(LogLevel::error) == spdlog::level::err);

}  // namespace

LogSink spdlog_stderr_sink(LogLevel least) {
  auto logger = std::make_shared<spdlog::logger>(
      "kiln", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(level_of(least));
  return spdlog_sink(std::move(logger));
}

}  // namespace kiln
