// SPDX-License-Identifier: Apache-2.0
#include "media/image/upright_rows.h"

#include <cstddef>

#include "op/row_collector.h"

namespace spdld::media {

Status UprightRows::read(RegionReader& stored, const Picture& picture, const Rect& region,
                         RowSink& rows) {
  if (picture.orientation.upright()) return stored.read(region, rows);
  const Rect there = picture.orientation.stored_region(region, picture.size);
  const std::size_t pixel_bytes = picture.pixel_bytes();
  const std::size_t row_bytes = static_cast<std::size_t>(there.width) * pixel_bytes;
  const std::size_t region_bytes = row_bytes * static_cast<std::size_t>(there.height);
  const std::size_t upright_bytes = static_cast<std::size_t>(region.width) * pixel_bytes;
  auto* pixels = reinterpret_cast<std::uint8_t*>(scratch_.resize(region_bytes + upright_bytes));
  RowCollector collector(pixels, row_bytes);
  SPDLD_TRY(stored.read(there, collector));

  const ImageView view{.data = pixels,
                       .width = there.width,
                       .height = there.height,
                       .channels = picture.channels,
                       .stride_bytes = static_cast<std::ptrdiff_t>(row_bytes),
                       .bytes_per_value = picture.bytes_per_value};
  std::uint8_t* upright = pixels + region_bytes;
  for (int y = 0; y < region.height; ++y) {
    picture.orientation.upright_row(view, y, upright);
    rows.row(y, upright);
  }
  return {};
}

std::uint64_t UprightRows::most_bytes(const Picture& picture) {
  if (picture.orientation.upright()) return 0;
  const std::uint64_t pixels = static_cast<std::uint64_t>(picture.size.width) *
                               static_cast<std::uint64_t>(picture.size.height);
  return pixels * picture.pixel_bytes() * 5 / 4;  // as ByteBuffer grows
}

}  // namespace spdld::media
