// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace spdld {

// SplitMix64's finaliser: a bijection of 64 bits in which every input bit reaches every output bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t mix64(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a) ^ b); }

// FNV-1a: a key for a name, the same on every machine and in every version.
constexpr std::uint64_t name_key(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// A stream of random numbers that is a pure function of its key: no state outlives the sample, so
// order of execution and number of threads do not matter. Changing what it yields changes every
// user's batches: tests/unit/base/rng_test.cpp pins it.
class KeyedRng {
 public:
  explicit constexpr KeyedRng(std::uint64_t key) : key_(key) {}

  constexpr std::uint64_t next() { return mix64(key_, ++counter_); }

  // Uniform in [0, 1), 53 bits.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // Uniform in [0, bound), bound > 0, without bias worth naming (Lemire's multiply-shift on 64
  // bits).
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace spdld
