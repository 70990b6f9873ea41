// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace spdld::source {

ClipShapes::ClipShapes(const ClipsSpec& spec, const Source& source) : spec_(spec), source_(source) {
  const bool of_frames = spec.unit == ClipsSpec::Unit::kFrames;
  clips_.kind = of_frames ? StreamInfo::Kind::kVideo : StreamInfo::Kind::kAudio;
  clips_.frames = of_frames ? spec.frames : 0;
  clips_.repeats = spec.stack ? spec.per_file : 0;
  clips_.is_whole = spec.sampling == ClipsSpec::Sampling::kWhole;
  sounds_.kind = StreamInfo::Kind::kAudio;
}

void ClipShapes::add(const ClipFile& file, const ClipSound& sound) {
  if (spec_.unit == ClipsSpec::Unit::kSeconds) {
    // How rows of whole sounds are collated is not to change with the files that there are.
    const std::uint64_t samples = clips_.is_whole ? 0 : file.grid.span;
    add_sound(clips_, *file.info.codec, samples, file.grid.span);
  } else {
    add_picture(file);
    if (!spec_.audio.empty()) {
      // No clip of unevenly spaced frames lasts longer than all of them, and as many more.
      const double most =
          (static_cast<double>(file.length) + static_cast<double>(spec_.frames * spec_.stride)) *
          file.mean_frame_seconds() * static_cast<double>(sound.info.codec->sample_rate);
      add_sound(
          sounds_, *sound.info.codec, sound.samples,
          sound.samples > 0 ? sound.samples : static_cast<std::uint64_t>(std::min(most, 1e15)));
    }
  }
  is_first_ = false;
}

void ClipShapes::add_sound(ClipShape& shape, const CodecParameters& codec, std::uint64_t samples,
                           std::uint64_t most) const {
  const auto same = [this](auto& known, auto value) {
    known = is_first_ || known == value ? value : 0;
  };
  same(shape.sample_rate, codec.sample_rate);
  same(shape.channels, codec.channels);
  same(shape.samples, static_cast<std::int64_t>(samples));
  shape.max_samples = std::max(shape.max_samples, static_cast<std::int64_t>(most));
  shape.max_seconds = std::max(shape.max_seconds, static_cast<double>(most) / codec.sample_rate);
  // One more than is told shows that there are too many.
  const ClipShape::OfRate of_rate{.sample_rate = codec.sample_rate,
                                  .samples = static_cast<std::int64_t>(samples)};
  if (shape.of_rates.size() <= ClipShape::kMostRates &&
      std::find(shape.of_rates.begin(), shape.of_rates.end(), of_rate) == shape.of_rates.end())
    shape.of_rates.push_back(of_rate);
}

void ClipShapes::add_picture(const ClipFile& file) {
  const CodecParameters& codec = *file.info.codec;
  const bool turned = file.info.rotation == 90 || file.info.rotation == 270;
  const auto [width, height] =
      turned ? std::pair(codec.height, codec.width) : std::pair(codec.width, codec.height);
  clips_.max_width = std::max(clips_.max_width, width);
  clips_.max_height = std::max(clips_.max_height, height);
  if (is_first_) {
    first_item_ = file.item;
    first_size_ = {width, height};
  }
  const auto [first_width, first_height] = first_size_;
  if (!clips_.sizes.empty()) return;
  if (width == first_width && height == first_height) {
    clips_.width = width;
    clips_.height = height;
  } else {
    clips_.width = clips_.height = 0;
    clips_.sizes = fmt::format("{} has {}x{} pixels, {} {}x{}", source_.uri(first_item_),
                               first_width, first_height, source_.uri(file.item), width, height);
  }
}

ClipShape ClipShapes::without_unknown_rates(ClipShape shape) {
  const bool is_known = shape.of_rates.size() <= ClipShape::kMostRates &&
                        std::all_of(shape.of_rates.begin(), shape.of_rates.end(),
                                    [](const ClipShape::OfRate& of) { return of.samples > 0; });
  if (!is_known) shape.of_rates.clear();
  return shape;
}

}  // namespace spdld::source
