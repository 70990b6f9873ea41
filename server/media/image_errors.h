// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

// How the decoders of all formats say what is wrong with a file.
namespace spdld::media {

inline tl::unexpected<Status> corrupt(std::string_view format, const std::string& why) {
  return error(Code::kDataLoss, "corrupt " + std::string(format) + ": " + why);
}

// `missing` is what its `bytes` bytes lack: "end (IEND)".
inline tl::unexpected<Status> truncated(std::string_view format, std::string_view missing,
                                        std::size_t bytes) {
  return error(Code::kDataLoss, "truncated " + std::string(format) + ": no " +
                                    std::string(missing) + " in its " + std::to_string(bytes) +
                                    " bytes; fetch the file again or remove it");
}

inline tl::unexpected<Status> unsupported(std::string_view format, const std::string& what) {
  return error(Code::kInvalidArgument, "unsupported " + std::string(format) + ": " + what);
}

}  // namespace spdld::media
