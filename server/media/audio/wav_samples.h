// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "media/bytes/byte_reader.h"
#include "media/container/demuxer.h"

namespace spdld::media {

// Where the samples of an uncompressed wav file lie: they are one piece.
struct WavSamples {
  std::uint64_t offset = 0;
  std::uint64_t samples = 0;  // of all channels each
  bool cut_off = false;       // the file ends before its header says
};

// Empty: it is no such file, and no packet was taken out of `demuxer`. kInvalidArgument: the
// samples lie in several pieces.
Result<std::optional<WavSamples>> wav_samples(Demuxer& demuxer, ByteReader& reader);

}  // namespace spdld::media
