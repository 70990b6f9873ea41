// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_verifier.h"

#include <cstring>
#include <optional>
#include <vector>

#include "media/jpeg/coefficient_image.h"

namespace spdld::media {

// Keeps rows, and gives others on that should be the same.
class JpegVerifier::Comparison final : public RowSink {
 public:
  // `rows`: null, and they are compared alone.
  Comparison(std::size_t row_bytes, int height, RowSink* rows)
      : row_bytes_(row_bytes), rows_(rows) {
    kept_.reserve(row_bytes * static_cast<std::size_t>(height));
  }
  void row(int y, const std::uint8_t* pixels) override {
    if (!compares_) {
      kept_.insert(kept_.end(), pixels, pixels + row_bytes_);
      return;
    }
    const std::size_t at = static_cast<std::size_t>(y) * row_bytes_;
    differs_ |= at < kept_.size() && std::memcmp(kept_.data() + at, pixels, row_bytes_) != 0;
    if (rows_ != nullptr) rows_->row(y, pixels);
  }
  void compare() { compares_ = true; }
  bool differs() const { return differs_; }

 private:
  const std::size_t row_bytes_;
  RowSink* const rows_;
  std::vector<std::uint8_t> kept_;
  bool compares_ = false;
  bool differs_ = false;
};

bool JpegVerifier::is_next() {
  return options_.verify_one_in > 0 && options_.indexes->is_to_compare(options_.verify_one_in);
}

std::uint64_t JpegVerifier::most_bytes(const BaselineFrame& frame) const {
  if (options_.verify_one_in == 0) return 0;
  return ours_.row_bytes(frame.size.width) * static_cast<std::uint64_t>(frame.size.height);
}

Status JpegVerifier::read(const BaselineFile& file, const Rect& region, RowSink& rows) {
  Comparison comparison(ours_.row_bytes(region.width), region.height, &rows);
  const int given = ours_.read(file, region, comparison);
  comparison.compare();
  if (file.index) {
    if (const Result<RasterInfo> header = libjpeg_.open(file.bytes); !header) return header.error();
  }
  const Status status = libjpeg_.read(region, 0, comparison);
  const bool has_all = given == region.height;
  // Where all rows were given, libjpeg-turbo finds nothing wrong either.
  const bool are_same = !comparison.differs() && (status.ok() || !has_all);
  if (has_all || !are_same) options_.indexes->compared(file.key, are_same);
  return status;
}

bool JpegVerifier::is_same(const BaselineFile& file, std::span<const std::byte> recoded) {
  const bool are_same = compare(file, recoded);
  options_.indexes->compared(file.key, are_same);
  return are_same;
}

bool JpegVerifier::compare(const BaselineFile& file, std::span<const std::byte> recoded) {
  const std::optional<CoefficientImage> image = CoefficientImage::parse(recoded);
  if (!image) return false;
  const Rect whole{0, 0, file.frame.size.width, file.frame.size.height};
  Comparison comparison(ours_.row_bytes(whole.width), whole.height, nullptr);
  if (ours_.read(*image, whole, comparison) < whole.height) return false;
  comparison.compare();
  return libjpeg_.open(file.bytes).has_value() && libjpeg_.read(whole, 0, comparison).ok() &&
         !comparison.differs();
}

}  // namespace spdld::media
