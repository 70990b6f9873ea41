// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/sound_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/text/counted.h"
#include "ctl/show/packed_rows.h"

namespace spdld::ctl {
namespace {

constexpr std::uint32_t kWidth = 640;
constexpr std::uint32_t kChannelHeight = 64;

float peak_of(const SoundField& field) {
  float peak = 0;
  for (const SoundField::Row& row : field.rows) {
    for (const float value : row.values) {
      if (std::isfinite(value)) peak = std::max(peak, std::abs(value));
    }
  }
  return peak > 0 ? peak : 1;
}

// From `low` to `high` of the column's channel, whose middle is silence.
void draw_line(Picture& picture, const Cell& cell, std::uint32_t channel, std::uint32_t x,
               float low, float high) {
  constexpr float kHalf = (kChannelHeight - 1) / 2.0F;
  const auto y_of = [](float value) {
    return static_cast<std::uint32_t>(std::lround(kHalf - std::clamp(value, -1.0F, 1.0F) * kHalf));
  };
  for (std::uint32_t y = y_of(high); y <= y_of(low); ++y) {
    const std::size_t line = cell.top + channel * kChannelHeight + y;
    std::uint8_t* const pixel = &picture.rgb[(line * picture.width + cell.left + x) * 3];
    pixel[0] = 70;
    pixel[1] = 240;
    pixel[2] = 240;
  }
}

// Where the samples that a pixel shows begin; that of kWidth is where they end.
std::size_t begin_of(std::uint32_t x, std::size_t samples) {
  return static_cast<std::size_t>(static_cast<unsigned __int128>(samples) * x / kWidth);
}

void draw_row(Picture& picture, const Cell& cell, const SoundField::Row& row, float peak) {
  for (std::uint32_t channel = 0; channel < row.channels; ++channel) {
    const float* const values = row.values.data() + channel * row.samples;
    for (std::uint32_t x = 0; x < kWidth && row.samples > 0; ++x) {
      const std::size_t begin = begin_of(x, row.samples);
      const std::size_t end = std::max(begin + 1, begin_of(x + 1, row.samples));
      const auto [low, high] = std::minmax_element(values + begin, values + end);
      if (std::isfinite(*low) && std::isfinite(*high))
        draw_line(picture, cell, channel, x, *low / peak, *high / peak);
    }
  }
}

}  // namespace

std::optional<Grid> sound_grid(const Preview& preview) {
  const std::optional<SoundField> field = sound_of(preview);
  if (!field || field->rows.empty()) return std::nullopt;
  std::uint32_t channels = 1;
  for (const SoundField::Row& row : field->rows) channels = std::max(channels, row.channels);
  const float peak = peak_of(*field);
  Grid grid;
  grid.tensor = field->name;
  grid.scale = fmt::format("{:.3g} at the edges", peak);
  grid.columns = 1;
  grid.rows = static_cast<std::uint32_t>(field->rows.size());
  grid.lay_out(kWidth, channels * kChannelHeight);
  for (std::uint32_t row = 0; row < grid.rows; ++row) {
    draw_row(grid.picture, grid.cell(row), field->rows[row], peak);
    draw_number(grid.picture, grid.cell(row), 2, row);
  }
  return grid;
}

}  // namespace spdld::ctl
