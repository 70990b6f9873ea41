// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The pieces of media files that items are, as plain values: spec/ fills them from YAML,
// source/ acts on them.
namespace spdld {

struct ClipsSpec {
  // kFrames: of videos, by the number of frames (`clips:`); kSeconds: of sound, by its duration
  // (`windows:`).
  enum class Unit { kFrames, kSeconds };
  enum class Sampling {
    kDense,       // one each `hop`
    kUniform,     // `per_file`, evenly spread
    kRandom,      // `per_file`, drawn anew in each epoch
    kTimestamps,  // one at each of the given times
    kKeyframes,   // one at each key frame; of videos alone
    kWhole,       // one, which is all of the file; of sound alone
  };
  // A clip that runs over its file's end is dealt with in one of these ways.
  enum class End {
    kDrop,  // there is none
    kPad,   // its last frame is repeated; silence
    kLoop,  // it begins anew
  };
  // Files that cannot be read, or hold no such stream.
  enum class Broken { kSkip, kError };

  static constexpr std::size_t kMostFrames = 4096;  // of a clip
  static constexpr std::size_t kMostStacked = 64;   // clips in one item

  Unit unit = Unit::kFrames;
  std::string field = {};       // the part that clips are of; empty: as suffixes tell
  std::string stream = "best";  // or its number, or its language
  std::int64_t frames = 16;     // of each clip
  std::int64_t stride = 1;      // from one of them to the next
  std::int64_t hop_frames = 0;  // from one clip to the next; 0: as many as a clip spans
  double seconds = 0;           // of each window
  double hop_seconds = 0;       // likewise; 0: `seconds`
  // Of kWhole: files that are shorter or longer than this are left out; 0: none is.
  double min_seconds = 0;
  double max_seconds = 0;
  Sampling sampling = Sampling::kDense;
  std::int64_t per_file = 1;
  // All clips of a file are one item, whose fields have a leading dimension.
  bool stack = false;
  std::vector<double> times = {};  // of kTimestamps, in seconds
  std::string times_field = {};    // or the value of an item that holds them
  End end = End::kDrop;
  // The field that gets the sound of the same time of a video; empty: none.
  std::string audio = {};
  std::string audio_stream = "best";
  Broken broken = Broken::kSkip;

  // A clip reaches over so many frames.
  std::int64_t span_frames() const { return (frames - 1) * stride + 1; }

  friend bool operator==(const ClipsSpec&, const ClipsSpec&) = default;
};

}  // namespace spdld
