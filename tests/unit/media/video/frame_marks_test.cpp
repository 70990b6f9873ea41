// SPDX-License-Identifier: Apache-2.0
#include "media/video/frame_marks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "media/jpeg_scan/jpeg_markers.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

// Three components, each with a scan of its own; a progressive one begins with a scan of all.
Bytes picture(bool progressive = false) {
  return make_jpeg({.width = 80, .height = 48, .progressive = progressive, .interleaved = false});
}

// Where the scan of this number begins.
std::size_t scan_at(const Bytes& image, int number) {
  std::size_t at = 2;
  for (; image[at] != std::byte{0xFF} || image[at + 1] != std::byte{0xDA} || number-- > 0;) ++at;
  return at;
}

// The image without its scans from number `scans` on.
Bytes cut_to(Bytes image, int scans) {
  image.resize(scan_at(image, scans));
  image.push_back(std::byte{0xFF});
  image.push_back(std::byte{0xD9});
  return image;
}

Bytes without_first_scan(Bytes image) {
  const auto at = [&](int number) {
    return image.begin() + static_cast<std::ptrdiff_t>(scan_at(image, number));
  };
  image.erase(at(0), at(1));
  return image;
}

// What FFmpeg makes of it.
AvPtr<AVFrame> decoded(AVCodecContext& context, const Bytes& image) {
  const AvPtr<AVPacket> packet(av_packet_alloc());
  AvPtr<AVFrame> frame(av_frame_alloc());
  EXPECT_EQ(av_new_packet(packet.get(), static_cast<int>(image.size())), 0);
  std::memcpy(packet->data, image.data(), image.size());
  EXPECT_EQ(avcodec_send_packet(&context, packet.get()), 0);
  EXPECT_EQ(avcodec_receive_frame(&context, frame.get()), 0);
  return frame;
}

TEST(FrameMarks, ShowWhichFramesADecoderHasNotFilled) {
  const std::uint64_t mark = kFrameMark;
  auto context = open_decoder("mjpeg");
  ASSERT_TRUE(context);
  mark_frames(**context, mark);
  for (int round = 0; round < 3; ++round) {  // frames are used again
    EXPECT_FALSE(has_marks(*decoded(**context, picture()), mark));
    EXPECT_TRUE(has_marks(*decoded(**context, cut_to(picture(), 1)), mark));
    EXPECT_TRUE(has_marks(*decoded(**context, cut_to(picture(), 2)), mark));
  }
}

TEST(FrameMarks, ShowAMissingFieldAndAMissingBlock) {
  const std::uint64_t mark = kFrameMark;
  const AvPtr<AVFrame> frame(av_frame_alloc());
  frame->width = 64;
  frame->height = 32;
  frame->format = AV_PIX_FMT_GRAY8;
  ASSERT_EQ(av_frame_get_buffer(frame.get(), 0), 0);
  const auto fill = [&](int first_row, int step, int column, int columns, bool marked) {
    for (int y = first_row; y < frame->height; y += step) {
      for (int x = column; x < column + columns; ++x)
        frame->data[0][y * frame->linesize[0] + x] =
            marked ? static_cast<std::uint8_t>(mark >> 8 * (x % 8)) : std::uint8_t{100};
    }
  };
  fill(0, 1, 0, 64, false);
  EXPECT_FALSE(has_marks(*frame, mark));
  for (const int field : {0, 1}) {
    fill(field, 2, 0, 64, true);
    EXPECT_TRUE(has_marks(*frame, mark));
    fill(0, 1, 0, 64, false);
  }
  for (int y = 24; y < 32; ++y) fill(y, 64, 56, 8, true);
  EXPECT_TRUE(has_marks(*frame, mark));
}

TEST(JpegMarkers, TellWhetherEachComponentHasAScan) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = picture(progressive);
    EXPECT_TRUE(has_all_components(whole));
    const Bytes part = without_first_scan(whole);
    EXPECT_FALSE(has_all_components(part));
    // Two fields, of which one lacks a component.
    for (const Bytes& first : {whole, part}) {
      Bytes both = first;
      both.insert(both.end(), whole.begin(), whole.end());
      EXPECT_EQ(has_all_components(both), first == whole);
    }
  }
  EXPECT_FALSE(has_all_components(cut_to(picture(), 1)));
  EXPECT_TRUE(has_all_components(make_jpeg({.kind = JpegRecipe::Kind::kGray})));
}

}  // namespace
}  // namespace spdld::media::test
