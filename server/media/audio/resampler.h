// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavutil/channel_layout.h>
#include <libswresample/swresample.h>
}

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "media/audio/channels.h"
#include "op/audio.h"

namespace spdld::media {

// The parameters of swresample's own resampler, under their names.
struct ResampleOptions {
  int filter_size = 32;
  int phase_shift = 10;
  bool linear_interp = true;
  bool exact_rational = true;
  double cutoff = 0.97;
  SwrFilterType filter_type = SWR_FILTER_TYPE_KAISER;
  double kaiser_beta = 9;
};

struct SwrDeleter {
  void operator()(SwrContext* context) const { swr_free(&context); }
};

// Gives sound another rate, another number of channels, or both, through swresample: the samples
// are those of `ffmpeg -af aresample`. Channels are mixed by swresample's matrix, scaled where it
// could exceed full scale, as FFmpeg scales it for integers (rematrix_maxval=1). Keeps contexts and
// their filters for a few pairs of formats, fewer of large ones. Not thread-safe; ready for the
// next sound after an error.
class Resampler {
 public:
  explicit Resampler(const ResampleOptions& options) : options_(options) {}

  // Makes `out` of `in`, at this rate and of so many channels. kDataLoss: it is too short for the
  // filter; kInvalidArgument: there is no matrix for these channels.
  Status run(const Sound& in, const Channels& layout, int sample_rate, int channels, Sound& out);

  // Memory that filters take, which are kept: with the one for these rates.
  std::uint64_t filter_bytes(int from_rate, int to_rate) const;
  std::uint64_t kept_bytes() const;

  // How many samples run() makes of so many; 0: they are too few.
  Result<std::int64_t> length_of(std::int64_t length, int from_rate, int to_rate);
  // No sound of so many samples becomes longer.
  static std::int64_t most_length(std::int64_t length, int from_rate, int to_rate) {
    return static_cast<std::int64_t>(static_cast<__int128>(length) * to_rate / from_rate) + 2;
  }

 private:
  struct Entry {
    int from_rate = 0;
    int to_rate = 0;
    Channels from;
    int channels = 0;
    std::uint64_t bytes = 0;  // of the filter
    std::unique_ptr<SwrContext, SwrDeleter> context;
  };

  Result<SwrContext*> context_of(int from_rate, const Channels& from, int to_rate, int channels);
  Status open(Entry& entry) const;
  // How many values the filter between these rates has.
  double filter_values(int from_rate, int to_rate) const;
  std::uint64_t own_filter_bytes(int from_rate, int to_rate) const;
  // kInvalidArgument: the filter would take more memory than any use of it is worth.
  Status check_filter(int from_rate, int to_rate) const;

  const ResampleOptions options_;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;  // of entries_: which is given up first
  std::vector<const std::uint8_t*> in_;
  std::vector<std::uint8_t*> out_;
};

}  // namespace spdld::media
