// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/tiff_maker.h"

#include <zlib.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using Values = std::vector<std::uint32_t>;

class TiffWriter {
 public:
  explicit TiffWriter(bool big_endian) : big_endian_(big_endian) {}

  void put(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      const int shift = 8 * (big_endian_ ? bytes - 1 - i : i);
      bytes_.push_back(static_cast<std::byte>(value >> shift & 0xFF));
    }
  }
  void put(const Bytes& bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::size_t size() const { return bytes_.size(); }
  Bytes take() { return std::move(bytes_); }

 private:
  bool big_endian_;
  Bytes bytes_;
};

// Codes of 9 bits: the table is cleared before it would make them longer.
Bytes lzw(const Bytes& plain) {
  Bytes out;
  unsigned held = 0;
  int bits = 0;
  const auto put_code = [&](unsigned code) {
    held = held << 9 | code;
    for (bits += 9; bits >= 8; bits -= 8)
      out.push_back(static_cast<std::byte>(held >> (bits - 8) & 0xFF));
  };
  constexpr unsigned kClear = 256;
  put_code(kClear);
  int since_clear = 0;
  for (const std::byte byte : plain) {
    if (++since_clear == 250) {
      put_code(kClear);
      since_clear = 1;
    }
    put_code(std::to_integer<unsigned>(byte));
  }
  put_code(kClear + 1);
  if (bits > 0) out.push_back(static_cast<std::byte>(held << (8 - bits) & 0xFF));
  return out;
}

// Runs go from row to row; those of equal bytes are told as such.
Bytes pack_bits(const Bytes& plain) {
  Bytes out;
  for (std::size_t at = 0; at < plain.size();) {
    std::size_t equal = 1;
    while (at + equal < plain.size() && equal < 128 && plain[at + equal] == plain[at]) ++equal;
    if (equal > 2) {
      out.push_back(static_cast<std::byte>(257 - equal));
      out.push_back(plain[at]);
      at += equal;
    } else {
      const std::size_t count = std::min<std::size_t>(plain.size() - at, 100);
      out.push_back(static_cast<std::byte>(count - 1));
      const auto begin = plain.begin() + static_cast<std::ptrdiff_t>(at);
      out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
      at += count;
    }
  }
  return out;
}

Bytes deflate(const Bytes& plain) {
  uLongf size = compressBound(plain.size());
  Bytes packed(size);
  SPDLD_CHECK(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                        reinterpret_cast<const Bytef*>(plain.data()), plain.size(), 6) == Z_OK);
  packed.resize(size);
  return packed;
}

Bytes compressed(const TiffRecipe& recipe, const Bytes& plain) {
  Bytes data = plain;
  if (recipe.compression == 5) data = lzw(plain);
  if (recipe.compression == 8) data = deflate(plain);
  if (recipe.compression == 32773) data = pack_bits(plain);
  if (recipe.bits_reversed) {
    for (std::byte& byte : data) {
      unsigned turned = 0;
      for (int bit = 0; bit < 8; ++bit)
        turned = turned << 1 | (std::to_integer<unsigned>(byte) >> bit & 1);
      byte = static_cast<std::byte>(turned);
    }
  }
  return data;
}

// One chunk's samples [first, first + count) of the pixels in `place`, which may reach beyond the
// image.
Bytes chunk_of(const TiffRecipe& recipe, const Rect& place, unsigned first, unsigned count) {
  TiffWriter writer(recipe.big_endian);
  const unsigned mask = (1U << recipe.bits) - 1;
  for (int y = place.y; y < place.y + place.height; ++y) {
    std::vector<unsigned> left(count, 0);
    unsigned held = 0;
    unsigned bits = 0;
    for (int x = place.x; x < place.x + place.width; ++x) {
      for (unsigned c = 0; c < count; ++c) {
        const bool inside = x < recipe.width && y < recipe.height;
        const unsigned sample = inside ? recipe.sample(x, y, first + c) : 0;
        const unsigned value = recipe.differences ? (sample - left[c]) & mask : sample;
        left[c] = sample;
        if (recipe.bits >= 8) {
          writer.put(value, static_cast<int>(recipe.bits / 8));
          continue;
        }
        held = held << recipe.bits | value;
        bits += recipe.bits;
        if (bits == 8) {
          writer.put(held & 0xFF, 1);
          bits = 0;
        }
      }
    }
    if (bits > 0) writer.put(held << (8 - bits) & 0xFF, 1);
  }
  return compressed(recipe, writer.take());
}

std::vector<Bytes> chunks_of(const TiffRecipe& recipe) {
  if (!recipe.strip.empty()) return {recipe.strip};
  const bool tiled = recipe.tile.width > 0;
  const int rows = recipe.rows_per_strip > 0 ? recipe.rows_per_strip : recipe.height;
  const Size size = tiled ? recipe.tile : Size{recipe.width, rows};
  const unsigned planes = recipe.planar ? recipe.samples : 1;
  const unsigned count = recipe.samples / planes;
  std::vector<Bytes> chunks;
  for (unsigned plane = 0; plane < planes; ++plane) {
    for (int y = 0; y < recipe.height; y += size.height) {
      for (int x = 0; x < recipe.width; x += size.width) {
        const int height = tiled ? size.height : std::min(size.height, recipe.height - y);
        chunks.push_back(chunk_of(recipe, {x, y, size.width, height}, plane * count, count));
      }
    }
  }
  return chunks;
}

}  // namespace

unsigned TiffRecipe::sample(int x, int y, unsigned sample) const {
  const auto at = static_cast<std::uint64_t>(y * width + x) * 8 + sample;
  return static_cast<unsigned>(mix64(seed, at) & ((1U << bits) - 1));
}

Bytes make_tiff_file(const TiffRecipe& recipe) {
  TiffWriter writer(recipe.big_endian);
  const int number = recipe.big_tiff ? 8 : 4;
  writer.put(Bytes(2, static_cast<std::byte>(recipe.big_endian ? 'M' : 'I')));
  writer.put(recipe.big_tiff ? 43 : 42, 2);
  if (recipe.big_tiff) writer.put(recipe.big_endian ? 0x00080000 : 8, 4);
  Bytes data;
  Values offsets;
  Values counts;
  for (const Bytes& chunk : chunks_of(recipe)) {
    offsets.push_back(static_cast<std::uint32_t>((recipe.big_tiff ? 16 : 8) + data.size()));
    counts.push_back(static_cast<std::uint32_t>(chunk.size()));
    data.insert(data.end(), chunk.begin(), chunk.end());
    data.resize((data.size() + 1) / 2 * 2);
  }
  writer.put(writer.size() + static_cast<std::size_t>(number) + data.size(), number);
  writer.put(data);

  std::map<unsigned, Values> tags = {
      {256, {static_cast<std::uint32_t>(recipe.width)}},
      {257, {static_cast<std::uint32_t>(recipe.height)}},
      {258, Values(recipe.samples, recipe.bits)},
      {259, {recipe.compression}},
      {262, {recipe.photometric}},
      {277, {recipe.samples}},
      {284, {recipe.planar ? 2U : 1U}},
  };
  const bool tiled = recipe.tile.width > 0;
  if (tiled) {
    tags[322] = {static_cast<std::uint32_t>(recipe.tile.width)};
    tags[323] = {static_cast<std::uint32_t>(recipe.tile.height)};
  } else if (recipe.rows_per_strip > 0) {
    tags[278] = {static_cast<std::uint32_t>(recipe.rows_per_strip)};
  }
  tags[tiled ? 324 : 273] = offsets;
  tags[tiled ? 325 : 279] = counts;
  if (recipe.differences) tags[317] = {2};
  if (recipe.bits_reversed) tags[266] = {2};
  if (recipe.photometric == 3) tags[320] = some_color_map(recipe.bits);
  if (recipe.photometric <= 1 && recipe.samples == 2) tags[338] = {2};
  for (const auto& [tag, values] : recipe.tags) {
    if (values.empty()) {
      tags.erase(tag);
    } else {
      tags[tag] = values;
    }
  }

  const std::size_t entry = recipe.big_tiff ? 20 : 12;
  std::size_t behind = writer.size() + (recipe.big_tiff ? 8 : 2) + tags.size() * entry +
                       static_cast<std::size_t>(number);
  TiffWriter values_behind(recipe.big_endian);
  writer.put(tags.size(), recipe.big_tiff ? 8 : 2);
  for (const auto& [tag, values] : tags) {
    constexpr int kLong = 4;
    writer.put(tag, 2);
    writer.put(kLong, 2);
    writer.put(values.size(), number);
    if (values.size() == 1) {
      writer.put(values[0], kLong);
      writer.put(0, number - kLong);
      continue;
    }
    writer.put(behind + values_behind.size(), number);
    for (const std::uint32_t value : values) values_behind.put(value, kLong);
  }
  writer.put(0, number);
  writer.put(values_behind.take());
  return writer.take();
}

Bytes fax_codes(int rows, bool t6) {
  constexpr std::string_view kEightWhite = "10011";
  constexpr std::string_view kEightBlack = "000101";
  constexpr std::string_view kEndOfLine = "000000000001";
  std::string bits;
  for (int y = 0; y < rows; ++y) {
    if (!t6) {
      bits += kEndOfLine;
      bits.append(kEightWhite).append(kEightBlack);
    } else if (y == 0) {
      bits += "001";  // the runs follow
      bits.append(kEightWhite).append(kEightBlack);
    } else {
      bits += "11";  // both colours end where they did in the row above
    }
  }
  bits.resize((bits.size() + 7) / 8 * 8, '0');
  Bytes codes;
  for (std::size_t at = 0; at < bits.size(); at += 8)
    codes.push_back(static_cast<std::byte>(std::stoi(bits.substr(at, 8), nullptr, 2)));
  return codes;
}

Values some_color_map(unsigned bits) {
  Values map;
  for (std::uint32_t i = 0; i < 3U << bits; ++i) map.push_back(i * 40503U & 0xFFFF);
  return map;
}

}  // namespace spdld::media::test
