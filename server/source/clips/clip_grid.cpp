// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_grid.h"

#include <cmath>

#include "base/rng.h"

namespace spdld::source {
namespace {

using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;

}  // namespace

// Each clip stands at a multiple of its own, so that no rounding adds up.
std::uint64_t ClipGrid::at(std::uint64_t k) const {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(k) * hop));
}

std::uint64_t ClipGrid::count(std::uint64_t length) const {
  if (length == 0 || (end == End::kDrop && length < span)) return 0;
  if (sampling != Sampling::kDense) return per_file;
  if (length <= span) return 1;
  // A clip behind the first is there if it fits, or else if the one before it leaves something
  // over.
  const auto is_there = [&](std::uint64_t k) {
    if (k == 0) return true;
    return end == End::kDrop ? at(k) + span <= length : at(k) < length && at(k - 1) + span < length;
  };
  auto k = static_cast<std::uint64_t>(static_cast<double>(length - span) / hop);
  while (k > 0 && !is_there(k)) --k;
  while (is_there(k + 1)) ++k;
  return k + 1;
}

std::uint64_t ClipGrid::start(std::uint64_t length, std::uint64_t k, std::uint64_t key) const {
  const std::uint64_t free = length > span ? length - span : 0;
  switch (sampling) {
    case Sampling::kUniform:
      if (per_file == 1) return free / 2;
      return static_cast<std::uint64_t>(
          std::llround(static_cast<double>(free) *
                       (static_cast<double>(k) / static_cast<double>(per_file - 1))));
    case Sampling::kRandom: return KeyedRng(mix64(key, k)).below(free + 1);
    default: return at(k);
  }
}

bool ClipGrid::fits(std::uint64_t length, std::uint64_t start) const {
  return end == End::kDrop ? start < length && span <= length - start : start < length;
}

}  // namespace spdld::source
