#include "kiln/cache/result.hpp"

#include <string>
#include <string_view>

namespace kiln {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::none:
      return "none";
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_cacheable:
      return "not_cacheable";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::no_toolchain:
      return "no_toolchain";
    case ErrorCode::no_device:
      return "no_device";
    case ErrorCode::driver_failed:
      return "driver_failed";
    case ErrorCode::capture_active:
      return "capture_active";
    case ErrorCode::io_failed:
      return "io_failed";
    case ErrorCode::sealed:
      return "sealed";
    case ErrorCode::not_ready:
      return "not_ready";
  }
  return "unknown";
}

std::string Error::message() const {
  if (driver_call_ == nullptr) return text_ ? text_->message : std::string{};
  // Put together only when somebody asks, so that the launch path allocates nothing.
  std::string message = driver_call_;
  message += " failed: ";
  if (driver_result_name_ != nullptr) {
    message += driver_result_name_;
    message += " (";
    message += std::to_string(driver_result_);
    message += ')';
  } else {
    message += "driver result ";
    message += std::to_string(driver_result_);
  }
  if (text_) message += "; " + text_->message;
  return message;
}

}  // namespace kiln
