// SPDX-License-Identifier: Apache-2.0
// Included by pixel_kernels.cpp once for each instruction set.
#if defined(SPDLD_TRANSFORM_PIXEL_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_PIXEL_KERNELS_INL_H_
#undef SPDLD_TRANSFORM_PIXEL_KERNELS_INL_H_
#else
#define SPDLD_TRANSFORM_PIXEL_KERNELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: three vectors are a whole number of pixels and of the pattern of factors.
using DFloat = hn::CappedTag<float, 16>;
using DBits = hn::RebindToUnsigned<DFloat>;
using VFloat = hn::Vec<DFloat>;
using VBits = hn::Vec<DBits>;

// What becomes of a float: how many bytes it takes, and how a vector of them is stored.
struct Float32 {
  using Value = float;
  static HWY_INLINE void store(VFloat v, Value* out) { hn::StoreU(v, DFloat(), out); }
};

HWY_INLINE void store_halves(VBits bits, std::uint16_t* out) {
  const hn::Rebind<std::uint16_t, DBits> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<DBits>(), bits)), d16, out);
}

// Adds just under half of what is cut off, and one more where the result would be odd.
template <int kBits>
HWY_INLINE VBits round_off(VBits bits) {
  const DBits d;
  const VBits odd = hn::And(hn::ShiftRight<kBits>(bits), hn::Set(d, 1));
  const VBits below_half = hn::Set(d, (1U << (kBits - 1)) - 1);
  return hn::ShiftRight<kBits>(hn::Add(bits, hn::Add(odd, below_half)));
}

struct BFloat16 {
  using Value = std::uint16_t;
  static HWY_INLINE void store(VFloat v, Value* out) {
    store_halves(round_off<16>(hn::BitCast(DBits(), v)), out);
  }
};

struct Float16 {
  using Value = std::uint16_t;
  static HWY_INLINE void store(VFloat v, Value* out) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86 && !defined(HWY_DISABLE_F16C)
    const hn::Rebind<hwy::float16_t, DFloat> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(out));
#else
    const DBits d;
    const VBits bits = hn::BitCast(d, v);
    const VBits sign = hn::And(bits, hn::Set(d, 0x80000000U));
    const VBits magnitude = hn::Xor(bits, sign);
    // Normal numbers: the exponent's bias goes from 127 to 15, the mantissa from 23 bits to 10.
    // Too large a number becomes infinity.
    const VBits infinity = hn::Set(d, 0x7c00U);
    const VBits normal =
        hn::Min(round_off<13>(hn::Sub(magnitude, hn::Set(d, (127U - 15U) << 23))), infinity);
    // Numbers below 2^-14: adding 0.5 lets the adder round them to multiples of 2^-24.
    const VFloat half = hn::Set(DFloat(), 0.5F);
    const VBits small = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(DFloat(), magnitude), half)),
                                hn::BitCast(d, half));
    const auto is_small = hn::Lt(magnitude, hn::Set(d, (127U - 14U) << 23));
    store_halves(hn::Or(hn::IfThenElse(is_small, small, normal), hn::ShiftRight<16>(sign)), out);
#endif
  }
};

template <class Kind, typename In>
HWY_INLINE void convert_vector(const In* in, const float* factor, const float* offset,
                               typename Kind::Value* out) {
  const hn::Rebind<In, DFloat> d_in;
  const hn::RebindToSigned<DFloat> d32;
  const VFloat value = hn::ConvertTo(DFloat(), hn::PromoteTo(d32, hn::LoadU(d_in, in)));
  // Mul and Add, not MulAdd, which rounds once or twice as the machine has it.
  Kind::store(hn::Add(hn::Mul(value, hn::LoadU(DFloat(), factor)), hn::LoadU(DFloat(), offset)),
              out);
}

template <class Kind, typename In>
void convert(const In* in, std::size_t count, const float* factor, const float* offset,
             std::byte* out) {
  using Value = typename Kind::Value;
  const std::size_t lanes = hn::Lanes(DFloat());
  auto* to = reinterpret_cast<Value*>(out);
  std::size_t i = 0;
  // Three vectors hold whole pixels of 2, 3 and 4 channels, unless a vector is a single value.
  const bool in_threes = 3 * lanes % 4 == 0;
  for (; in_threes && i + 3 * lanes <= count; i += 3 * lanes) {
    convert_vector<Kind>(in + i, factor, offset, to + i);
    convert_vector<Kind>(in + i + lanes, factor + lanes, offset + lanes, to + i + lanes);
    convert_vector<Kind>(in + i + 2 * lanes, factor + 2 * lanes, offset + 2 * lanes,
                         to + i + 2 * lanes);
  }
  std::size_t phase = 0;
  for (; i + lanes <= count; i += lanes) {
    convert_vector<Kind>(in + i, factor + phase, offset + phase, to + i);
    phase = (phase + lanes) % (12 * lanes);
  }
  if (i == count) return;
  In last_in[16] = {};
  Value last_out[16];
  std::memcpy(last_in, in + i, (count - i) * sizeof(In));
  convert_vector<Kind>(last_in, factor + phase, offset + phase, last_out);
  std::memcpy(to + i, last_out, (count - i) * sizeof(Value));
}

inline void to_float32(const std::uint8_t* in, std::size_t count, const float* factor,
                       const float* offset, std::byte* out) {
  convert<Float32>(in, count, factor, offset, out);
}

inline void wide_to_float32(const std::uint16_t* in, std::size_t count, const float* factor,
                            const float* offset, std::byte* out) {
  convert<Float32>(in, count, factor, offset, out);
}

inline void to_float16(const std::uint8_t* in, std::size_t count, const float* factor,
                       const float* offset, std::byte* out) {
  convert<Float16>(in, count, factor, offset, out);
}

inline void wide_to_float16(const std::uint16_t* in, std::size_t count, const float* factor,
                            const float* offset, std::byte* out) {
  convert<Float16>(in, count, factor, offset, out);
}

inline void to_bfloat16(const std::uint8_t* in, std::size_t count, const float* factor,
                        const float* offset, std::byte* out) {
  convert<BFloat16>(in, count, factor, offset, out);
}

inline void wide_to_bfloat16(const std::uint16_t* in, std::size_t count, const float* factor,
                             const float* offset, std::byte* out) {
  convert<BFloat16>(in, count, factor, offset, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
