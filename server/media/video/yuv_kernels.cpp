// SPDX-License-Identifier: Apache-2.0
#include "media/video/yuv_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/video/yuv_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/video/yuv_kernels-inl.h"

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(mean_bytes);
HWY_EXPORT(mean_words);
HWY_EXPORT(double_left);
HWY_EXPORT(double_centered);
HWY_EXPORT(bytes_to_rgb);
HWY_EXPORT(words_to_rgb);
HWY_EXPORT(bytes_to_gray);
HWY_EXPORT(words_to_gray);

const std::uint16_t* words(SampleRow row) {
  return reinterpret_cast<const std::uint16_t*>(row.data);
}

}  // namespace

void mean_chroma(SampleRow a, SampleRow b, std::size_t count, Chroma* out) {
  if (a.bits == 8) return HWY_DYNAMIC_DISPATCH(mean_bytes)(a.data, b.data, count, out);
  HWY_DYNAMIC_DISPATCH(mean_words)(words(a), words(b), count, a.bits, out);
}

void double_left(const Chroma* in, std::size_t count, Chroma* out) {
  HWY_DYNAMIC_DISPATCH(double_left)(in, count, out);
}

void double_centered(const Chroma* in, std::size_t count, Chroma* out) {
  HWY_DYNAMIC_DISPATCH(double_centered)(in, count, out);
}

void yuv_to_rgb(SampleRow luma, const Chroma* u, const Chroma* v, std::size_t count,
                const ColorMatrix& matrix, std::uint8_t* out) {
  if (luma.bits == 8)
    return HWY_DYNAMIC_DISPATCH(bytes_to_rgb)(luma.data, u, v, count, matrix, out);
  HWY_DYNAMIC_DISPATCH(words_to_rgb)(words(luma), u, v, count, matrix, out);
}

void luma_to_bytes(SampleRow luma, std::size_t count, const ColorMatrix& matrix,
                   std::uint8_t* out) {
  if (luma.bits == 8) return HWY_DYNAMIC_DISPATCH(bytes_to_gray)(luma.data, count, matrix, out);
  HWY_DYNAMIC_DISPATCH(words_to_gray)(words(luma), count, matrix, out);
}

}  // namespace spdld::media
#endif  // HWY_ONCE
