#include "kiln/spdlog.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace kiln {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

LogSink spdlog_sink(std::shared_ptr<spdlog::logger> logger) {
  return [logger = std::move(logger)](LogLevel level, std::string_view message) {
    // The message goes in as an argument: as a format it would be read for braces.
    logger->log(level_of(level), "{}", message);
  };
}

LogSink spdlog_stderr_sink(LogLevel least) {
  auto logger = std::make_shared<spdlog::logger>(
      "kiln", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(level_of(least));
  return spdlog_sink(std::move(logger));
}

}  // namespace kiln
