// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spdld::media {

// Which samples of a subsampled axis one pixel's chroma is made of: `second` weighs weight / kOne,
// `first` the rest.
struct ChromaTap {
  static constexpr int kBits = 14;
  static constexpr std::int32_t kOne = 1 << kBits;

  std::int32_t first = 0;
  std::int32_t second = 0;
  std::int32_t weight = 0;

  friend bool operator==(const ChromaTap&, const ChromaTap&) = default;
};

// How chroma of `samples` samples is brought to `pixels` pixels along one axis, as swscale does it
// with SWS_BILINEAR: by linear interpolation at positions that follow from both counts, so that an
// odd width stretches the axis a little. Of rows, swscale then takes the first alone where the
// second weighs less than a half, and the mean of both where it does not (its yuv2packed1).
// A value that one worker keeps; building it again for the same axis costs nothing.
class ChromaAxis {
 public:
  // Where the first sample lies, in 1/256 of a pixel from the first pixel's centre.
  static constexpr int kFirst = 0;      // on the first pixel
  static constexpr int kBetween = 128;  // between the first and the second
  static constexpr int kSecond = 256;   // on the second

  // `shift`: log2 of the pixels to a sample. `position`: for shift 1; an axis of another is
  // centred.
  void build(int samples, int pixels, int shift, int position, bool is_rows);

  const ChromaTap& tap(int pixel) const { return taps_[static_cast<std::size_t>(pixel)]; }
  // Whether there is a sample for each pixel.
  bool is_full() const { return is_full_; }
  // Whether pixels 2k and 2k + 1 have the same taps for each k, counted from sample k: those of
  // position kFirst or kBetween.
  bool is_regular() const { return is_regular_; }
  int position() const { return position_; }
  int samples() const { return samples_; }

 private:
  int samples_ = 0;
  int pixels_ = 0;
  int shift_ = 0;
  int position_ = 0;
  bool is_rows_ = false;
  bool is_full_ = false;
  bool is_regular_ = false;
  std::vector<ChromaTap> taps_;
};

}  // namespace spdld::media
