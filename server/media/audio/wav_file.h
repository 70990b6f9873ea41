// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "media/audio/pcm.h"

namespace spdld::media {

// Where the samples of a WAV file lie.
struct WavFile {
  PcmFormat format;
  int sample_rate = 0;
  int channels = 0;
  std::uint32_t channel_mask = 0;  // which speakers the channels are for; 0: it is not told
  std::span<const std::byte> data;

  std::size_t frame_bytes() const {
    return static_cast<std::size_t>(format.bytes) * static_cast<std::size_t>(channels);
  }
  std::int64_t samples() const { return static_cast<std::int64_t>(data.size() / frame_bytes()); }
};

// Whether it begins as a RIFF, RF64 or BW64 file of sound does.
bool is_wav(std::span<const std::byte> bytes);

// Reads the chunks of such a file up to its samples. Nothing: what it holds is not PCM. A file that
// was written as it was recorded, with a length that was not known, ends where its bytes do; of
// others a length beyond that is kDataLoss, as is a header that contradicts itself.
Result<std::optional<WavFile>> read_wav(std::span<const std::byte> bytes);

}  // namespace spdld::media
