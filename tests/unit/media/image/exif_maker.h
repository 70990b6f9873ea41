// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spdld::media::test {

// A TIFF block with one directory of one entry.
inline std::vector<std::byte> make_tiff(unsigned orientation, bool big_endian,
                                        unsigned tag = 0x0112, unsigned type = 3,
                                        unsigned count = 1) {
  std::vector<std::byte> tiff;
  const auto put = [&](unsigned value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      const int shift = 8 * (big_endian ? bytes - 1 - i : i);
      tiff.push_back(static_cast<std::byte>(value >> shift & 0xFF));
    }
  };
  const auto mark = static_cast<std::byte>(big_endian ? 'M' : 'I');
  tiff.assign(2, mark);
  put(42, 2);
  put(8, 4);  // where the directory begins
  put(1, 2);  // entries
  put(tag, 2);
  put(type, 2);
  put(count, 4);
  put(orientation, type == 3 ? 2 : 4);
  if (type == 3) put(0, 2);
  put(0, 4);  // no next directory
  return tiff;
}

}  // namespace spdld::media::test
