// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/grid.h"

#include <fmt/format.h>
#include <png.h>

#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

constexpr std::uint32_t kGap = 4;  // pixels between cells
constexpr std::uint64_t kMaxPixels = 100'000'000;

}  // namespace

void Grid::lay_out(std::uint32_t cell_width, std::uint32_t cell_height) {
  const std::uint64_t width = std::uint64_t{columns} * (cell_width + kGap) - kGap;
  const std::uint64_t height = std::uint64_t{rows} * (cell_height + kGap) - kGap;
  if (width > kMaxPixels || height > kMaxPixels || width * height > kMaxPixels) {
    throw Failure(kFailed, fmt::format("the grid would have {}x{} pixels: ask for fewer rows with "
                                       "--rows",
                                       width, height));
  }
  cell_width_ = cell_width;
  cell_height_ = cell_height;
  picture.width = static_cast<std::uint32_t>(width);
  picture.height = static_cast<std::uint32_t>(height);
  picture.rgb.assign(width * height * 3, 64);
}

Cell Grid::cell(std::uint32_t number) const {
  return {.left = number % columns * (cell_width_ + kGap),
          .top = number / columns * (cell_height_ + kGap),
          .width = cell_width_,
          .height = cell_height_};
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
