// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/rng.h"

namespace spdld::source {

// A keyed bijection of [0, size) in O(1) memory: a balanced Feistel network over the smallest
// domain of 2^(2h) >= size values, walked until it lands below size (fewer than four rounds trips
// on average, as the domain is less than 4 * size). A plain value; any thread. Changing what it
// yields changes every user's order: tests/unit/source/order/sampler_test.cpp pins it.
class KeyedPermutation {
 public:
  // size > 0.
  KeyedPermutation(std::uint64_t size, std::uint64_t key) : size_(size) {
    half_bits_ = size <= 2 ? 1 : (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
    for (std::uint32_t round = 0; round < kRounds; ++round) keys_[round] = mix64(key, round);
  }

  std::uint64_t operator()(std::uint64_t value) const {
    if (size_ == 1) return 0;
    do {
      value = encrypt(value);
    } while (value >= size_);
    return value;
  }

  std::uint64_t inverse(std::uint64_t value) const {
    if (size_ == 1) return 0;
    do {
      value = decrypt(value);
    } while (value >= size_);
    return value;
  }

 private:
  static constexpr std::uint32_t kRounds = 8;

  std::uint64_t scramble(std::uint64_t half, std::uint32_t round) const {
    return mix64(keys_[round] ^ half) >> (64 - half_bits_);
  }

  std::uint64_t encrypt(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & ((std::uint64_t{1} << half_bits_) - 1);
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ scramble(right, round);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t decrypt(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & ((std::uint64_t{1} << half_bits_) - 1);
    for (std::uint32_t round = kRounds; round-- > 0;) {
      const std::uint64_t mixed = right ^ scramble(left, round);
      right = left;
      left = mixed;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  int half_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace spdld::source
