// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/jpeg/jpeg_maker.h"

#include <cstdio>
#include <cstdlib>

// jpeglib.h needs <cstdio> first.
#include <jpeglib.h>

#include <array>
#include <string_view>

#include "base/rng.h"

namespace spdld::media::test {
namespace {

using Kind = JpegRecipe::Kind;

J_COLOR_SPACE input_space(Kind kind) {
  switch (kind) {
    case Kind::kGray: return JCS_GRAYSCALE;
    case Kind::kCmyk:
    case Kind::kYcck: return JCS_CMYK;
    default: return JCS_RGB;
  }
}

J_COLOR_SPACE stored_space(Kind kind) {
  switch (kind) {
    case Kind::kGray: return JCS_GRAYSCALE;
    case Kind::kRgb: return JCS_RGB;
    case Kind::kCmyk: return JCS_CMYK;
    case Kind::kYcck: return JCS_YCCK;
    default: return JCS_YCbCr;
  }
}

void write_exif(jpeg_compress_struct& info, const std::vector<std::byte>& tiff) {
  std::string segment("Exif\0\0", 6);
  segment.append(reinterpret_cast<const char*>(tiff.data()), tiff.size());
  jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(segment.data()),
                    static_cast<unsigned>(segment.size()));
}

// One DC scan, then every AC coefficient in a scan of its own, each refined bit by bit.
std::vector<jpeg_scan_info> long_script(int components, int scans) {
  std::vector<jpeg_scan_info> script;
  jpeg_scan_info dc{components, {0, 1, 2, 3}, 0, 0, 0, 0};
  script.push_back(dc);
  constexpr int kBits = 10;
  for (int k = 1; k < 64; ++k) {
    for (int component = 0; component < components; ++component) {
      for (int bit = kBits; bit >= 0; --bit) {
        if (static_cast<int>(script.size()) >= scans) return script;
        script.push_back({1, {component, 0, 0, 0}, k, k, bit == kBits ? 0 : bit + 1, bit});
      }
    }
  }
  return script;
}

}  // namespace

std::vector<std::byte> make_jpeg(const JpegRecipe& recipe) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // an error of libjpeg here is the test's and exits
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);

  info.image_width = static_cast<JDIMENSION>(recipe.width);
  info.image_height = static_cast<JDIMENSION>(recipe.height);
  info.in_color_space = input_space(recipe.kind);
  info.input_components = recipe.kind == Kind::kGray ? 1 : info.in_color_space == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, stored_space(recipe.kind));
  jpeg_set_quality(&info, recipe.quality, TRUE);
  for (int i = 0; i < info.num_components; ++i) {
    const bool full = i == 0 || i == 3;
    info.comp_info[i].h_samp_factor = full ? recipe.luma_h : 1;
    info.comp_info[i].v_samp_factor = full ? recipe.luma_v : 1;
  }
  info.arith_code = recipe.arithmetic ? TRUE : FALSE;
  info.restart_interval = static_cast<unsigned>(recipe.restart_interval);
  std::vector<jpeg_scan_info> script;
  if (recipe.progressive) {
    jpeg_simple_progression(&info);
    if (recipe.progressive_scans > 0) info.num_scans = recipe.progressive_scans;
    if (recipe.repeated_scans > 0) script = long_script(info.num_components, recipe.repeated_scans);
  } else if (!recipe.interleaved) {
    for (int i = 0; i < info.num_components; ++i) script.push_back({1, {i, 0, 0, 0}, 0, 63, 0, 0});
  }
  if (!script.empty()) {
    info.scan_info = script.data();
    info.num_scans = static_cast<int>(script.size());
  }

  jpeg_start_compress(&info, TRUE);
  if (!recipe.exif.empty()) write_exif(info, recipe.exif);
  KeyedRng rng(mix64(recipe.seed, 0x6a706567));
  std::vector<JSAMPLE> row(static_cast<std::size_t>(recipe.width) * info.input_components);
  for (int y = 0; y < recipe.height; ++y) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto x = static_cast<int>(i) / info.input_components;
      const auto c = static_cast<int>(i) % info.input_components;
      const int slope = (x * (3 + c) + y * (5 - c)) & 0xFF;
      row[i] = static_cast<JSAMPLE>((slope + static_cast<int>(rng.below(96))) & 0xFF);
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> jpeg(begin, begin + size);
  std::free(data);  // jpeg_mem_dest's, by malloc
  return jpeg;
}

std::size_t natural_of_zigzag(std::size_t i) {
  // Diagonals go up and down in turn.
  for (std::size_t diagonal = 0;; ++diagonal) {
    for (std::size_t n = 0; n <= diagonal; ++n) {
      const std::size_t row = diagonal % 2 == 0 ? diagonal - n : n;
      const std::size_t column = diagonal - row;
      if (row >= 8 || column >= 8) continue;
      if (i == 0) return 8 * row + column;
      --i;
    }
  }
}

std::vector<std::byte> make_jpeg_of(const std::vector<JpegBlock>& blocks, std::size_t across,
                                    const std::array<std::uint8_t, kBlockSize>& quantizer) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  const std::size_t down = blocks.size() / across;
  info.image_width = static_cast<JDIMENSION>(8 * across);
  info.image_height = static_cast<JDIMENSION>(8 * down);
  info.input_components = 1;
  info.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  info.optimize_coding = TRUE;
  std::array<unsigned, kBlockSize> table{};
  std::array<std::size_t, kBlockSize> natural{};
  for (std::size_t i = 0; i < kBlockSize; ++i) {
    natural[i] = natural_of_zigzag(i);
    table[natural[i]] = quantizer[i];
  }
  jpeg_add_quant_table(&info, 0, table.data(), 100, TRUE);
  auto* const common = reinterpret_cast<j_common_ptr>(&info);
  jvirt_barray_ptr rows = (*info.mem->request_virt_barray)(
      common, JPOOL_IMAGE, TRUE, static_cast<JDIMENSION>(across), static_cast<JDIMENSION>(down), 1);
  jpeg_write_coefficients(&info, &rows);
  for (std::size_t y = 0; y < down; ++y) {
    JBLOCKARRAY row =
        (*info.mem->access_virt_barray)(common, rows, static_cast<JDIMENSION>(y), 1, TRUE);
    for (std::size_t x = 0; x < across; ++x) {
      for (std::size_t i = 0; i < kBlockSize; ++i)
        row[0][x][natural[i]] = blocks[y * across + x][i];
    }
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> jpeg(begin, begin + size);
  std::free(data);  // jpeg_mem_dest's, by malloc
  return jpeg;
}

std::vector<std::uint8_t> bare_decode(const std::vector<std::byte>& jpeg, int components) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_start_decompress(&info);
  const std::size_t row_bytes = std::size_t{info.output_width} * components;
  std::vector<std::uint8_t> pixels(row_bytes * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + row_bytes * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_abort_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels;
}

}  // namespace spdld::media::test
