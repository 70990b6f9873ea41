// SPDX-License-Identifier: Apache-2.0
// Steps that the loops of lanes share. Included by them once for each instruction set.
#if defined(SPDLD_MEDIA_LANE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_LANE_KERNELS_INL_H_
#undef SPDLD_MEDIA_LANE_KERNELS_INL_H_
#else
#define SPDLD_MEDIA_LANE_KERNELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/lane_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::FixedTag<std::uint32_t, kScanLanes>;
using Signed = hn::RebindToSigned<Tag>;
using Numbers = hn::Vec<Tag>;
using Lanes = hn::Mask<Tag>;

HWY_INLINE Numbers all_of(std::uint32_t value) { return hn::Set(Tag(), value); }
HWY_INLINE Lanes is_zero(Numbers numbers) { return hn::Eq(numbers, hn::Zero(Tag())); }
// The bits from `shift` on, as a number with a sign.
template <int kShift>
HWY_INLINE Numbers signed_from(Numbers bits) {
  return hn::BitCast(Tag(), hn::ShiftRight<kShift>(hn::BitCast(Signed(), bits)));
}
HWY_INLINE Numbers of_place(Numbers table, Numbers place) {
  return hn::TableLookupLanes(table, hn::IndicesFromVec(Tag(), place));
}

HWY_INLINE Lanes lanes_of(std::uint32_t bits) {
  return hn::LoadMaskBits(Tag(), reinterpret_cast<const std::uint8_t*>(&bits));
}
HWY_INLINE std::uint32_t bits_of(Lanes lanes) {
  std::uint32_t bits = 0;
  hn::StoreMaskBits(Tag(), lanes, reinterpret_cast<std::uint8_t*>(&bits));
  return bits;
}

// The fields of HuffmanTable::Entry, in the number that its four bytes are.
struct Entries {
  static constexpr int kAdvanceAt = 8, kRunAt = 16, kSecondAt = 20, kFirstAt = 24;

  Numbers entries;

  HWY_INLINE Numbers length() const { return hn::And(entries, all_of(0xFF)); }
  // Whether a coefficient fits, whose bits else follow its code.
  HWY_INLINE Lanes fits() const {
    return hn::Ne(hn::And(entries, all_of(0xFFu << kAdvanceAt)), hn::Zero(Tag()));
  }
  // These are multiplied by kBy, which is 1 or 2.
  template <int kBy>
  HWY_INLINE Numbers advance() const {
    return hn::And(hn::ShiftRight<kAdvanceAt - (kBy - 1)>(entries), all_of(0xFF * kBy));
  }
  template <int kBy>
  HWY_INLINE Numbers run() const {
    return hn::And(hn::ShiftRight<kRunAt - (kBy - 1)>(entries), all_of(0xF * kBy));
  }
  HWY_INLINE Numbers first() const { return signed_from<kFirstAt>(entries); }
  HWY_INLINE Lanes has_second() const {
    return hn::Ne(hn::And(entries, all_of(0xFu << kSecondAt)), hn::Zero(Tag()));
  }
  HWY_INLINE Numbers second() const {
    return signed_from<28>(hn::ShiftLeft<28 - kSecondAt>(entries));
  }
  // Of one that does not fit.
  HWY_INLINE Numbers size() const {
    return hn::And(hn::ShiftRight<kSecondAt>(entries), all_of(0xF));
  }
};

// The number that the highest `size` of these bits stand for, where size is not 0.
HWY_INLINE Numbers value_of(Numbers bits, Numbers size) {
  const Numbers rest = hn::Sub(all_of(32), size);
  const Numbers lowest = hn::AndNot(signed_from<31>(bits), hn::Shr(all_of(~0u), rest));
  return hn::Sub(hn::Shr(bits, rest), lowest);
}

// Looks at the tables.
class Looks {
 public:
  struct Look {
    Numbers bits;  // 25 at least, from the highest
    Entries found;

    // The first coefficient, and the bits of all that was found.
    HWY_INLINE Numbers first(Lanes fits) const {
      return hn::IfThenElse(fits, found.first(),
                            value_of(hn::Shl(bits, found.length()), found.size()));
    }
    HWY_INLINE Numbers used(Lanes fits) const {
      return hn::IfThenElse(fits, found.length(), hn::Add(found.length(), found.size()));
    }
  };

  HWY_INLINE explicit Looks(const LaneTables& tables)
      : scan_(reinterpret_cast<const std::uint32_t*>(tables.bytes->data())),
        entries_(reinterpret_cast<const std::uint32_t*>(tables.entries)),
        last_byte_(all_of(static_cast<std::uint32_t>(tables.bytes->last_byte()))),
        first_entries_(hn::LoadU(Tag(), tables.first_entries.data())) {}

  HWY_INLINE Look at(Numbers bit, Numbers place) const {
    const Tag d;
    const hn::Repartition<std::uint8_t, Tag> bytes;
    alignas(16) static constexpr std::uint8_t kSwapped[16] = {3,  2,  1, 0, 7,  6,  5,  4,
                                                              11, 10, 9, 8, 15, 14, 13, 12};
    const Numbers byte = hn::Min(hn::ShiftRight<3>(bit), last_byte_);
    const Numbers loaded = hn::GatherOffset(d, scan_, hn::BitCast(Signed(), byte));
    const Numbers bits = hn::Shl(
        hn::BitCast(
            d, hn::TableLookupBytes(hn::BitCast(bytes, loaded), hn::LoadDup128(bytes, kSwapped))),
        hn::And(bit, all_of(7)));
    const Numbers index =
        hn::Add(hn::ShiftRight<32 - HuffmanTable::kBits>(bits), of_place(first_entries_, place));
    return {bits, {hn::GatherIndex(d, entries_, hn::BitCast(Signed(), index))}};
  }

 private:
  const std::uint32_t* scan_;
  const std::uint32_t* entries_;
  Numbers last_byte_;
  Numbers first_entries_;
};

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_LANE_KERNELS_INL_H_
