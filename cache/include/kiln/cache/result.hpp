// Errors as values: ErrorCode, Error, Result<T>, Status, and the one macro KILN_TRY.
//
// Kiln is embedded in engines that are built without exceptions, and "this kernel did not compile"
// is an ordinary event with a fallback, so nothing in our API throws.
// Threads: values; copy them freely. An Error's text is shared and never changes.
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "kiln/cache/api.hpp"

namespace kiln {

/// One code for each thing that a caller can do about it.
enum class ErrorCode : unsigned char {
  none = 0,          ///< no error; only inside a Status that is ok
  invalid_argument,  ///< fix the call: a key, shape, option or argument is wrong
  unsupported,       ///< this device, architecture or toolkit cannot: choose another kernel
  not_cacheable,     ///< the inputs of a compile cannot all be known: change the source, or ask for
                     ///< a compile that is not stored
  compile_failed,    ///< read Error::detail(), the whole compile log
  no_toolchain,      ///< NVRTC is needed and was not found or could not be loaded
  no_device,         ///< no driver, no device or no current context: only launching needs one
  driver_failed,     ///< a driver call failed; Error::driver_result() holds its number
  capture_active,    ///< cannot be done while a stream is being captured: do it before, at warmup
  io_failed,         ///< a file could not be read or written: carry on without the disk
  sealed,            ///< a late compile that the seal refuses: warm the kernel up, or fall back
  not_ready,         ///< stopped by a limit or a cancel, or still being built: ask again later
};

/// The lower_snake name of `code`, as it stands in logs and JSON.
KILN_API std::string_view to_string(ErrorCode code) noexcept;

/// What went wrong: a code, one sentence that names the thing, the value, the limit and the cure,
/// and apart from it a long text (a compile log). Copying shares the texts.
class Error {
 public:
  Error(ErrorCode code, std::string message, std::string detail = {})
      : code_(code),
        text_(std::make_shared<const Text>(Text{std::move(message), std::move(detail)})) {}

  /// A failed driver call. Allocates nothing, so that the launch path can return it.
  /// `call` and `result_name` must be static strings; `result_name` may be null.
  static Error from_driver(const char* call, int result, const char* result_name) noexcept {
    return Error(call, result, result_name);
  }

  /// The same with what to do about it, which follows the result in the message.
  static Error from_driver(const char* call, int result, const char* result_name,
                           std::string cure) {
    auto error = from_driver(call, result, result_name);
    error.text_ = std::make_shared<const Text>(Text{std::move(cure), {}});
    return error;
  }

  ErrorCode code() const noexcept { return code_; }
  /// The CUresult of a failed driver call, else 0.
  int driver_result() const noexcept { return driver_result_; }
  KILN_API std::string message() const;
  /// The long text, whole; empty for most errors.
  std::string_view detail() const noexcept { return text_ ? text_->detail : std::string_view{}; }

 private:
  friend class Status;
  struct Text {
    std::string message;
    std::string detail;
  };
  Error() noexcept : code_(ErrorCode::none) {}
  Error(const char* call, int result, const char* result_name) noexcept
      : code_(ErrorCode::driver_failed),
        driver_result_(result),
        driver_call_(call),
        driver_result_name_(result_name) {}

  ErrorCode code_;
  int driver_result_ = 0;
  const char* driver_call_ = nullptr;
  const char* driver_result_name_ = nullptr;
  std::shared_ptr<const Text> text_;
};

/// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Error error) noexcept : error_(std::move(error)) {}  // NOLINT: converts by design

  bool ok() const noexcept { return error_.code_ == ErrorCode::none; }
  explicit operator bool() const noexcept { return ok(); }
  ErrorCode code() const noexcept { return error_.code_; }
  /// Requires !ok().
  const Error& error() const noexcept {
    assert(!ok());
    return error_;
  }

 private:
  Error error_;
};

/// A T, or the Error that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: converts
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: converts

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// Requires has_value().
  T& operator*() & noexcept { return *checked(); }
  const T& operator*() const& noexcept { return *const_cast<Result*>(this)->checked(); }
  T&& operator*() && noexcept { return std::move(*checked()); }
  T* operator->() noexcept { return checked(); }
  const T* operator->() const noexcept { return const_cast<Result*>(this)->checked(); }

  /// Requires !has_value().
  const Error& error() const noexcept {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  /// Drops the value.
  Status status() const { return has_value() ? Status{} : Status{error()}; }

 private:
  T* checked() noexcept {
    assert(has_value());
    return std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

}  // namespace kiln

#define KILN_CONCATENATE_INNER(a, b) a##b
#define KILN_CONCATENATE(a, b) KILN_CONCATENATE_INNER(a, b)

/// KILN_TRY(target, expression): evaluates `expression`, a Result; returns its error from this
/// function, or stores its value in `target`, which may be a declaration.
/// KILN_TRY(expression): the same for a Status, or for a Result whose value is not wanted.
///
///   KILN_TRY(runtime.add_source("twice.cu", kSource));
///   KILN_TRY(const auto kernel, runtime.get(id));
#define KILN_TRY(...) KILN_TRY_CHOSEN(__VA_ARGS__, KILN_TRY_VALUE, KILN_TRY_STATUS, )(__VA_ARGS__)
#define KILN_TRY_CHOSEN(first, second, chosen, ...) chosen
#define KILN_TRY_STATUS(expression)                                         \
  do {                                                                      \
    if (const auto KILN_CONCATENATE(kiln_status_, __LINE__) = (expression); \
        !KILN_CONCATENATE(kiln_status_, __LINE__))                          \
      return KILN_CONCATENATE(kiln_status_, __LINE__).error();              \
  } while (false)
#define KILN_TRY_VALUE(target, expression)                      \
  auto KILN_CONCATENATE(kiln_result_, __LINE__) = (expression); \
  if (!KILN_CONCATENATE(kiln_result_, __LINE__))                \
    return KILN_CONCATENATE(kiln_result_, __LINE__).error();    \
  target = *std::move(KILN_CONCATENATE(kiln_result_, __LINE__))
