// SPDX-License-Identifier: Apache-2.0
#include "media/libraries.h"

#include <gmock/gmock.h>

namespace spdld::media::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LibrariesTest, AllCodecsHaveADecoderHere) {
  const std::string text = describe_libraries();
  EXPECT_THAT(text, HasSubstr("\ndecodes images: avif jpeg webp bmp gif png tiff\n"));
  EXPECT_THAT(text, HasSubstr("\ndecodes video: h264 hevc "));
  EXPECT_THAT(text, HasSubstr("\ndecodes sound: aac mp3 "));
  EXPECT_THAT(text, Not(HasSubstr("no decoder for")));
}

TEST(LibrariesTest, LibrariesTellTheirVersions) {
  for (const char* name : {"FFmpeg ", "libavif ", "libjpeg-turbo ", "libwebp ", "zlib "})
    EXPECT_THAT(describe_libraries(), ContainsRegex(std::string(name) + "[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace spdld::media::test
