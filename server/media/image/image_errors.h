// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

// How the decoders of all formats say what is wrong with a file: as a Status or as any Result.
namespace spdld::media {

inline detail::Failure corrupt(std::string_view format, const std::string& why) {
  return {Status(Code::kDataLoss, "corrupt " + std::string(format) + ": " + why)};
}

// `missing` is what its `bytes` bytes lack: "end (IEND)".
inline detail::Failure truncated(std::string_view format, std::string_view missing,
                                 std::size_t bytes) {
  return {Status(Code::kDataLoss, "truncated " + std::string(format) + ": no " +
                                      std::string(missing) + " in its " + std::to_string(bytes) +
                                      " bytes; fetch the file again or remove it")};
}

inline detail::Failure unsupported(std::string_view format, const std::string& what) {
  return {Status(Code::kInvalidArgument, "unsupported " + std::string(format) + ": " + what)};
}

}  // namespace spdld::media
