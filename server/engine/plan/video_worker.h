// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "engine/plan/image_steps.h"
#include "engine/plan/video_task.h"

namespace spdld::engine {

// Runs a VideoTask for one worker, as every FieldWorker does.
class VideoWorker final : public FieldWorker {
 public:
  explicit VideoWorker(const VideoTask& task);  // task outlives it

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override;
  std::uint64_t kept_bytes() const override { return kept_bytes_; }

 private:
  // Writes the frame that the decoder is at wherever the clip has it.
  Status place(const MediaClip& clip, const SampleInput& sample, std::byte* row,
               std::span<RowOutput> times);
  void copy(const transform::ImageTarget& from, const transform::ImageTarget& to) const;

  const VideoTask& task_;
  std::unique_ptr<VideoDecoder> decoder_;
  ImageSteps steps_;
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace spdld::engine
