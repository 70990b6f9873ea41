// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <png.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "ctl/cursor_text.h"
#include "ctl/digest.h"
#include "ctl/failure.h"
#include "ctl/show/preview_grid.h"
#include "tests/unit/control/temp_socket.h"
#include "tests/unit/ctl/show/pixel.h"

namespace spdld::ctl {
namespace {

template <typename T>
TensorView dense(std::string_view name, const std::vector<T>& values) {
  TensorView view;
  view.name = name;
  view.data = reinterpret_cast<const std::byte*>(values.data());
  view.bytes = values.size() * sizeof(T);
  return view;
}

TensorView texts(std::string_view name, const std::string& values,
                 const std::vector<std::int64_t>& offsets) {
  TensorView view;
  view.name = name;
  view.kind = FieldKind::kBytes;
  view.ndim = 1;
  view.data = reinterpret_cast<const std::byte*>(values.data());
  view.bytes = values.size();
  view.offsets = offsets.data();
  return view;
}

TEST(BatchDigest, IsXxh3Of128BitsOverTheTensorsInNameOrder) {
  const std::vector<std::uint8_t> a = {'a', 'b'};
  const std::vector<std::uint8_t> b = {'c'};
  // printf abc | xxhsum -H2
  const std::string abc = "06b05ab6733a618578af5f94892f3950";
  EXPECT_EQ(batch_digest(std::array{dense("a", a), dense("b", b)}, 1), abc);
  EXPECT_EQ(batch_digest(std::array{dense("b", b), dense("a", a)}, 1), abc);
  EXPECT_NE(batch_digest(std::array{dense("b", a), dense("a", b)}, 1), abc);
}

TEST(BatchDigest, LeavesMetaFieldsOut) {
  const std::vector<std::uint8_t> a = {'a', 'b', 'c'};
  const std::vector<std::int64_t> index = {5};
  TensorView meta = dense("__index", index);
  meta.meta = true;
  EXPECT_EQ(batch_digest(std::array{dense("a", a), meta}, 1),
            batch_digest(std::array{dense("a", a)}, 1));
}

TEST(BatchDigest, TellsWhereOneTextEndsAndTheNextBegins) {
  const std::string values = "abc";
  const std::vector<std::int64_t> early = {0, 1, 3};
  const std::vector<std::int64_t> late = {0, 2, 3};
  EXPECT_NE(batch_digest(std::array{texts("t", values, early)}, 2),
            batch_digest(std::array{texts("t", values, late)}, 2));
}

TEST(RowDigest, IsTheSameInAnyBatchAndPlace) {
  const std::vector<std::int32_t> two = {1, 2, 3, 4};
  const std::vector<std::int32_t> one = {3, 4};
  const std::string words = "abcd";
  const std::string word = "cd";
  const std::vector<std::int64_t> offsets = {0, 2, 4};
  const std::vector<std::int64_t> offset = {0, 2};
  const std::array both = {dense("x", two), texts("t", words, offsets)};
  const std::array alone = {dense("x", one), texts("t", word, offset)};
  EXPECT_EQ(row_digest(both, 2, 1), row_digest(alone, 1, 0));
  EXPECT_NE(row_digest(both, 2, 0), row_digest(both, 2, 1));
}

TEST(RowDigest, CoversTheShapesOfRaggedRows) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> offsets = {0, 6};
  const std::vector<std::int64_t> wide = {2, 3};
  const std::vector<std::int64_t> tall = {3, 2};
  TensorView view = dense("x", values);
  view.kind = FieldKind::kRagged;
  view.dtype = DType::kFloat32;
  view.ndim = 3;
  view.offsets = offsets.data();
  view.shapes = wide.data();
  const std::string first = row_digest(std::array{view}, 1, 0);
  view.shapes = tall.data();
  EXPECT_NE(row_digest(std::array{view}, 1, 0), first);
}

TEST(CursorText, GoesThereAndBack) {
  const Cursor cursor{"9f3c", -42, 1, UINT64_MAX, 10};
  EXPECT_EQ(cursor_text(cursor), "9f3c:-42:1:18446744073709551615:10");
  EXPECT_EQ(parse_cursor(cursor_text(cursor)), cursor);
  EXPECT_EQ(parse_cursor(cursor_text(Cursor())), Cursor());
  Cursor in_run = cursor;
  in_run.run = UINT64_MAX;
  in_run.branch = 2;
  in_run.turn = 77;
  EXPECT_EQ(cursor_text(in_run), "9f3c:-42:1:18446744073709551615:10:18446744073709551615:2:77");
  EXPECT_EQ(parse_cursor(cursor_text(in_run)), in_run);
}

TEST(CursorText, RefusesEverythingElse) {
  for (const std::string text :
       {"", "9f3c", "9f3c:1:2:3", "9f3c:1:2:3:4:5", "9f3c:1:2:3:4:5:6", "9f3c:1:2:3:4:5:6:7:8",
        "9f3c:1:2:3:", "9f3c:1:2:x:4", "9f3c:1:-2:3:4", "9f3c:1:2:3:4 ",
        "9f3c:1:2:3:4:", "9f3c:1:2:3:4:-1:6:7", "9f3c:1:2:3:4:0:6:7", "9f3c:1:2:3:4:5:4294967296:7",
        "9f3c:1:2:3:4:5:6:", "9f3c:1:2:99999999999999999999:4", "9f3c::2:3:4"}) {
    EXPECT_THROW(parse_cursor(text), Failure) << text;
  }
}

Preview images(const std::string& dtype, std::vector<std::int64_t> shape, int rows,
               std::string data) {
  Preview preview;
  v1::Tensor& label = *preview.header.add_tensors();
  label.set_name("label");
  label.set_kind("dense");
  label.set_dtype("int64");
  v1::Tensor& image = *preview.header.add_tensors();
  image.set_name("image");
  image.set_kind("dense");
  image.set_dtype(dtype);
  for (const std::int64_t extent : shape) image.add_shape(extent);
  for (int row = 0; row < rows; ++row) preview.header.add_indices(row);
  preview.data = {std::string(static_cast<std::size_t>(rows) * 8, '\0'), std::move(data)};
  return preview;
}

TEST(ImageGrid, PlacesImagesOfBothLayoutsInReadingOrder) {
  constexpr int kSide = 16;
  std::string rows_last(3 * kSide * kSide * 3, '\0');
  std::string rows_first = rows_last;
  for (int row = 0; row < 3; ++row) {
    for (int at = 0; at < kSide * kSide; ++at) {
      for (int channel = 0; channel < 3; ++channel) {
        const char value = static_cast<char>(row * 40 + channel * 10 + at / kSide);
        rows_last[static_cast<std::size_t>((row * kSide * kSide + at) * 3 + channel)] = value;
        rows_first[static_cast<std::size_t>((row * 3 + channel) * kSide * kSide + at)] = value;
      }
    }
  }
  const Grid last = make_grid(images("uint8", {kSide, kSide, 3}, 3, rows_last));
  const Grid first = make_grid(images("uint8", {3, kSide, kSide}, 3, rows_first));
  EXPECT_EQ(last.tensor, "image");
  EXPECT_EQ(last.columns, 2u);
  EXPECT_EQ(last.rows, 2u);
  EXPECT_EQ(last.picture.width, 36u);
  EXPECT_EQ(last.picture.height, 36u);
  EXPECT_EQ(last.picture.rgb, first.picture.rgb);
  EXPECT_EQ(pixel(last.picture, 15, 15), (std::array<int, 3>{15, 25, 35}));
  EXPECT_EQ(pixel(last.picture, 35, 15), (std::array<int, 3>{55, 65, 75}));
  EXPECT_EQ(pixel(last.picture, 15, 35), (std::array<int, 3>{95, 105, 115}));
}

TEST(ImageGrid, StretchesFloatsAndTakesNotANumberForBlack) {
  std::vector<float> values(16 * 16, 0.0F);
  values[255] = 2.0F;
  values[254] = -2.0F;
  values[253] = std::numeric_limits<float>::quiet_NaN();
  std::string data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const Grid grid = make_grid(images("float32", {1, 16, 16}, 1, data));
  EXPECT_EQ(grid.scale, "-2 is black, 2 is white");
  EXPECT_EQ(pixel(grid.picture, 15, 15)[0], 255);
  EXPECT_EQ(pixel(grid.picture, 14, 15)[0], 0);
  EXPECT_EQ(pixel(grid.picture, 13, 15)[0], 0);
  EXPECT_EQ(pixel(grid.picture, 12, 15)[0], 128);
}

TEST(ImageGrid, ShowsSixteenBitsFromBlackToWhite) {
  std::string data(16 * 16 * 2, '\0');
  const auto put = [&](std::size_t at, std::uint16_t value) {
    std::memcpy(data.data() + 2 * (15 * 16 + at), &value, sizeof(value));
  };
  put(15, 65535);
  put(14, 257 * 40);
  const Grid grid = make_grid(images("uint16", {1, 16, 16}, 1, data));
  EXPECT_EQ(grid.scale, "0 is black, 65535 is white");
  EXPECT_EQ(pixel(grid.picture, 15, 15)[0], 255);
  EXPECT_EQ(pixel(grid.picture, 14, 15)[0], 40);
  EXPECT_EQ(pixel(grid.picture, 13, 15)[0], 0);
}

TEST(ImageGrid, ShowsTheColoursOfWhatHasAlpha) {
  std::string gray;
  std::string rgb;
  for (int i = 0; i < 16 * 16; ++i) {
    gray += "\x31\x01";
    rgb += "\x31\x32\x33\x01";
  }
  EXPECT_EQ(pixel(make_grid(images("uint8", {16, 16, 2}, 1, gray)).picture, 15, 15),
            (std::array<int, 3>{0x31, 0x31, 0x31}));
  EXPECT_EQ(pixel(make_grid(images("uint8", {16, 16, 4}, 1, rgb)).picture, 15, 15),
            (std::array<int, 3>{0x31, 0x32, 0x33}));
}

// Adds boxes of 16 x 16 images, and their labels.
void add_boxes(Preview& preview, const std::vector<std::vector<float>>& rows,
               const std::vector<std::int64_t>& labels) {
  preview.header.clear_packed();
  for (int i = 0; i < preview.header.tensors_size(); ++i) preview.header.add_packed();
  v1::Tensor& boxes = *preview.header.add_tensors();
  boxes.set_name("boxes");
  boxes.set_kind("ragged");
  boxes.set_dtype("float32");
  boxes.add_shape(-1);
  boxes.add_shape(4);
  v1::Tensor& numbers = *preview.header.add_tensors();
  numbers.set_name("labels");
  numbers.set_kind("ragged");
  numbers.set_dtype("int64");
  numbers.add_shape(-1);
  v1::PreviewRows& edges = *preview.header.add_packed();
  v1::PreviewRows& of_labels = *preview.header.add_packed();
  std::string& data = preview.data.emplace_back();
  edges.add_begins(0);
  of_labels.add_begins(0);
  for (const std::vector<float>& row : rows) {
    data.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
    edges.add_begins(data.size());
    of_labels.add_begins(data.size() / 2);
  }
  preview.data.emplace_back(reinterpret_cast<const char*>(labels.data()),
                            labels.size() * sizeof(std::int64_t));
}

TEST(ImageGrid, OutlinesBoxesInTheColoursOfTheirLabels) {
  Preview preview = images("uint8", {16, 16, 3}, 2, std::string(2 * 768, '\x30'));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  add_boxes(preview, {{8, 8, 12, 15}, {-9, 10, 400, 400, 0, 0, 0, 0, kNan, 0, kNan, 9}},
            {1, 0, 0, 0});
  const Grid grid = make_grid(preview);
  EXPECT_EQ(grid.drawn, std::vector<std::string>{"boxes"});
  const std::array<int, 3> red{230, 25, 75};
  const std::array<int, 3> green{60, 180, 75};
  const std::array<int, 3> none{0x30, 0x30, 0x30};
  EXPECT_EQ(pixel(grid.picture, 8, 8), green);
  EXPECT_EQ(pixel(grid.picture, 11, 14), green);
  EXPECT_EQ(pixel(grid.picture, 12, 14), none);
  EXPECT_EQ(pixel(grid.picture, 9, 9), none);
  EXPECT_EQ(pixel(grid.picture, 20 + 8, 10), red);
  EXPECT_EQ(pixel(grid.picture, 20 + 15, 15), red);
  EXPECT_EQ(pixel(grid.picture, 20 + 8, 12), none);
  EXPECT_EQ(pixel(grid.picture, 17, 12), (std::array<int, 3>{64, 64, 64}));
}

TEST(ImageGrid, LeavesOutBoxesThatContradictThemselves) {
  Preview preview = images("uint8", {16, 16, 3}, 1, std::string(768, '\x30'));
  add_boxes(preview, {{8, 8, 12, 15}}, {1});
  preview.header.mutable_packed(2)->set_begins(1, 1 << 20);
  EXPECT_TRUE(make_grid(preview).drawn.empty());
  preview.header.mutable_packed(2)->mutable_begins()->Clear();
  EXPECT_TRUE(make_grid(preview).drawn.empty());
}

TEST(ImageGrid, TintsImagesByTheirMasks) {
  Preview preview = images("uint8", {3, 16, 16}, 1, std::string(768, '\x40'));
  v1::Tensor& mask = *preview.header.add_tensors();
  mask.set_name("mask");
  mask.set_kind("dense");
  mask.set_dtype("uint8");
  for (const int extent : {1, 16, 16}) mask.add_shape(extent);
  std::string classes(256, '\0');
  classes[255] = 1;
  classes[254] = 10;
  preview.data.push_back(classes);
  const Grid grid = make_grid(preview);
  EXPECT_EQ(grid.tensor, "image");
  EXPECT_EQ(grid.drawn, std::vector<std::string>{"mask"});
  EXPECT_EQ(pixel(grid.picture, 15, 15), (std::array<int, 3>{147, 45, 70}));
  EXPECT_EQ(pixel(grid.picture, 14, 15), (std::array<int, 3>{62, 122, 70}));
  EXPECT_EQ(pixel(grid.picture, 13, 15), (std::array<int, 3>{0x40, 0x40, 0x40}));
  // Where there is nothing else, it is what is shown.
  preview.header.mutable_tensors()->DeleteSubrange(0, 2);
  preview.data.erase(preview.data.begin(), preview.data.begin() + 2);
  EXPECT_EQ(make_grid(preview).tensor, "mask");
}

TEST(ImageGrid, RefusesWhatIsNoImageAndWhatDoesNotFit) {
  EXPECT_THROW(make_grid(images("int32", {3, 8, 8}, 1, std::string(768, 'x'))), Failure);
  EXPECT_THROW(make_grid(images("uint8", {8, 8}, 1, std::string(64, 'x'))), Failure);
  EXPECT_THROW(make_grid(images("uint8", {3, 8, 1 << 20}, 1, "")), Failure);
  EXPECT_THROW(make_grid(images("uint8", {3, 8, 8}, 2, std::string(192, 'x'))), Failure);
  EXPECT_THROW(make_grid(images("uint8", {3, 8, 8}, 0, "")), Failure);
}

TEST(ImageGrid, WritesAPngThatReadsBackTheSame) {
  const control::TempDir dir;
  const std::string path = dir.path() + "/grid.png";
  const Grid grid = make_grid(images("uint8", {3, 16, 16}, 1, std::string(768, '\x30')));
  write_png(grid.picture, path);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> rgb(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, rgb.data(), 0, nullptr), 0);
  EXPECT_EQ(rgb, grid.picture.rgb);
  EXPECT_THROW(write_png(grid.picture, dir.path() + "/no/such/folder.png"), Failure);
}

}  // namespace
}  // namespace spdld::ctl
