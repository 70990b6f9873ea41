// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "op/clips_spec.h"

namespace spdld::source {

// Where the clips of one file begin, in units of its own: frames, or samples. Plain arithmetic;
// what a file has is `length` of these units.
struct ClipGrid {
  ClipsSpec::Sampling sampling = ClipsSpec::Sampling::kDense;
  ClipsSpec::End end = ClipsSpec::End::kDrop;
  std::uint64_t span = 1;      // that a clip reaches over
  double hop = 1;              // need be no whole number
  std::uint64_t per_file = 1;  // at least 1

  // How many there are. Not of kTimestamps and kKeyframes: see fits().
  std::uint64_t count(std::uint64_t length) const;
  // Where clip `k` < count() begins; where they are random, by the draw of `key`.
  std::uint64_t start(std::uint64_t length, std::uint64_t k, std::uint64_t key) const;
  // Whether a clip that is to begin there is one.
  bool fits(std::uint64_t length, std::uint64_t start) const;

 private:
  std::uint64_t at(std::uint64_t k) const;
};

}  // namespace spdld::source
