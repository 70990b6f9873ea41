// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace spdld::client {

// The numbers that Error::code() has; they are gRPC's.
inline constexpr int kCancelled = 1;
inline constexpr int kUnknown = 2;
inline constexpr int kInvalidArgument = 3;
inline constexpr int kDeadlineExceeded = 4;
inline constexpr int kNotFound = 5;
inline constexpr int kPermissionDenied = 7;
inline constexpr int kFailedPrecondition = 9;
inline constexpr int kUnimplemented = 12;
inline constexpr int kUnavailable = 14;
inline constexpr int kDataLoss = 15;
inline constexpr int kUnauthenticated = 16;

namespace detail {
inline void append(std::string& out, std::string_view part) { out += part; }
template <typename T>
requires std::is_arithmetic_v<T>
void append(std::string& out, T number) { out += std::to_string(number); }
}  // namespace detail

// Texts and numbers, one after the other: this library has no formatting library to lean on.
template <typename... Parts>
std::string join(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

inline std::string errno_text(int err) { return std::strerror(err); }

}  // namespace spdld::client
