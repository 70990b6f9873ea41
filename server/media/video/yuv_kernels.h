// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The loops over the samples of decoded video, each compiled for every instruction set that Highway
// knows for this machine's architecture and chosen at run time. Integers only: the bytes are the
// same on all. Nothing but what is said is read or written.
namespace spdld::media {

// Samples of up to 8 bits are bytes; of more, two bytes in the machine's order.
struct SampleRow {
  const std::uint8_t* data = nullptr;
  int bits = 8;
};

// Chroma between its kernels: the distance from gray in 1/64 of 1/256 of the range.
using Chroma = std::int16_t;

// out = the mean of rows a and b.
void mean_chroma(SampleRow a, SampleRow b, std::size_t count, Chroma* out);

// Twice as many samples as `count`: for each sample k of `in` two pixels, of which the first lies
// on it and the second half-way to the next.
void double_left(const Chroma* in, std::size_t count, Chroma* out);
// Likewise with the samples between their two pixels. in[-1] and in[count] are read.
void double_centered(const Chroma* in, std::size_t count, Chroma* out);

// How luma and chroma become red, green and blue: each is (sum + offset) >> kShift, clamped.
struct ColorMatrix {
  static constexpr int kShift = 20;

  std::int32_t luma = 0;  // of one step of the row's samples
  std::int32_t offset = 0;
  std::int32_t v_to_red = 0;  // of one step of Chroma
  std::int32_t u_to_green = 0;
  std::int32_t v_to_green = 0;
  std::int32_t u_to_blue = 0;
};

// Interleaved pixels of 3 bytes.
void yuv_to_rgb(SampleRow luma, const Chroma* u, const Chroma* v, std::size_t count,
                const ColorMatrix& matrix, std::uint8_t* out);
// One byte a sample, by the matrix's luma and offset.
void luma_to_bytes(SampleRow luma, std::size_t count, const ColorMatrix& matrix, std::uint8_t* out);

}  // namespace spdld::media
