// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/png_maker.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

void put_be32(Bytes& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<std::byte>(value >> shift & 0xFF));
  }
}

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// One pass of the image: columns x0, x0 + dx, ... of rows y0, y0 + dy, ...
struct Pass {
  int x0, y0, dx, dy;
};

constexpr std::array<Pass, 7> kAdam7 = {{{0, 0, 8, 8},
                                         {4, 0, 8, 8},
                                         {0, 4, 4, 8},
                                         {2, 0, 4, 4},
                                         {0, 2, 2, 4},
                                         {1, 0, 2, 2},
                                         {0, 1, 1, 2}}};

void put_row(const PngRecipe& recipe, const Pass& pass, int y, Bytes& raw) {
  raw.push_back(std::byte{0});  // no filter
  unsigned held = 0;
  int bits = 0;
  for (int x = pass.x0; x < recipe.width; x += pass.dx) {
    for (int channel = 0; channel < recipe.samples(); ++channel) {
      held = held << recipe.bit_depth | recipe.sample(x, y, channel);
      bits += recipe.bit_depth;
      while (bits >= 8) {
        bits -= 8;
        raw.push_back(static_cast<std::byte>(held >> bits & 0xFF));
      }
    }
  }
  if (bits > 0) raw.push_back(static_cast<std::byte>(held << (8 - bits) & 0xFF));
}

}  // namespace

int PngRecipe::samples() const {
  switch (color_type) {
    case 2: return 3;
    case 4: return 2;
    case 6: return 4;
    default: return 1;
  }
}

unsigned PngRecipe::sample(int x, int y, int channel) const {
  const std::uint64_t key = mix64(seed, static_cast<std::uint64_t>((y * width + x) * 4 + channel));
  if (color_type == 3) return static_cast<unsigned>(key % (palette.size() / 3));
  return static_cast<unsigned>(key & ((1U << bit_depth) - 1));
}

PngWriter::PngWriter() {
  constexpr std::array<unsigned char, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  for (const unsigned char byte : kSignature) bytes_.push_back(std::byte{byte});
}

PngWriter& PngWriter::chunk(std::string_view name, const Bytes& body) {
  put_be32(bytes_, static_cast<std::uint32_t>(body.size()));
  const std::size_t start = bytes_.size();
  for (const char c : name) bytes_.push_back(static_cast<std::byte>(c));
  bytes_.insert(bytes_.end(), body.begin(), body.end());
  put_be32(bytes_, checksum(std::span(bytes_).subspan(start)));
  return *this;
}

PngWriter& PngWriter::header(std::uint32_t width, std::uint32_t height, int bit_depth,
                             int color_type, int interlace) {
  Bytes body;
  put_be32(body, width);
  put_be32(body, height);
  for (const int value : {bit_depth, color_type, 0, 0, interlace}) {
    body.push_back(static_cast<std::byte>(value));
  }
  return chunk("IHDR", body);
}

PngWriter& PngWriter::data(const Bytes& raw) {
  uLongf size = compressBound(raw.size());
  Bytes packed(size);
  SPDLD_CHECK(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                        reinterpret_cast<const Bytef*>(raw.data()), raw.size(), 6) == Z_OK);
  packed.resize(size);
  return chunk("IDAT", packed);
}

Bytes PngWriter::end() {
  chunk("IEND", {});
  return std::move(bytes_);
}

void mend_checksums(Bytes& png) {
  std::size_t at = 8;
  while (at + 12 <= png.size()) {
    std::size_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | std::to_integer<std::size_t>(png[at + i]);
    if (length > png.size() - at - 12) return;
    Bytes mended;
    put_be32(mended, checksum(std::span(png).subspan(at + 4, length + 4)));
    std::copy(mended.begin(), mended.end(),
              png.begin() + static_cast<std::ptrdiff_t>(at + 8 + length));
    at += length + 12;
  }
}

Bytes make_png(const PngRecipe& recipe) {
  Bytes raw;
  const auto put_pass = [&](const Pass& pass) {
    if (pass.x0 >= recipe.width) return;
    for (int y = pass.y0; y < recipe.height - recipe.rows_left_out; y += pass.dy) {
      put_row(recipe, pass, y, raw);
    }
  };
  if (recipe.interlaced) {
    for (const Pass& pass : kAdam7) put_pass(pass);
  } else {
    put_pass({0, 0, 1, 1});
  }
  PngWriter writer;
  writer.header(static_cast<std::uint32_t>(recipe.width), static_cast<std::uint32_t>(recipe.height),
                recipe.bit_depth, recipe.color_type, recipe.interlaced ? 1 : 0);
  if (!recipe.exif.empty()) writer.chunk("eXIf", recipe.exif);
  if (!recipe.palette.empty()) {
    Bytes body;
    for (const std::uint8_t value : recipe.palette) body.push_back(std::byte{value});
    writer.chunk("PLTE", body);
  }
  if (!recipe.transparent.empty()) {
    Bytes body;
    for (const unsigned value : recipe.transparent) {
      if (recipe.color_type != 3) body.push_back(static_cast<std::byte>(value >> 8));
      body.push_back(static_cast<std::byte>(value & 0xFF));
    }
    writer.chunk("tRNS", body);
  }
  return writer.data(raw).end();
}

}  // namespace spdld::media::test
