// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spdld::media {

// How uncompressed sound holds a sample.
struct PcmFormat {
  enum class Kind : std::uint8_t { kUnsigned, kSigned, kFloat, kALaw, kMuLaw };

  Kind kind = Kind::kSigned;
  int bytes = 2;
  bool big_endian = false;

  friend bool operator==(const PcmFormat&, const PcmFormat&) = default;
};

// By FFmpeg's name of the codec, such as "pcm_s16le"; nothing: it is no codec of samples that lie
// one after the other.
std::optional<PcmFormat> pcm_format(std::string_view codec);

// Takes the samples of one channel out of interleaved ones and makes them float32: integers of b
// bits are divided by 2^(b-1), unsigned ones after their middle is taken away; float64 is rounded.
// `in` is the channel's first sample, and the next one lies `stride_bytes` behind it.
void read_pcm(const PcmFormat& format, const std::byte* in, std::size_t stride_bytes,
              std::int64_t count, float* out);

}  // namespace spdld::media
