// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_buffer.h"
#include "base/status.h"
#include "engine/plan.h"
#include "transform/image_pass.h"

namespace spdld::engine {

// Runs an ImageTask for one worker: owns the codec contexts and the scratch, so that in steady
// state nothing is allocated. Not thread-safe. After an error it is as good as new.
class ImageWorker {
 public:
  explicit ImageWorker(const ImageTask& task);  // task outlives it

  // Encoded bytes to one row of the batch. `sample_key` seeds the draws. An error is the data's
  // (ImageDecoder says which).
  Status run(std::span<const std::byte> bytes, std::uint64_t sample_key, std::byte* row);
  // The same from what decode() gave, byte for byte.
  Status run(const ImageView& pixels, std::uint64_t sample_key, std::byte* row);

  // The whole image, valid until the next call. No data: it would take more than `max_bytes`. An
  // error may be in a part that run() would not have looked at.
  Result<ImageView> decode(std::span<const std::byte> bytes, std::uint64_t max_bytes);

 private:
  Status apply(Size size, std::uint64_t sample_key, std::byte* row);
  // Makes the chain's pixels, from the decoder or from `pixels_`, and leaves them in the target.
  Status execute(const Geometry& chain, const transform::ImageTarget& target);
  // Makes the chain's pixels into `pixels_`.
  Status materialize(const Geometry& chain);

  const ImageTask& task_;
  std::unique_ptr<ImageDecoder> decoder_;
  transform::ImagePass pass_;
  ImageView pixels_;  // no data: the decoder's image
  std::vector<std::uint8_t> front_;
  std::vector<std::uint8_t> back_;
  ByteBuffer whole_;
};

}  // namespace spdld::engine
