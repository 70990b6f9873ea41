// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"

// Ways in which files of media get damaged. Deterministic: what comes of a file depends on the
// draws alone.
namespace spdld::media::test {

using Bytes = std::vector<std::byte>;

// SPDLD_MUTATIONS in the environment, or `otherwise`.
inline int mutations_wanted(int otherwise) {
  const char* wanted = std::getenv("SPDLD_MUTATIONS");
  return wanted == nullptr ? otherwise : std::atoi(wanted);
}

// Why a mutant failed, in words that many of them share: each number is N, and what a file claims
// to be in place of media, which is as various as the damage, is left out.
inline std::string reason_of(const Status& status) {
  static const std::regex kNumber(R"(0x[0-9a-f]+|-?\b[0-9]+([.x][0-9]+)?)");
  const std::string reason = std::regex_replace(status.message(), kNumber, "N");
  return reason.substr(0, reason.find(" (first bytes"));
}

inline std::size_t place(const Bytes& bytes, KeyedRng& rng) { return rng.below(bytes.size()); }

inline void flip_bits(Bytes& bytes, KeyedRng& rng) {
  for (std::uint64_t i = 0, count = 1 + rng.below(8); i < count; ++i) {
    bytes[place(bytes, rng)] ^= static_cast<std::byte>(1U << rng.below(8));
  }
}

// Headers are a small part of a file, and most of what can go wrong.
inline void scramble_head(Bytes& bytes, KeyedRng& rng) {
  const std::size_t head = std::min<std::size_t>(bytes.size(), 700);
  for (std::uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i) {
    constexpr std::array<unsigned char, 6> kTelling = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF};
    bytes[rng.below(head)] = std::byte{kTelling[rng.below(kTelling.size())]};
  }
}

inline void cut(Bytes& bytes, KeyedRng& rng) { bytes.resize(place(bytes, rng)); }

inline void cut_out(Bytes& bytes, KeyedRng& rng) {
  const std::size_t from = place(bytes, rng);
  const std::size_t count = rng.below(bytes.size() - from) / 4 + 1;
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
}

inline void repeat_part(Bytes& bytes, KeyedRng& rng) {
  const std::size_t from = place(bytes, rng);
  const std::size_t count = std::min<std::size_t>(rng.below(200) + 1, bytes.size() - from);
  const Bytes part(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                   bytes.begin() + static_cast<std::ptrdiff_t>(from + count));
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(place(bytes, rng));
  bytes.insert(at, part.begin(), part.end());
}

inline void zero_part(Bytes& bytes, KeyedRng& rng) {
  const std::size_t from = place(bytes, rng);
  const std::size_t count = rng.below(std::min<std::size_t>(512, bytes.size() - from)) + 1;
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), count, std::byte{0});
}

inline void plant_markers(Bytes& bytes, KeyedRng& rng) {
  for (int i = 0; i < 2; ++i) {
    const std::size_t at = rng.below(bytes.size() - 1);
    bytes[at] = std::byte{0xFF};
    bytes[at + 1] = static_cast<std::byte>(0xC0 + rng.below(0x40));
  }
}

inline Bytes mutant_of(const Bytes& good, KeyedRng& rng) {
  Bytes bytes = good;
  using Mutation = void (*)(Bytes&, KeyedRng&);
  constexpr std::array<Mutation, 7> kMutations = {flip_bits,   scramble_head, cut,          cut_out,
                                                  repeat_part, zero_part,     plant_markers};
  kMutations[rng.below(kMutations.size())](bytes, rng);
  return bytes;
}

}  // namespace spdld::media::test
