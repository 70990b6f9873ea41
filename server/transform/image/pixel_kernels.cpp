// SPDX-License-Identifier: Apache-2.0
#include "transform/image/pixel_kernels.h"

#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/image/pixel_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "transform/image/pixel_kernels-inl.h"

#if HWY_ONCE
namespace spdld::transform {
namespace {

HWY_EXPORT(to_float32);
HWY_EXPORT(to_float16);
HWY_EXPORT(to_bfloat16);
HWY_EXPORT(wide_to_float32);
HWY_EXPORT(wide_to_float16);
HWY_EXPORT(wide_to_bfloat16);

constexpr std::size_t kInterleaved = 4;

template <typename Value>
void widen(const Value* in, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t value = in[i];
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

void convert(DType dtype, const std::uint8_t* in, std::size_t count, const float* factor,
             const float* offset, std::byte* out) {
  switch (dtype) {
    case DType::kFloat32: return HWY_DYNAMIC_DISPATCH(to_float32)(in, count, factor, offset, out);
    case DType::kFloat16: return HWY_DYNAMIC_DISPATCH(to_float16)(in, count, factor, offset, out);
    case DType::kBFloat16: return HWY_DYNAMIC_DISPATCH(to_bfloat16)(in, count, factor, offset, out);
    case DType::kInt64: return widen(in, count, out);
    default: std::memcpy(out, in, count);
  }
}

void convert(DType dtype, const std::uint16_t* in, std::size_t count, const float* factor,
             const float* offset, std::byte* out) {
  switch (dtype) {
    case DType::kFloat32:
      return HWY_DYNAMIC_DISPATCH(wide_to_float32)(in, count, factor, offset, out);
    case DType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(wide_to_float16)(in, count, factor, offset, out);
    case DType::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(wide_to_bfloat16)(in, count, factor, offset, out);
    case DType::kInt64: return widen(in, count, out);
    default: std::memcpy(out, in, count * sizeof(*in));
  }
}

const std::uint16_t* as_wide(const std::uint8_t* in) {
  return reinterpret_cast<const std::uint16_t*>(in);
}

}  // namespace

bool is_integer(DType dtype) { return dtype == DType::kUInt8 || dtype == DType::kUInt16; }

PixelConverter::PixelConverter(const PixelFormat& format, int channels, int bytes_per_value)
    : dtype_(format.dtype),
      value_bytes_(wire::dtype_bytes(format.dtype)),
      wide_(bytes_per_value == 2) {
  SPDLD_CHECK(dtype_ == (wide_ ? DType::kUInt16 : DType::kUInt8) || dtype_ == DType::kFloat32 ||
              dtype_ == DType::kFloat16 || dtype_ == DType::kBFloat16 || dtype_ == DType::kInt64);
  SPDLD_CHECK(channels >= 1 && channels <= 4);
  SPDLD_CHECK((!is_integer(dtype_) && dtype_ != DType::kInt64) ||
              (format.scale == 1.0F && !format.normalized));
  const auto count = static_cast<std::size_t>(channels);
  for (std::size_t c = 0; c < count; ++c) {
    const double std = format.normalized ? format.std[c] : 1.0;
    const double mean = format.normalized ? format.mean[c] : 0.0;
    factor_[c].fill(static_cast<float>(static_cast<double>(format.scale) / std));
    offset_[c].fill(static_cast<float>(-mean / std));
  }
  for (std::size_t i = 0; i < factor_[kInterleaved].size(); ++i) {
    factor_[kInterleaved][i] = factor_[i % count][0];
    offset_[kInterleaved][i] = offset_[i % count][0];
  }
}

void PixelConverter::convert_plane(const std::uint8_t* in, std::size_t count, int channel,
                                   std::byte* out) const {
  const auto c = static_cast<std::size_t>(channel);
  if (wide_) return convert(dtype_, as_wide(in), count, factor_[c].data(), offset_[c].data(), out);
  convert(dtype_, in, count, factor_[c].data(), offset_[c].data(), out);
}

void PixelConverter::convert_interleaved(const std::uint8_t* in, std::size_t count,
                                         std::byte* out) const {
  if (wide_)
    return convert(dtype_, as_wide(in), count, factor_[kInterleaved].data(),
                   offset_[kInterleaved].data(), out);
  convert(dtype_, in, count, factor_[kInterleaved].data(), offset_[kInterleaved].data(), out);
}

}  // namespace spdld::transform
#endif  // HWY_ONCE
