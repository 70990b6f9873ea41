// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace spdld::job {

// A consumer's place in a job.
struct Member {
  std::uint32_t shard = 0;
  std::uint32_t replica = 0;

  friend auto operator<=>(const Member&, const Member&) = default;
};

}  // namespace spdld::job
