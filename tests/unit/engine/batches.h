// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld::engine {

// Of the batches of `batch: {size: 4}`, and of the datasets that they are made of.
constexpr std::uint64_t kRows = 4;
constexpr std::uint64_t kItems = 64;

}  // namespace spdld::engine
