// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/coefficient_image.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "media/jpeg/coefficient_kernels.h"

namespace spdld::media {
namespace {

constexpr int kEntryStep = 8;  // MCUs from one entry to the next

// What the bytes begin with. As many numbers of 4 bytes follow as the grid has entries, each the
// place of its first block; then the blocks, then kPackedSlack bytes of no meaning.
struct KeptHeader {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::uint8_t components = 0;
  std::uint8_t columns = 0;  // of blocks, that an MCU has of the first component
  std::uint8_t rows = 0;
  std::uint8_t exif_orientation = 0;
  std::uint32_t end = 0;  // of the blocks
  std::array<Quantizer, 3> quantizers{};
};

using KeptEntry = std::uint32_t;

std::size_t entry_at(std::size_t entry) { return sizeof(KeptHeader) + entry * sizeof(KeptEntry); }

SeekGrid grid_of(const BaselineFrame& frame) {
  return {.mcus_across = frame.mcus_across(), .mcus_down = frame.mcus_down(), .step = kEntryStep};
}

std::size_t blocks_of(const BaselineFrame& frame) {
  return static_cast<std::size_t>(frame.mcus_across()) *
         static_cast<std::size_t>(frame.mcus_down()) * static_cast<std::size_t>(frame.mcu_blocks());
}

}  // namespace

std::optional<CoefficientImage> CoefficientImage::parse(std::span<const std::byte> bytes) {
  KeptHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const bool is_color = header.components == 3;
  if (header.width < 1 || header.width > UINT16_MAX || header.height < 1 ||
      header.height > UINT16_MAX || (!is_color && header.components != 1) || header.columns < 1 ||
      header.columns > 2 || header.rows < 1 || header.rows > header.columns ||
      (!is_color && header.columns > 1))
    return std::nullopt;
  CoefficientImage image;
  BaselineFrame& frame = image.frame_;
  frame.size = {header.width, header.height};
  frame.component_count = header.components;
  for (std::size_t i = 0; i < header.quantizers.size(); ++i)
    frame.components[i].quantizer = header.quantizers[i];
  frame.components[0].columns = header.columns;
  frame.components[0].rows = header.rows;
  image.exif_orientation_ = header.exif_orientation;
  image.grid_ = grid_of(frame);
  if (header.end < entry_at(image.grid_.entries()) || header.end > bytes.size() ||
      bytes.size() - header.end < kPackedSlack)
    return std::nullopt;
  image.bytes_ = bytes.first(header.end);
  return image;
}

bool CoefficientImage::read(int row, const McuSpan& mcus, std::int16_t* blocks) const {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(bytes_.data());
  const std::size_t entry = static_cast<std::size_t>(row) * grid_.row_entries() +
                            static_cast<std::size_t>(mcus.first / kEntryStep);
  KeptEntry at = 0;
  std::memcpy(&at, bytes + entry_at(entry), sizeof at);
  if (at > bytes_.size()) return false;
  const auto mcu_blocks = static_cast<std::size_t>(frame_.mcu_blocks());
  const std::uint8_t* const end = bytes + bytes_.size();
  const std::uint8_t* from =
      skip_blocks(bytes + at, end, static_cast<std::size_t>(mcus.first % kEntryStep) * mcu_blocks);
  return from != nullptr &&
         unpack_blocks(from, end, static_cast<std::size_t>(mcus.count()) * mcu_blocks, blocks) !=
             nullptr;
}

// A coefficient that is not zero has two bits in the file and half a byte here, a wide one at least
// five bits and two bytes and a half: no more than four times what the file has.
std::size_t CoefficientWriter::most_bytes(const BaselineFrame& frame, std::size_t file_bytes) {
  const std::size_t blocks = blocks_of(frame);
  return entry_at(grid_of(frame).entries()) + blocks * (kPackedHead + 1) +
         std::min(blocks * (kMostPackedBlock - kPackedHead - 1), 4 * file_bytes) + 2 * kPackedSlack;
}

void CoefficientWriter::begin(const BaselineFrame& frame, std::size_t file_bytes,
                              int exif_orientation) {
  KeptHeader header{.width = frame.size.width,
                    .height = frame.size.height,
                    .components = static_cast<std::uint8_t>(frame.component_count),
                    .columns = static_cast<std::uint8_t>(frame.components[0].columns),
                    .rows = static_cast<std::uint8_t>(frame.components[0].rows),
                    .exif_orientation = static_cast<std::uint8_t>(exif_orientation)};
  for (std::size_t i = 0; i < header.quantizers.size(); ++i)
    header.quantizers[i] = frame.components[i].quantizer;
  std::memcpy(bytes_.resize(most_bytes(frame, file_bytes)), &header, sizeof header);
  grid_ = grid_of(frame);
  mcu_blocks_ = static_cast<std::size_t>(frame.mcu_blocks());
  next_entry_ = 0;
  at_ = entry_at(grid_.entries());
}

bool CoefficientWriter::add_row(const std::int16_t* blocks) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(bytes_.data());
  for (int column = 0; column < grid_.mcus_across; ++column) {
    if (column % kEntryStep == 0) {
      const auto entry = static_cast<KeptEntry>(at_);
      std::memcpy(bytes + entry_at(next_entry_++), &entry, sizeof entry);
    }
    for (std::size_t i = 0; i < mcu_blocks_; ++i, blocks += kBlock) {
      if (bytes_.size() - at_ < kMostPackedBlock + kPackedSlack) return false;
      at_ = static_cast<std::size_t>(pack_block(blocks, bytes + at_) - bytes);
    }
  }
  return true;
}

std::span<const std::byte> CoefficientWriter::end() {
  SPDLD_CHECK(next_entry_ + 1 == grid_.entries());
  const auto end = static_cast<std::uint32_t>(at_);
  std::memcpy(bytes_.data() + entry_at(next_entry_), &end, sizeof end);
  std::memcpy(bytes_.data() + offsetof(KeptHeader, end), &end, sizeof end);
  std::memset(bytes_.data() + at_, 0, kPackedSlack);
  return bytes_.bytes().first(at_ + kPackedSlack);
}

}  // namespace spdld::media
