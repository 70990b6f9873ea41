// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "op/tensor_spec.h"

namespace spdld::media {

// What stands before the numbers of an .npy file.
struct NpyHeader {
  DType dtype = DType::kUInt8;
  bool big_endian = false;
  bool fortran_order = false;  // the first extent runs fastest
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  // where the numbers begin
  std::uint64_t data_bytes = 0;
};

// A header that takes more is refused.
inline constexpr std::size_t kMaxNpyHeader = std::size_t{64} << 10;

inline bool is_npy(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, 6> kMagic{0x93, 'N', 'U', 'M', 'P', 'Y'};
  if (bytes.size() < kMagic.size()) return false;
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    if (std::to_integer<unsigned char>(bytes[i]) != kMagic[i]) return false;
  }
  return true;
}

// Reads the header that `bytes`, of which kMaxNpyHeader suffice, begin with: of formats 1.0 to 3.0.
// kDataLoss: it is none, or of a kind of values that no tensor has.
Result<NpyHeader> read_npy_header(std::span<const std::byte> bytes);

}  // namespace spdld::media
