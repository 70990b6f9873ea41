// SPDX-License-Identifier: Apache-2.0
#include "spec/connection_bounds.h"

#include <algorithm>

namespace spdld::spec {

ConnectionBounds connection_bounds(const LimitsConfig& limits, std::uint64_t descriptors) {
  const auto part = [&](std::uint64_t divisor, std::size_t least, std::size_t most) {
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(descriptors / divisor, least, most));
  };
  ConnectionBounds bounds;
  bounds.data_per_user =
      limits.connections ? static_cast<std::size_t>(*limits.connections) : part(8, 8, 512);
  bounds.data = part(4, 16, 4096);
  bounds.data_reserved = bounds.data / 8;
  // What one user may have, there is, with the reserve beside it.
  bounds.data = std::max(bounds.data, bounds.data_per_user + bounds.data_reserved);
  bounds.control = part(8, 16, 256);
  // Nobody takes all.
  bounds.control_per_user =
      std::min(static_cast<std::size_t>(limits.control_connections), bounds.control / 2);
  bounds.runners = part(16, 8, 4096);
  bounds.runners_reserved = bounds.runners / 8;
  bounds.runners_per_user = bounds.runners / 2;
  return bounds;
}

}  // namespace spdld::spec
