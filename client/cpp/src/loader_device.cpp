// SPDX-License-Identifier: Apache-2.0
#include "loader_device.h"

#include <charconv>
#include <string_view>

#include "spdld/error.h"
#include "text.h"

namespace spdld::client {

bool names_device(const std::string& device) { return !device.empty() && device != "cpu"; }

int device_ordinal(const std::string& device) {
  constexpr std::string_view kKind = "cuda";
  std::string_view rest = device;
  int ordinal = 0;
  if (rest == kKind) return ordinal;
  if (rest.substr(0, kKind.size() + 1) == "cuda:") {
    rest.remove_prefix(kKind.size() + 1);
    const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), ordinal);
    if (failed == std::errc() && end == rest.data() + rest.size() && ordinal >= 0) return ordinal;
  }
  throw DeviceError(kInvalidArgument, join("there is no device '", device,
                                           "': it is \"cuda\", \"cuda:N\" or \"cpu\""));
}

#ifndef SPDLD_CUDA
std::unique_ptr<LoaderDevice> open_device(const std::string& device) {
  (void)device_ordinal(device);
  throw DeviceError(kUnimplemented,
                    join("device '", device,
                         "' cannot be had: this libspdld was built without the "
                         "headers of the CUDA Toolkit; without device= batches come in main "
                         "memory"));
}
#endif

}  // namespace spdld::client
