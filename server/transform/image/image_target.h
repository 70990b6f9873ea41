// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "op/op.h"
#include "op/tensor_spec.h"

namespace spdld::transform {

// Where one image goes: one row of a batch, output().height x output().width x channels values of
// format.dtype, laid out as `layout` says. Every one of them is written, nothing else is. A frame
// of a clip may have its channels `plane_pixels` apart; 0: they lie one behind the other.
struct ImageTarget {
  std::byte* data = nullptr;
  PixelFormat format;
  Layout layout = Layout::kNCHW;
  std::size_t plane_pixels = 0;
};

}  // namespace spdld::transform
