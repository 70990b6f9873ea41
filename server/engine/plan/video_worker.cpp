// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/video_worker.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "engine/plan/picture_row.h"

namespace spdld::engine {

VideoWorker::VideoWorker(const VideoTask& task)
    : task_(task), decoder_(task.decode->make_decoder()), steps_(task.geometry, task.stored()) {}

Result<std::uint64_t> VideoWorker::run(SampleInput& sample, std::span<RowOutput> out,
                                       std::uint64_t room_bytes) {
  const MediaClip* const clip = sample.clip(task_.request);
  SPDLD_CHECK(clip != nullptr && clip->frames.size() == task_.frames());
  SPDLD_ASSIGN(const Size size,
               sample.decode([&] { return decoder_->open(*clip, sample.part(task_.request)); }));
  SPDLD_ASSIGN(std::uint64_t taken, steps_.plan(size, sample.key));
  taken += decoder_->read_bytes();
  SPDLD_ASSIGN(const PictureRow row,
               begin_row(task_, steps_.output(), taken, room_bytes, out.front()));
  if (row.data == nullptr) return row.needs_bytes;
  kept_bytes_ = std::max(kept_bytes_, taken);
  for (;;) {
    SPDLD_TRY(sample.check_wanted());
    SPDLD_ASSIGN(const bool found, sample.decode([&] { return decoder_->next(); }));
    if (!found) return 0;
    SPDLD_TRY(place(*clip, sample, row.data, out.subspan(1)));
  }
}

Status VideoWorker::place(const MediaClip& clip, const SampleInput& sample, std::byte* row,
                          std::span<RowOutput> times) {
  const double second = clip.stream.time_base.value();
  const transform::ImageTarget* made = nullptr;
  transform::ImageTarget first;
  for (std::size_t i = 0; i < clip.frames.size(); ++i) {
    if (clip.frames[i] != decoder_->pts()) continue;
    const transform::ImageTarget target = task_.target_of(row, i, steps_.output());
    if (made == nullptr) {
      SPDLD_TRY(steps_.run(*decoder_, sample, target));
      first = target;
      made = &first;
    } else {
      copy(*made, target);
    }
    std::size_t field = 0;
    const auto put = [&](const std::string& name, std::int64_t time) {
      if (name.empty()) return;
      const double seconds = static_cast<double>(time) * second;
      std::memcpy(times[field++].data() + i * sizeof(seconds), &seconds, sizeof(seconds));
    };
    put(task_.decode->pts_field(), decoder_->pts());
    put(task_.decode->duration_field(), decoder_->duration());
  }
  return {};
}

void VideoWorker::copy(const transform::ImageTarget& from, const transform::ImageTarget& to) const {
  const Size size = steps_.output();
  const std::size_t value_bytes = wire::dtype_bytes(task_.format.dtype);
  const std::size_t plane =
      static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) * value_bytes;
  const auto channels = static_cast<std::size_t>(task_.decode->channels());
  if (from.plane_pixels == 0) {
    std::memcpy(to.data, from.data, plane * channels);
    return;
  }
  const std::size_t stride = from.plane_pixels * value_bytes;
  for (std::size_t c = 0; c < channels; ++c)
    std::memcpy(to.data + c * stride, from.data + c * stride, plane);
}

}  // namespace spdld::engine
