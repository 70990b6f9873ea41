// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/pixels_of.h"

// Where a PNG says which way it is to be turned, beside eXIf: as Pillow's exif_transpose reads it.
namespace spdld::media::test {
namespace {

using std::string_view_literals::operator""sv;

constexpr Size kStored{19, 13};
constexpr Size kTurned{13, 19};
constexpr std::string_view kAttribute = R"(<rdf:Description tiff:Orientation="6"/>)";
constexpr std::string_view kElement = "<tiff:Orientation>6</tiff:Orientation>";

Bytes bytes_of(std::string_view text) {
  Bytes bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

std::string deflated(std::string_view text) {
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(text.data()), text.size()),
            Z_OK);
  packed.resize(size);
  return packed;
}

// As ImageMagick writes it.
std::string raw_profile(unsigned orientation, std::string_view prefix = "Exif\0\0"sv) {
  std::string bytes(prefix);
  for (const std::byte byte : make_tiff(orientation, true)) bytes += static_cast<char>(byte);
  std::string text = "\nexif\n      " + std::to_string(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) text += '\n';
    const auto value = static_cast<unsigned char>(bytes[i]);
    text += "0123456789abcdef"[value >> 4];
    text += "0123456789ABCDEF"[value & 15];
  }
  return text + '\n';
}

// The recipe's PNG with this chunk before its data, or behind it.
Bytes with_chunk(std::string_view name, const Bytes& body, bool behind = false,
                 const PngRecipe& recipe = {}) {
  const Bytes png = make_png(recipe);
  const Bytes chunk = PngWriter().chunk(name, body).bytes();
  const std::size_t at = behind ? png.size() - 12 : 8 + 25;
  Bytes all(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(at));
  all.insert(all.end(), chunk.begin() + 8, chunk.end());
  all.insert(all.end(), png.begin() + static_cast<std::ptrdiff_t>(at), png.end());
  return all;
}

Size upright_size(const Bytes& png) {
  const auto size = make_decoder()->open(png);
  EXPECT_TRUE(size.has_value()) << size.error().message();
  return size.value_or(Size{});
}

std::string exif_text(std::string_view rest) {
  return std::string("Raw profile type exif\0"sv).append(rest);
}
std::string xmp_text(std::string_view rest) {
  return std::string("XML:com.adobe.xmp\0"sv).append(rest);
}

TEST(PngOrientation, IsReadFromImageMagicksTextPlainOrCompressed) {
  for (const bool behind : {false, true}) {
    EXPECT_EQ(upright_size(with_chunk("tEXt", bytes_of(exif_text(raw_profile(6))), behind)),
              kTurned);
    const std::string packed = std::string("\0"sv) + deflated(raw_profile(6));
    EXPECT_EQ(upright_size(with_chunk("zTXt", bytes_of(exif_text(packed)), behind)), kTurned);
  }
  EXPECT_EQ(upright_size(with_chunk("tEXt", bytes_of(exif_text(raw_profile(6, ""))))), kTurned);
}

TEST(PngOrientation, IsReadFromXmpInBothItsForms) {
  for (const std::string_view xmp : {kAttribute, kElement}) {
    const std::string plain = std::string("\0\0en\0\0"sv).append(xmp);
    EXPECT_EQ(upright_size(with_chunk("iTXt", bytes_of(xmp_text(plain)))), kTurned);
    const std::string packed = std::string("\1\0\0\0"sv) + deflated(xmp);
    EXPECT_EQ(upright_size(with_chunk("iTXt", bytes_of(xmp_text(packed)))), kTurned);
  }
}

TEST(PngOrientation, OfExifComesBeforeThatOfTexts) {
  const Bytes profile = bytes_of(exif_text(raw_profile(6)));
  EXPECT_EQ(upright_size(with_chunk("tEXt", profile, false, {.exif = make_tiff(1, true)})),
            kStored);
  const Bytes xmp = bytes_of(xmp_text(std::string("\0\0\0\0"sv).append(kAttribute)));
  EXPECT_EQ(upright_size(with_chunk("iTXt", xmp, false, {.exif = make_tiff(3, true)})), kStored);
  // An eXIf that tells of other things leaves it to XMP.
  EXPECT_EQ(upright_size(with_chunk("iTXt", xmp, false, {.exif = make_tiff(3, true, 0x010F)})),
            kTurned);
}

TEST(PngOrientation, OfBrokenTextsIsUpright) {
  const std::string profile = raw_profile(6);
  for (const std::string& broken :
       {std::string(), std::string("\n"), profile.substr(0, profile.size() / 2),
        "\nexif\n 10\nxyz" + profile, raw_profile(9)}) {
    EXPECT_EQ(upright_size(with_chunk("tEXt", bytes_of(exif_text(broken)))), kStored);
  }
  for (const std::string& broken :
       {std::string("\0"sv), std::string("\1"sv) + deflated(profile), std::string("\0"sv) + profile,
        (std::string("\0"sv) + deflated(profile)).substr(0, 20)}) {
    EXPECT_EQ(upright_size(with_chunk("zTXt", bytes_of(exif_text(broken)))), kStored);
  }
  for (const std::string_view xmp : {"tiff:Orientation", "tiff:Orientation=6", "tiff:Orientation>x",
                                     R"(tiff:Orientation="9")"}) {
    const std::string plain = std::string("\0\0\0\0"sv).append(xmp);
    EXPECT_EQ(upright_size(with_chunk("iTXt", bytes_of(xmp_text(plain)))), kStored);
  }
}

TEST(PngOrientation, OfATextThatInflatesBeyondItsLimitIsUpright) {
  std::string bomb(std::size_t{64} << 20, ' ');
  bomb += kAttribute;
  const std::string packed = std::string("\1\0\0\0"sv) + deflated(bomb);
  EXPECT_EQ(upright_size(with_chunk("iTXt", bytes_of(xmp_text(packed)))), kStored);
}

TEST(PngOrientation, OfNoiseInATextIsAlwaysASize) {
  KeyedRng rng(23);
  const Bytes packed = bytes_of(exif_text(std::string("\0"sv) + deflated(raw_profile(6))));
  for (int round = 0; round < 500; ++round) {
    Bytes noisy = packed;
    noisy[22 + rng.below(noisy.size() - 22)] = static_cast<std::byte>(rng.next());
    const Size size = upright_size(with_chunk("zTXt", noisy));
    ASSERT_TRUE(size == kStored || size == kTurned);
  }
}

}  // namespace
}  // namespace spdld::media::test
