#include "kiln/cache/result.hpp"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

Status checked(bool good) {
  return good ? Status{} : Status(Error(ErrorCode::io_failed, "bad"));
}

Result<std::string> made(bool good) {
  if (!good) return Error(ErrorCode::no_device, "none");
  return std::string("text");
}

Status in_a_status(bool first, bool second) {
  KILN_TRY(checked(first));
  KILN_TRY(made(second));  // for its error alone
  return {};
}

Result<std::string> in_a_result(bool first, bool second) {
  KILN_TRY(checked(first));
  KILN_TRY(const auto text, made(second));
  if (first)
    KILN_TRY(checked(true));
  else
    return Error(ErrorCode::sealed, "not reached");
  return text;
}

TEST(Result, TryTakesAStatusOrAResult) {
  EXPECT_TRUE(in_a_status(true, true));
  EXPECT_EQ(in_a_status(false, true).code(), ErrorCode::io_failed);
  EXPECT_EQ(in_a_status(true, false).code(), ErrorCode::no_device);
  EXPECT_EQ(*in_a_result(true, true), "text");
  EXPECT_EQ(in_a_result(false, true).error().message(), "bad");
  EXPECT_EQ(in_a_result(true, false).error().message(), "none");
}

}  // namespace
}  // namespace kiln
