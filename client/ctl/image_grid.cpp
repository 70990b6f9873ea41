// SPDX-License-Identifier: Apache-2.0
#include "ctl/image_grid.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "base/counted.h"
#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/packed_rows.h"

namespace spdld::ctl {
namespace {

constexpr std::uint32_t kGap = 4;  // pixels between cells
constexpr std::uint32_t kMaxSide = 16'384;
constexpr std::uint64_t kMaxPixels = 100'000'000;

// 3 x 5 pixels each, a row of three bits at a time from the top.
constexpr std::array<std::array<std::uint8_t, 5>, 10> kDigits{{{7, 5, 5, 5, 7},
                                                               {2, 6, 2, 2, 7},
                                                               {7, 1, 7, 4, 7},
                                                               {7, 1, 7, 1, 7},
                                                               {5, 5, 7, 1, 1},
                                                               {7, 4, 7, 1, 7},
                                                               {7, 4, 7, 5, 7},
                                                               {7, 1, 2, 2, 2},
                                                               {7, 5, 7, 5, 7},
                                                               {7, 5, 7, 1, 7}}};

struct ImageShape {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  bool channels_first = false;

  std::size_t values() const { return std::size_t{height} * width * channels; }
  // Which channel a picture's red, green or blue shows; alpha, the last of 2 or 4, is not shown.
  std::uint32_t channel_of(std::uint32_t color) const { return channels < 3 ? 0 : color; }
  std::size_t at(std::uint32_t y, std::uint32_t x, std::uint32_t channel) const {
    return channels_first ? (std::size_t{channel} * height + y) * width + x
                          : (std::size_t{y} * width + x) * channels + channel;
  }
};

std::size_t value_bytes(std::string_view dtype) {
  if (dtype == "uint8") return 1;
  if (dtype == "uint16" || dtype == "float16" || dtype == "bfloat16") return 2;
  if (dtype == "float32") return 4;
  return 0;
}

std::optional<ImageShape> image_shape(const v1::Tensor& tensor) {
  if (tensor.kind() != "dense" || tensor.shape_size() != 3 || value_bytes(tensor.dtype()) == 0)
    return std::nullopt;
  for (const std::int64_t extent : tensor.shape()) {
    if (extent < 1 || extent > kMaxSide) return std::nullopt;
  }
  const auto extent = [&](int i) { return static_cast<std::uint32_t>(tensor.shape(i)); };
  const auto is_channels = [](std::uint32_t count) { return count >= 1 && count <= 4; };
  // Last first: an image of up to 4 pixels' height is rarer than one in NHWC.
  if (is_channels(extent(2))) return ImageShape{extent(0), extent(1), extent(2), false};
  if (is_channels(extent(0))) return ImageShape{extent(1), extent(2), extent(0), true};
  return std::nullopt;
}

float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

float value_at(const std::string& data, std::string_view dtype, std::size_t i) {
  if (dtype == "uint8") return static_cast<unsigned char>(data[i]);
  if (dtype == "float32") {
    float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data.data() + i * sizeof(bits), sizeof(bits));
  if (dtype == "uint16") return bits;
  return dtype == "float16" ? half_to_float(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

struct Range {
  float low = 0;
  float high = 255;
};

Range range_of(const std::string& data, std::string_view dtype, std::size_t values) {
  if (dtype == "uint8") return {};
  if (dtype == "uint16") return {0, 65535};
  Range range{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < values; ++i) {
    const float value = value_at(data, dtype, i);
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  if (!(range.low < range.high)) return {range.low, range.low + 1};
  return range;
}

std::uint8_t to_pixel(float value, const Range& range) {
  const float stretched = (value - range.low) / (range.high - range.low) * 255.0F;
  if (!(stretched > 0)) return 0;  // NaN too
  return static_cast<std::uint8_t>(std::min(stretched + 0.5F, 255.0F));
}

void paint(Picture& picture, std::uint32_t x, std::uint32_t y, std::uint8_t shade) {
  if (x >= picture.width || y >= picture.height) return;
  std::uint8_t* pixel = &picture.rgb[(std::size_t{y} * picture.width + x) * 3];
  pixel[0] = pixel[1] = pixel[2] = shade;
}

// White digits on a black box, as large as the cell allows.
void draw_number(Picture& picture, std::uint32_t left, std::uint32_t top, std::uint32_t zoom,
                 std::uint64_t number) {
  const std::string digits = std::to_string(number);
  const auto columns = static_cast<std::uint32_t>(digits.size() * 4 + 1);
  for (std::uint32_t y = 0; y < 7 * zoom; ++y) {
    for (std::uint32_t x = 0; x < columns * zoom; ++x) {
      const std::uint32_t row = y / zoom;
      const std::uint32_t column = x / zoom;
      bool lit = false;
      if (row >= 1 && row <= 5 && column % 4 != 0) {
        const auto digit = static_cast<std::size_t>(digits[column / 4] - '0');
        lit = (kDigits[digit][row - 1] >> (3 - column % 4) & 1) != 0;
      }
      paint(picture, left + x, top + y, lit ? 255 : 0);
    }
  }
}

std::string what_is_there(const v1::PreviewHeader& header) {
  std::string list;
  for (const v1::Tensor& tensor : header.tensors()) {
    if (!list.empty()) list += ", ";
    list += tensor.name() + " " + show_tensor(tensor);
  }
  return list;
}

// Numbers of classes, or gray images.
bool may_be_mask(const v1::Tensor& tensor) {
  const std::optional<ImageShape> shape = image_shape(tensor);
  return shape && shape->channels == 1 && tensor.dtype() == "uint8";
}

// Which tensor has the images; -1: none.
int choose_images(const v1::PreviewHeader& header) {
  int chosen = -1;
  for (int i = 0; i < header.tensors_size(); ++i) {
    const v1::Tensor& tensor = header.tensors(i);
    if (!image_shape(tensor)) continue;
    if (!may_be_mask(tensor)) return i;
    if (chosen < 0) chosen = i;
  }
  return chosen;
}

// The masks that are as large as the images.
std::vector<int> masks_on(const Preview& preview, int images, const ImageShape& shape) {
  std::vector<int> masks;
  const auto rows = static_cast<std::size_t>(preview.header.indices_size());
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    if (i == images || !may_be_mask(tensor)) continue;
    const std::optional<ImageShape> mask = image_shape(tensor);
    const std::size_t bytes = preview.data.at(static_cast<std::size_t>(i)).size();
    if (mask->height == shape.height && mask->width == shape.width &&
        bytes == mask->values() * rows)
      masks.push_back(i);
  }
  return masks;
}

}  // namespace

Grid make_grid(const Preview& preview) {
  const int chosen = choose_images(preview.header);
  if (chosen < 0) {
    throw Failure(kFailed,
                  fmt::format("no tensor of this pipeline looks like images (it gives {}): "
                              "decode them, or leave out -o to list the rows alone",
                              what_is_there(preview.header)));
  }
  const v1::Tensor& tensor = preview.header.tensors(chosen);
  const std::optional<ImageShape> shape = image_shape(tensor);
  const std::string& data = preview.data.at(static_cast<std::size_t>(chosen));
  const auto count = static_cast<std::uint32_t>(preview.header.indices_size());
  const std::size_t values = shape->values();
  if (count == 0 || data.size() != values * value_bytes(tensor.dtype()) * count) {
    throw Failure(kFailed, fmt::format("the daemon sent {} for {} of {}, which does not "
                                       "fit",
                                       counted(data.size(), "byte"), counted(count, "row"),
                                       show_tensor(tensor)));
  }

  Grid grid;
  grid.tensor = tensor.name();
  grid.columns = static_cast<std::uint32_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  grid.rows = (count + grid.columns - 1) / grid.columns;
  const std::uint64_t width = std::uint64_t{grid.columns} * (shape->width + kGap) - kGap;
  const std::uint64_t height = std::uint64_t{grid.rows} * (shape->height + kGap) - kGap;
  if (width * height > kMaxPixels) {
    throw Failure(kFailed, fmt::format("the grid would have {}x{} pixels: ask for fewer rows with "
                                       "--rows",
                                       width, height));
  }
  grid.picture.width = static_cast<std::uint32_t>(width);
  grid.picture.height = static_cast<std::uint32_t>(height);
  grid.picture.rgb.assign(width * height * 3, 64);

  const Range range = range_of(data, tensor.dtype(), values * count);
  if (tensor.dtype() == "uint8") {
    grid.scale = "values as they are";
  } else if (tensor.dtype() == "uint16") {
    grid.scale = "0 is black, 65535 is white";
  } else {
    grid.scale = fmt::format("{:.3g} is black, {:.3g} is white", range.low, range.high);
  }
  const std::vector<int> masks = masks_on(preview, chosen, *shape);
  const std::optional<BoxField> boxes = boxes_of(preview);
  for (const int mask : masks) grid.drawn.push_back(preview.header.tensors(mask).name());
  if (boxes) grid.drawn.push_back(boxes->name);
  const std::uint32_t zoom = std::clamp(shape->height / 64, 1u, 8u);
  for (std::uint32_t cell = 0; cell < count; ++cell) {
    const std::uint32_t left = cell % grid.columns * (shape->width + kGap);
    const std::uint32_t top = cell / grid.columns * (shape->height + kGap);
    for (std::uint32_t y = 0; y < shape->height; ++y) {
      std::uint8_t* pixel = &grid.picture.rgb[(std::size_t{top + y} * width + left) * 3];
      for (std::uint32_t x = 0; x < shape->width; ++x) {
        for (std::uint32_t channel = 0; channel < 3; ++channel) {
          const std::size_t at = cell * values + shape->at(y, x, shape->channel_of(channel));
          *pixel++ = to_pixel(value_at(data, tensor.dtype(), at), range);
        }
      }
    }
    const Cell image{.left = left, .top = top, .width = shape->width, .height = shape->height};
    for (const int mask : masks) {
      const std::string& classes = preview.data[static_cast<std::size_t>(mask)];
      tint(grid.picture, image, classes.data() + std::size_t{cell} * shape->height * shape->width);
    }
    if (boxes) draw_boxes(grid.picture, image, boxes->rows[cell]);
    draw_number(grid.picture, left, top, zoom, cell);
  }
  return grid;
}

void write_png(const Picture& picture, const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.width;
  image.height = picture.height;
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, picture.rgb.data(), 0, nullptr) == 0) {
    const std::string why = image.message;
    png_image_free(&image);
    throw Failure(kFailed, fmt::format("cannot write {}: {}", path, why));
  }
}

}  // namespace spdld::ctl
