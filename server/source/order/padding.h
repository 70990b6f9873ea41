// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "source/order/lengths.h"
#include "source/order/sampler.h"

namespace spdld::source {

// What is padding, of all that batches of epoch 0 hold whose rows are filled up to the longest: a
// share of 0 to 1. Of a long epoch, of some batches from all over it, the same for every order;
// without the rows that fill no batch, unless there is no other. `lengths` are those of the order's
// items; batch > 0.
double padding_share(const Sampler& order, const Lengths& lengths, std::uint64_t batch);

}  // namespace spdld::source
