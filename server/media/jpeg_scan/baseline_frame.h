// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "op/image.h"

namespace spdld::media {

// A table of Huffman codes as a file has it: how many codes there are of 1 to 16 bits, and the
// symbols in the order of their codes.
struct HuffmanCodes {
  std::array<std::uint8_t, 16> counts{};
  std::array<std::uint8_t, 256> symbols{};

  friend bool operator==(const HuffmanCodes&, const HuffmanCodes&) = default;
};

// Bits of a difference of DC coefficients, at most.
inline constexpr int kMostDcSize = 11;

// The values that coefficients were divided by, in zigzag order.
using Quantizer = std::array<std::uint16_t, 64>;

// What precedes the scan of a JPEG file as cameras and data sets have them: baseline (SOF0), 8 bits
// a sample, gray or YCbCr with chroma of full size, half as wide, or half as wide and high, all in
// one scan without restart markers.
struct BaselineFrame {
  struct Component {
    int columns = 1;  // blocks of an MCU
    int rows = 1;
    Quantizer quantizer{};
    HuffmanCodes dc;
    HuffmanCodes ac;
  };

  Size size;
  int component_count = 0;  // 1 or 3
  std::array<Component, 3> components;
  std::size_t scan = 0;                  // where in the file the entropy-coded data begins
  std::span<const std::byte> exif = {};  // the TIFF block of the first Exif segment, or empty

  int mcu_width() const { return 8 * components[0].columns; }
  int mcu_height() const { return 8 * components[0].rows; }
  int mcus_across() const { return (size.width + mcu_width() - 1) / mcu_width(); }
  int mcus_down() const { return (size.height + mcu_height() - 1) / mcu_height(); }
  int mcu_blocks() const {
    return components[0].columns * components[0].rows + component_count - 1;
  }
};

// None: the file is another kind of JPEG, or odd or damaged in whatever way, which libjpeg-turbo
// may read or say more about.
std::optional<BaselineFrame> read_baseline_frame(std::span<const std::byte> file);

}  // namespace spdld::media
