// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_kernels.h"

#define HWY_WANT_AVX3_DL  // the AVX-512 of Ice Lake and Zen 4, too
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/jpeg/jpeg_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/jpeg/jpeg_dct-inl.h"
#include "media/jpeg/jpeg_pixels-inl.h"

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(inverse_dct);
HWY_EXPORT(upsample_h2v1);
HWY_EXPORT(upsample_h2v2);
HWY_EXPORT(ycc_to_rgb);

}  // namespace

void inverse_dct(const BlockRow& blocks, const JpegMultipliers& multipliers, std::uint8_t* out,
                 std::ptrdiff_t stride) {
  HWY_DYNAMIC_DISPATCH(inverse_dct)(blocks, multipliers, out, stride);
}

void upsample_h2v1(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(upsample_h2v1)(in, count, out);
}

void upsample_h2v2(const std::uint8_t* near, const std::uint8_t* far, std::size_t count,
                   std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(upsample_h2v2)(near, far, count, out);
}

void ycc_to_rgb(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                std::size_t count, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(ycc_to_rgb)(y, cb, cr, count, out);
}

}  // namespace spdld::media
#endif  // HWY_ONCE
