// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/clips_spec.h"
#include "op/media.h"
#include "source/clips/clip_faults.h"
#include "source/clips/clip_grid.h"
#include "source/clips/clip_packets.h"
#include "source/item/source.h"
#include "source/media_index/frame_table.h"
#include "source/media_index/media_index.h"
#include "source/media_index/packet_table.h"

namespace spdld::source {

// The sound that belongs to a video.
struct ClipSound {
  StreamInfo info;
  PacketTable packets;
  SoundClock clock;
  std::vector<SoundGap> gaps;  // as MediaStream::gaps
  // Each clip of this file has so many; 0: they differ, as its frames are not evenly spaced.
  std::uint64_t samples = 0;
};

// A file that clips are cut from.
struct ClipFile {
  std::uint64_t item = 0;      // of the source that has the files
  std::uint64_t identity = 0;  // for draws: of its name
  const MediaEntry* entry = nullptr;
  StreamInfo info;
  FrameTable frames;  // of a video
  PacketTable packets;
  std::uint64_t length = 0;  // frames or samples
  ClipGrid grid;
  std::uint64_t items = 0;      // that it gives: 1 where its clips are stacked
  std::size_t first_start = 0;  // where its clips are told one by one, in ClipFiles::starts

  double mean_frame_seconds() const;  // of a video; 0: it has one frame
  double sound_seconds() const;       // of sound, all of it
};

// The clips of a source's files: all that is decided before any is read. Immutable.
struct ClipFiles {
  // In `starts`: the file has no frame or sample for the time, so that its item is an error.
  static constexpr std::uint64_t kNoStart = ~std::uint64_t{0};
  struct MissedTime {
    std::size_t start = 0;  // its number in `starts`
    double seconds = 0;
  };

  ClipsSpec spec;
  std::shared_ptr<const MediaIndex> index;
  std::vector<ClipFile> files;        // those that have clips
  std::vector<ClipSound> sounds;      // of each of them, if sound is wanted
  std::vector<std::uint64_t> first;   // item of each file, and their number at the end
  std::vector<std::uint64_t> starts;  // of kTimestamps and kKeyframes
  std::vector<MissedTime> missed;     // one for each kNoStart, in their order
  ClipShape shape;
  ClipShape sound_shape;
  std::string listing_digest;
  std::string values_digest;

  std::uint64_t size() const { return first.back(); }
  std::uint64_t memory_bytes() const;  // but for the index
  // The number of the file that has the item.
  std::size_t file_of(std::uint64_t item) const;
  // Where clip `k` of a file begins, in frames or samples.
  std::uint64_t start(const ClipFile& file, std::uint64_t k, std::uint64_t epoch_key) const;
  // When clip `k` of a file begins, in seconds on the file's clock; of kNoStart, when it was to
  // begin.
  double begin_seconds(const ClipFile& file, std::uint64_t k, std::uint64_t epoch_key) const;
};

struct ClipLimits {
  std::uint64_t items = 0;
  std::uint64_t item_bytes = 0;  // of a file that is brought whole
  // The clips and their index count in it, and ask it as they grow.
  ListingMemory::SharePtr memory;
};

// The clips that `spec` asks for of the source's files, whose part of that number `index` is of, in
// the items' order. Adds what files had wrong to `faults`. An error is that of the times that an
// item names, or the clips or their memory are more than the limits.
Result<ClipFiles> cut_clips(const ClipsSpec& spec, const Source& source, std::size_t part,
                            std::shared_ptr<const MediaIndex> index, const ClipLimits& limits,
                            ClipFaults& faults);

}  // namespace spdld::source
