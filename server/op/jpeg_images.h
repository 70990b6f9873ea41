// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spdld {

// How many JPEG images were read in which way: all are 0 where none is decoded. An image may count
// twice: as recoded and by its coefficients, as they were kept and used at once; and in both ways
// in which it was read, where `verify` wants to compare them.
struct JpegImages {
  std::uint64_t indexed = 0;          // only the region was decoded
  std::uint64_t from_begin = 0;       // decoded from the file's begin, for want of an index
  std::uint64_t by_libjpeg = 0;       // by libjpeg-turbo
  std::uint64_t by_coefficients = 0;  // from coefficients that were made for a cache
  std::uint64_t recoded = 0;          // coefficients were made of it for a cache

  bool any() const { return *this != JpegImages(); }
  friend bool operator==(const JpegImages&, const JpegImages&) = default;
};

enum class JpegWay { kByIndex, kFromBegin, kByLibjpeg, kByCoefficients, kRecoded };
inline constexpr std::size_t kJpegWays = static_cast<std::size_t>(JpegWay::kRecoded) + 1;

// Counts JPEG images by way, with one relaxed add for each. Any thread.
class JpegCounter {
 public:
  void count(JpegWay way) {
    counts_[static_cast<std::size_t>(way)].fetch_add(1, std::memory_order_relaxed);
  }
  JpegImages images() const {
    return {.indexed = count_of(JpegWay::kByIndex),
            .from_begin = count_of(JpegWay::kFromBegin),
            .by_libjpeg = count_of(JpegWay::kByLibjpeg),
            .by_coefficients = count_of(JpegWay::kByCoefficients),
            .recoded = count_of(JpegWay::kRecoded)};
  }

 private:
  std::uint64_t count_of(JpegWay way) const {
    return counts_[static_cast<std::size_t>(way)].load(std::memory_order_relaxed);
  }

  std::array<std::atomic<std::uint64_t>, kJpegWays> counts_{};
};

}  // namespace spdld
