// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "op/clips_spec.h"
#include "op/media.h"
#include "source/clips/clip_files.h"
#include "source/item/source.h"

namespace spdld::source {

// Learns file by file what all clips have in common. Belongs to one thread.
class ClipShapes {
 public:
  ClipShapes(const ClipsSpec& spec, const Source& source);

  // Makes the shapes those of this file's clips, too. `sound`: that of its video, if it is wanted.
  void add(const ClipFile& file, const ClipSound& sound);

  // Of all files that were added.
  ClipShape clips() const { return without_unknown_rates(clips_); }
  ClipShape sounds() const { return without_unknown_rates(sounds_); }  // beside the clips

 private:
  void add_sound(ClipShape& shape, const CodecParameters& codec, std::uint64_t samples,
                 std::uint64_t most) const;
  void add_picture(const ClipFile& file);
  static ClipShape without_unknown_rates(ClipShape shape);

  const ClipsSpec& spec_;
  const Source& source_;
  bool is_first_ = true;  // no file was added yet
  std::uint64_t first_item_ = 0;
  std::pair<int, int> first_size_;  // width and height
  ClipShape clips_;
  ClipShape sounds_;
};

}  // namespace spdld::source
