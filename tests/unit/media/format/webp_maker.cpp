// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/webp_maker.h"

#include <webp/decode.h>
#include <webp/encode.h>

#include "base/check.h"
#include "base/rng.h"
#include "tests/unit/media/bytes/put_number.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

void put_text(Bytes& out, std::string_view text) {
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
}

Bytes riff(const Bytes& chunks) {
  Bytes file;
  put_text(file, "RIFF");
  put_number(file, static_cast<std::uint32_t>(chunks.size() + 4), 4);
  put_text(file, "WEBP");
  file.insert(file.end(), chunks.begin(), chunks.end());
  return file;
}

const std::uint8_t* data_of(const Bytes& bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

Bytes make_webp(const WebpRecipe& recipe) {
  const int channels = recipe.alpha ? 4 : 3;
  std::vector<std::uint8_t> pixels;
  KeyedRng rng(recipe.seed);
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        pixels.push_back(static_cast<std::uint8_t>((x * (c + 2) + y * 3 + c * 70) % 200 +
                                                   static_cast<int>(rng.below(56))));
      }
    }
  }
  const int stride = recipe.width * channels;
  std::uint8_t* out = nullptr;
  std::size_t size = 0;
  if (recipe.lossless) {
    const auto encode = recipe.alpha ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB;
    size = encode(pixels.data(), recipe.width, recipe.height, stride, &out);
  } else {
    const auto encode = recipe.alpha ? WebPEncodeRGBA : WebPEncodeRGB;
    size = encode(pixels.data(), recipe.width, recipe.height, stride, recipe.quality, &out);
  }
  SPDLD_CHECK(size > 0);
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  Bytes webp(begin, begin + size);
  WebPFree(out);
  return webp;
}

Bytes webp_chunk(std::string_view name, const Bytes& body) {
  Bytes chunk;
  put_text(chunk, name);
  put_number(chunk, static_cast<std::uint32_t>(body.size()), 4);
  chunk.insert(chunk.end(), body.begin(), body.end());
  if (body.size() % 2 != 0) put_number(chunk, 0, 1);
  return chunk;
}

Bytes make_webp_of(Size canvas, unsigned flags, const std::vector<Bytes>& chunks) {
  Bytes header;
  put_number(header, flags, 4);
  put_number(header, static_cast<std::uint32_t>(canvas.width - 1), 3);
  put_number(header, static_cast<std::uint32_t>(canvas.height - 1), 3);
  Bytes all = webp_chunk("VP8X", header);
  for (const Bytes& chunk : chunks) all.insert(all.end(), chunk.begin(), chunk.end());
  return riff(all);
}

Bytes webp_chunks_of(const Bytes& webp) {
  Bytes chunks(webp.begin() + 12, webp.end());
  if (chunks[3] != std::byte{'X'}) return chunks;
  chunks.erase(chunks.begin(), chunks.begin() + 18);
  return chunks;
}

Bytes webp_frame(const Rect& place, const Bytes& chunks) {
  Bytes body;
  put_number(body, static_cast<std::uint32_t>(place.x / 2), 3);
  put_number(body, static_cast<std::uint32_t>(place.y / 2), 3);
  put_number(body, static_cast<std::uint32_t>(place.width - 1), 3);
  put_number(body, static_cast<std::uint32_t>(place.height - 1), 3);
  put_number(body, 100, 3);  // milliseconds
  put_number(body, 0, 1);
  body.insert(body.end(), chunks.begin(), chunks.end());
  return webp_chunk("ANMF", body);
}

std::vector<std::uint8_t> bare_decode_webp(const Bytes& webp, int channels) {
  const auto decode = channels == 4 ? WebPDecodeRGBA : WebPDecodeRGB;
  int width = 0;
  int height = 0;
  std::uint8_t* pixels = decode(data_of(webp), webp.size(), &width, &height);
  SPDLD_CHECK(pixels != nullptr);
  std::vector<std::uint8_t> all(pixels,
                                pixels + static_cast<std::ptrdiff_t>(width) * height * channels);
  WebPFree(pixels);
  return all;
}

}  // namespace spdld::media::test
