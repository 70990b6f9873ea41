// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "op/tensor_spec.h"

namespace spdld::engine {

// Whether `value` is one that the dtype has.
bool is_value_of(DType dtype, double value);

// Fills `bytes` bytes, a whole number of elements, with `value`, which is_value_of() the dtype.
void fill(std::byte* out, std::uint64_t bytes, DType dtype, double value);

}  // namespace spdld::engine
