// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/daemon_config.h"

namespace spdld::spec {

// How many connections the daemon takes, so that they leave descriptors for arenas and files.
struct ConnectionBounds {
  std::size_t data = 0;           // in all
  std::size_t data_reserved = 0;  // of these, for root, admins and the daemon's own user
  std::size_t data_per_user = 0;
  std::size_t control = 0;  // of others than these
  std::size_t control_per_user = 0;
  std::size_t runners = 0;  // supervisors and children
  std::size_t runners_reserved = 0;
  std::size_t runners_per_user = 0;

  friend bool operator==(const ConnectionBounds&, const ConnectionBounds&) = default;
};

// For a daemon that may have so many descriptors. A data connection takes two (socket and pidfd)
// and mostly one for an arena; one of a
// runner, two.
ConnectionBounds connection_bounds(const LimitsConfig& limits, std::uint64_t descriptors);

}  // namespace spdld::spec
