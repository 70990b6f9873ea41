// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace spdld {

// gRPC's numbers, so that control/ and the data socket pass them on as they are.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

std::string_view code_name(Code code);

// Why an operation failed: what failed, on which thing, and what to do. A default one is success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // "context: message", for the way up; success stays what it is.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename T>
using Result = tl::expected<T, Status>;

inline tl::unexpected<Status> error(Code code, std::string message) {
  return tl::unexpected<Status>(Status(code, std::move(message)));
}

// "what: strerror(err)" under the code that fits err.
Status errno_status(int err, std::string_view what);

}  // namespace spdld

// Leaves the function with the failure, as Status or as Result<T>.
#define SPDLD_TRY(expr)                                              \
  do {                                                               \
    if (::spdld::Status spdld_status_ = (expr); !spdld_status_.ok()) \
      return ::spdld::detail::Failure{std::move(spdld_status_)};     \
  } while (false)

#define SPDLD_CONCAT_INNER(a, b) a##b
#define SPDLD_CONCAT(a, b) SPDLD_CONCAT_INNER(a, b)

// SPDLD_ASSIGN(auto x, f()): x = the value, or leaves the function with the failure.
#define SPDLD_ASSIGN(target, expr) \
  SPDLD_ASSIGN_INNER(SPDLD_CONCAT(spdld_result_, __LINE__), target, expr)
#define SPDLD_ASSIGN_INNER(result, target, expr)                           \
  auto result = (expr);                                                    \
  if (!result) return ::spdld::detail::Failure{std::move(result).error()}; \
  target = std::move(result).value()

namespace spdld::detail {

// Converts to whatever the function returns.
struct Failure {
  Status status;
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  operator Status() && { return std::move(status); }
  template <typename T>
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  operator Result<T>() && {
    return tl::unexpected<Status>(std::move(status));
  }
};

}  // namespace spdld::detail
