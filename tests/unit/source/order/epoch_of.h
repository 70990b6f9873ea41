// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "source/order/sampler.h"

namespace spdld::source {

constexpr Shuffle kGlobal{.kind = Shuffle::Kind::kGlobal};

// Its items, in their order.
inline std::vector<std::uint64_t> epoch_of(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> items(sampler.rows());
  for (std::uint64_t p = 0; p < sampler.rows(); ++p) items[p] = sampler.item(epoch, p);
  return items;
}

}  // namespace spdld::source
