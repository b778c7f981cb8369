// The log sinks in a program that has a spdlog of its own, and not the one that Kiln was built
// with.
#include "kiln/spdlog.hpp"

#include <gtest/gtest.h>

#include <string>

#include "kiln/log.hpp"

// As little of another version as it takes: its logger is no bigger than this.
namespace spdlog {
enum class Level { trace, debug, info, warn, err };
class logger {
 public:
  explicit logger(std::string name) : text(std::move(name)) {}
  virtual ~logger() = default;
  Level level() const { return Level::trace; }
  virtual void log(Level level, std::string_view format, std::string_view message) {
    text += std::to_string(static_cast<int>(level)) + std::string(format) + std::string(message);
  }
  std::string text;
};
}  // namespace spdlog

namespace kiln::test {
namespace {

TEST(SpdlogSink, PassesOnToALoggerOfAnyVersion) {
  const auto logger = std::make_shared<spdlog::logger>("own ");
  const auto sink = spdlog_sink(logger);
  sink(LogLevel::debug, "{");
  sink(LogLevel::info, "a");
  sink(LogLevel::warning, "b");
  sink(LogLevel::error, "c");
  EXPECT_EQ(logger->text, "own 1{}{2{}a3{}b4{}c");
}

TEST(SpdlogSink, TheOneOfKilnIsNoneOfTheProgramsSpdlog) {
  const auto logger = std::make_shared<spdlog::logger>("own");
  const auto sink = spdlog_stderr_sink(LogLevel::warning);
  ::testing::internal::CaptureStderr();
  sink(LogLevel::info, "too little");
  sink(LogLevel::warning, "{} enough");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: {} enough\n");
  EXPECT_EQ(logger->text, "own");
}

}  // namespace
}  // namespace kiln::test
