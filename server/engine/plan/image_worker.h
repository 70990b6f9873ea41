// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "engine/plan/image_steps.h"
#include "engine/plan/image_task.h"

namespace spdld::engine {

// Runs an ImageTask for one worker, as every FieldWorker does.
class ImageWorker final : public FieldWorker {
 public:
  explicit ImageWorker(const ImageTask& task);  // task outlives it

  // From the sample's encoded bytes, or the pixels that a call gave back.
  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override;
  // From these encoded bytes, or from what decode() gave: the same row, byte for byte.
  Result<std::uint64_t> run(std::span<const std::byte> bytes, SampleInput& sample,
                            std::span<RowOutput> out, std::uint64_t room_bytes);
  Result<std::uint64_t> run(const ImageView& pixels, SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes);

  // The whole image, valid until the next call. No data: it has more than `max_bytes`, or takes
  // more memory than `room_bytes`, which `needs_bytes` then is told. An error may be in a part that
  // run() would not have looked at.
  Result<ImageView> decode(std::span<const std::byte> bytes, std::uint64_t max_bytes,
                           std::uint64_t room_bytes, std::uint64_t& needs_bytes);

  // What ImageDecoder::recode() makes of an image.
  struct Recoded {
    Size size;
    std::span<const std::byte> bytes;
  };
  // Valid until the next call. No bytes: the image has no coefficients, or `needs_bytes` says how
  // much room that takes.
  Result<Recoded> recode(std::span<const std::byte> bytes, std::uint64_t room_bytes,
                         std::uint64_t& needs_bytes);
  // The row is the same, too. kDataLoss: this is not what recode() has made.
  Result<std::uint64_t> run_recoded(const Recoded& recoded, SampleInput& sample,
                                    std::span<RowOutput> out, std::uint64_t room_bytes);

  void count_in(JpegCounter& counter) override {
    if (decoder_ != nullptr) decoder_->count_in(counter);
  }
  std::uint64_t kept_bytes() const override { return kept_bytes_; }

 private:
  Result<std::uint64_t> apply(Size size, RegionReader& picture, std::uint64_t decode_bytes,
                              SampleInput& sample, RowOutput& out, std::uint64_t room_bytes);
  Result<ImageView> given(const SampleInput& sample) const;
  Status check_canvas(Size size, SampleInput& sample) const;

  const ImageTask& task_;
  const std::unique_ptr<ImageDecoder> decoder_;  // null: the pixels are given
  ImageSteps steps_;
  std::uint64_t kept_bytes_ = 0;
  ByteBuffer whole_;               // decode()'s image
  std::uint64_t whole_taken_ = 0;  // for which it took this much
  std::span<const std::byte> recoded_;
  std::uint64_t recoded_taken_ = 0;
};

}  // namespace spdld::engine
