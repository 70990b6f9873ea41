// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace spdld::transform {

// The most frames that the kernels work on at once: how many float32 lanes the widest vectors have.
inline constexpr std::size_t kMaxFrames = 16;

// The largest prime factor of a transform's length: a pass of it takes its square in steps.
inline constexpr int kMaxRadix = 31;

// One pass of Stockham's algorithm over a complex transform.
struct FourierPass {
  int radix = 0;
  int blocks = 0;            // into which the pass splits what the passes before have left together
  int stride = 0;            // between neighbours of a block
  std::size_t twiddles = 0;  // the pass's first in FourierPlan::twiddles
};

// How the real transform of `length` samples is made: as a complex one of half as many. Immutable.
struct FourierPlan {
  int length = 0;
  std::vector<FourierPass> passes;
  // Pairs (cos, -sin): for each block of a pass radix - 1 of them; where the radix is none of 2, 3,
  // 4 and 5, the radix' own roots before those.
  std::vector<float> twiddles;
  // Pairs for the bins 0 to length / 4, with which the half transform becomes the real one.
  std::vector<float> half_twiddles;

  int bins() const { return length / 2 + 1; }
};

// Whether there is a plan for this length: an even one without a prime factor above kMaxRadix.
bool has_fourier_plan(int length);
FourierPlan fourier_plan(int length);

}  // namespace spdld::transform
