// SPDX-License-Identifier: Apache-2.0
// Steps that the kernels of JPEG share. Included by them once for each instruction set.
#if defined(SPDLD_MEDIA_JPEG_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_JPEG_VECTORS_INL_H_
#undef SPDLD_MEDIA_JPEG_VECTORS_INL_H_
#else
#define SPDLD_MEDIA_JPEG_VECTORS_INL_H_
#endif

#include <cstddef>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// The sums of products of neighbours, in 32 bits.
template <class D, class V>
HWY_INLINE hn::Vec<D> pair_products(D d, V a, V b) {
  hn::Vec<D> rest = hn::Zero(d);  // instruction sets differ in which products go where
  const hn::Vec<D> sums = hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), rest);
  return hn::RearrangeToOddPlusEven(sums, rest);
}

// Two vectors of 16 bits in the bytes of one, saturated: of each 128 bits of it the lower half is
// of the first. `d` says whether bytes are signed.
template <class D, class V>
HWY_INLINE hn::Vec<D> in_bytes(D d, V first, V second) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  (void)d;
  constexpr bool kIsSigned = std::is_signed_v<hn::TFromD<D> >;
  constexpr std::size_t kBytes = sizeof(first.raw);
  if constexpr (kBytes == 64 && kIsSigned) return {_mm512_packs_epi16(first.raw, second.raw)};
  if constexpr (kBytes == 64) return {_mm512_packus_epi16(first.raw, second.raw)};
  if constexpr (kBytes == 32 && kIsSigned) return {_mm256_packs_epi16(first.raw, second.raw)};
  if constexpr (kBytes == 32) return {_mm256_packus_epi16(first.raw, second.raw)};
  if constexpr (kBytes == 16 && kIsSigned) return {_mm_packs_epi16(first.raw, second.raw)};
  if constexpr (kBytes == 16) return {_mm_packus_epi16(first.raw, second.raw)};
#else
  const hn::Half<D> half;
  return hn::Combine(d, hn::DemoteTo(half, second), hn::DemoteTo(half, first));
#endif
}

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_JPEG_VECTORS_INL_H_
