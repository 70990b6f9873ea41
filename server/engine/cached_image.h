// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/image_worker.h"
#include "engine/row_fetch.h"
#include "engine/row_sample.h"

namespace spdld::engine {

// Runs an ImageTask for one worker with a cache of pixels: rows of images that it has are made
// without decoding, others are decoded whole and kept while there is room. The same rows, byte for
// byte, as without.
class CachedImageWorker final : public FieldWorker {
 public:
  // `fetch` has a cache of pixels, and brought the rows that come as RowSamples. Both outlive this.
  CachedImageWorker(const ImageTask& task, RowFetch& fetch);

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override;
  std::uint64_t kept_bytes() const override { return image_.kept_bytes(); }

 private:
  Result<std::uint64_t> make_from_kept(const Row& row, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes);
  Result<std::uint64_t> make_and_keep(const Row& row, SampleInput& sample, std::span<RowOutput> out,
                                      std::uint64_t room_bytes);

  const ImageTask& task_;
  RowFetch& fetch_;
  SampleCache& cache_;
  ImageWorker image_;
};

}  // namespace spdld::engine
