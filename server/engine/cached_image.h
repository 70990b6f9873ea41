// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/plan/image_worker.h"
#include "engine/row_fetch.h"
#include "engine/row_sample.h"

namespace spdld::engine {

// Runs an ImageTask for one worker with a cache of images: rows of those that it has are made of
// what it keeps, others are decoded or recoded whole and kept while there is room. The same rows,
// byte for byte, as without.
class CachedImageWorker final : public FieldWorker {
 public:
  // `fetch` has a cache of images, and brought the rows that come as RowSamples. Both outlive this.
  // An image for which that takes more than `most_bytes` of memory is not kept.
  CachedImageWorker(const ImageTask& task, RowFetch& fetch, std::uint64_t most_bytes);

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override;
  void count_in(JpegCounter& counter) override { image_.count_in(counter); }
  std::uint64_t kept_bytes() const override { return image_.kept_bytes(); }

 private:
  Result<std::uint64_t> make_from_kept(const Row& row, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes);
  // One that is not kept yet.
  struct NewImage {
    std::span<const std::byte> bytes;  // as they were fetched
    std::uint64_t key = 0;
    const source::ItemStamp& stamp;
    std::uint64_t free_bytes = 0;  // of the cache
  };
  Result<std::uint64_t> make_and_keep(const Row& row, SampleInput& sample, std::span<RowOutput> out,
                                      std::uint64_t room_bytes);
  Result<std::uint64_t> keep_pixels(const NewImage& image, SampleInput& sample,
                                    std::span<RowOutput> out, std::uint64_t room_bytes);
  Result<std::uint64_t> keep_coefficients(const NewImage& image, SampleInput& sample,
                                          std::span<RowOutput> out, std::uint64_t room_bytes);

  const ImageTask& task_;
  RowFetch& fetch_;
  SampleCache& cache_;
  const std::uint64_t most_bytes_;
  ImageWorker image_;
  bool was_whole_ = false;  // the last image was decoded whole, or recoded, to be kept
};

}  // namespace spdld::engine
