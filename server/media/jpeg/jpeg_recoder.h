// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "media/jpeg/baseline_reader.h"
#include "media/jpeg/coefficient_image.h"
#include "media/jpeg/jpeg_options.h"

namespace spdld::media {

// Brings baseline files whose scan is sound into the form that a cache keeps: what
// CoefficientDecoder reads.
//
// Owned by one JpegDecoder, whose reader it uses; used by its thread alone.
class JpegRecoder {
 public:
  JpegRecoder(const JpegOptions& options, BaselineReader& ours) : options_(options), ours_(ours) {}

  // The memory that it takes beside reading; 0: the file has no such form.
  static std::uint64_t most_bytes(const BaselineFile& file);
  // Stays until the next call; empty: the scan is not sound.
  std::span<const std::byte> recode(const BaselineFile& file);

 private:
  const JpegOptions options_;
  BaselineReader& ours_;
  CoefficientWriter writer_;
};

}  // namespace spdld::media
