// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/image_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text/counted.h"
#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/show/packed_rows.h"
#include "ctl/show/picture_shape.h"
#include "ctl/show/pixel_values.h"

namespace spdld::ctl {
namespace {

constexpr std::uint32_t kMostFrames = 16;  // of a clip: more are left out evenly

// Which tensor has the images; -1: none.
int choose_images(const v1::PreviewHeader& header) {
  int chosen = -1;
  for (int i = 0; i < header.tensors_size(); ++i) {
    const v1::Tensor& tensor = header.tensors(i);
    if (!picture_shape(tensor)) continue;
    if (!may_be_mask(tensor)) return i;
    if (chosen < 0) chosen = i;
  }
  return chosen;
}

// The masks that are as large as the images.
std::vector<int> masks_on(const Preview& preview, int images, const PictureShape& shape) {
  std::vector<int> masks;
  if (shape.frames > 1) return masks;
  const auto rows = static_cast<std::size_t>(preview.header.indices_size());
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    if (i == images || !may_be_mask(tensor)) continue;
    const std::optional<PictureShape> mask = picture_shape(tensor);
    const std::size_t bytes = preview.data.at(static_cast<std::size_t>(i)).size();
    if (mask->height == shape.height && mask->width == shape.width &&
        bytes == mask->values() * rows)
      masks.push_back(i);
  }
  return masks;
}

std::string scale_of(const v1::Tensor& tensor, const ValueRange& range) {
  if (tensor.dtype() == "uint8") return "values as they are";
  if (tensor.dtype() == "uint16") return "0 is black, 65535 is white";
  return fmt::format("{:.3g} is black, {:.3g} is white", range.low, range.high);
}

// The images of one tensor, and how they become pixels.
struct Images {
  const std::string& data;
  std::string_view dtype;
  PictureShape shape;
  ValueRange range;

  void draw(Picture& picture, const Cell& cell, std::size_t row, std::uint32_t frame) const {
    for (std::uint32_t y = 0; y < shape.height; ++y) {
      std::uint8_t* pixel =
          &picture.rgb[(std::size_t{cell.top + y} * picture.width + cell.left) * 3];
      for (std::uint32_t x = 0; x < shape.width; ++x) {
        for (std::uint32_t color = 0; color < 3; ++color) {
          const std::size_t at =
              row * shape.values() + shape.at(frame, y, x, shape.channel_of(color));
          *pixel++ = to_pixel(value_at(data, dtype, at), range);
        }
      }
    }
  }
};

}  // namespace

std::optional<Grid> image_grid(const Preview& preview) {
  const int chosen = choose_images(preview.header);
  if (chosen < 0) return std::nullopt;
  const v1::Tensor& tensor = preview.header.tensors(chosen);
  const PictureShape shape = *picture_shape(tensor);
  const std::string& data = preview.data.at(static_cast<std::size_t>(chosen));
  const auto count = static_cast<std::uint32_t>(preview.header.indices_size());
  if (count == 0 || data.size() != shape.values() * value_bytes(tensor.dtype()) * count) {
    throw Failure(kFailed, fmt::format("the daemon sent {} for {} of {}, which does not "
                                       "fit",
                                       counted(data.size(), "byte"), counted(count, "row"),
                                       show_tensor(tensor)));
  }

  // An image is a cell; a clip is a line of cells, one a frame.
  const bool clips = shape.frames > 1;
  const std::uint32_t frames = std::min(shape.frames, kMostFrames);
  Grid grid;
  grid.tensor = tensor.name();
  grid.columns =
      clips ? frames : static_cast<std::uint32_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  grid.rows = clips ? count : (count + grid.columns - 1) / grid.columns;
  grid.lay_out(shape.width, shape.height);

  const Images images{data, tensor.dtype(), shape,
                      range_of(data, tensor.dtype(), shape.values() * count)};
  grid.scale = scale_of(tensor, images.range);
  if (frames < shape.frames) grid.scale += fmt::format(", {} of {} frames", frames, shape.frames);
  const std::vector<int> masks = masks_on(preview, chosen, shape);
  const std::optional<BoxField> boxes = clips ? std::nullopt : boxes_of(preview);
  for (const int mask : masks) grid.drawn.push_back(preview.header.tensors(mask).name());
  if (boxes) grid.drawn.push_back(boxes->name);
  const std::uint32_t zoom = std::clamp(shape.height / 64, 1u, 8u);
  for (std::uint32_t i = 0; i < count * frames; ++i) {
    const std::uint32_t row = i / frames;
    const Cell cell = grid.cell(i);
    const std::uint64_t frame = std::uint64_t{i % frames} * shape.frames / frames;
    images.draw(grid.picture, cell, row, static_cast<std::uint32_t>(frame));
    for (const int mask : masks) {
      const std::string& classes = preview.data[static_cast<std::size_t>(mask)];
      tint(grid.picture, cell, classes.data() + std::size_t{row} * shape.height * shape.width);
    }
    if (boxes) draw_boxes(grid.picture, cell, boxes->rows[row]);
    if (i % frames == 0) draw_number(grid.picture, cell, zoom, row);
  }
  return grid;
}

}  // namespace spdld::ctl
