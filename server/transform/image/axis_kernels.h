// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The weights of many outputs at once, compiled for every instruction set: a random crop has a
// filter of its own, so that making the weights is part of each image's time.
namespace spdld::transform {

struct TriangleFilter {
  double in = 0;         // source pixels
  double scale = 0;      // source pixels per output
  double support = 0;    // how far it reaches from its center
  std::size_t taps = 0;  // at most; what follows an output's last tap weighs 0
};

inline constexpr std::size_t kAxisGroup = 8;  // outputs at once

struct AxisGroup {
  std::int32_t first[kAxisGroup];  // source pixel of the first tap
  std::int32_t end[kAxisGroup];    // one past that of the last tap
};

// Outputs [begin, begin + kAxisGroup). weights holds kAxisGroup numbers for each tap; `scratch`
// has room for as many.
void triangle_weights(const TriangleFilter& filter, int begin, AxisGroup& group, double* scratch,
                      std::int32_t* weights);

}  // namespace spdld::transform
