// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// How made-up batches tell of which step they are: the first eight bytes of each page of "image"
// are the number of the step, counted over all epochs; the rest is as it was.
namespace spdld::gpu {

inline constexpr std::uint64_t kPage = 4096;

inline void stamp(std::byte* image, std::uint64_t bytes, std::uint64_t step) {
  for (std::uint64_t at = 0; at < bytes; at += kPage) std::memcpy(image + at, &step, sizeof step);
}

inline std::uint64_t stamp_at(const std::byte* page) {
  std::uint64_t step = 0;
  std::memcpy(&step, page, sizeof step);
  return step;
}

// Whether all pages are of this step.
inline bool is_of(const std::byte* image, std::uint64_t bytes, std::uint64_t step) {
  for (std::uint64_t at = 0; at < bytes; at += kPage) {
    if (stamp_at(image + at) != step) return false;
  }
  return true;
}

}  // namespace spdld::gpu
