// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/pixels_of.h"

// What a file that may be damaged comes to.
namespace spdld::media::test {

struct Outcome {
  Code code = Code::kOk;
  std::string reason;
  Picture picture;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Of a region that `rng` draws, of the image that is open.
inline Outcome outcome_of(ImageDecoder& decoder, const ImageMode& mode, const Result<Size>& opened,
                          KeyedRng rng) {
  if (!opened) return {opened.error().code(), reason_of(opened.error()), {}};
  const Rect region = drawn_region(*opened, rng);
  PictureSink sink(region, mode.pixel_bytes());
  const Status status = decoder.read(region, sink);
  if (!status.ok()) return {status.code(), reason_of(status), {}};
  Outcome outcome{Code::kOk, "ok", sink.take()};
  EXPECT_EQ(outcome.picture.height, region.height);
  return outcome;
}

inline Outcome outcome_of(ImageDecoder& decoder, const ImageMode& mode, const Bytes& bytes,
                          const KeyedRng& rng) {
  return outcome_of(decoder, mode, decoder.open(bytes), rng);
}

// The same, of what the file is recoded to; none: it is not.
inline std::optional<Outcome> recoded_outcome_of(ImageDecoder& decoder, const ImageMode& mode,
                                                 const Bytes& bytes, const KeyedRng& rng) {
  if (!decoder.open(bytes)) return std::nullopt;
  const std::span<const std::byte> made = decoder.recode();
  if (made.empty()) return std::nullopt;
  const std::vector<std::byte> recoded(made.begin(), made.end());
  return outcome_of(decoder, mode, decoder.open_recoded(recoded), rng);
}

}  // namespace spdld::media::test
