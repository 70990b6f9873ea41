// SPDX-License-Identifier: Apache-2.0
#include "base/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace spdld {
namespace {

TEST(Utf8, LeavesWellFormedTextAlone) {
  for (const std::string text : {"", "plain", "größe", "日本", "\U0001F600", "a\nb\tc"})
    EXPECT_EQ(utf8(text), text);
}

TEST(Utf8, WritesOtherBytesAsEscapes) {
  EXPECT_EQ(utf8("caf\xe9.jpg"), "caf\\xe9.jpg");
  EXPECT_EQ(utf8("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(utf8("cut \xe6\x97"), "cut \\xe6\\x97");
  EXPECT_EQ(utf8("\xc0\x80"), "\\xc0\\x80") << "longer than need be";
  EXPECT_EQ(utf8("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(utf8("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
}

TEST(Utf8, IsCutBeforeACharacter) {
  EXPECT_EQ(cut("größe", 6), "größ");
  EXPECT_EQ(cut("größe", 5), "grö");
  EXPECT_EQ(cut("größe", 4), "grö");
  EXPECT_EQ(cut("größe", 3), "gr");
  EXPECT_EQ(cut("größe", 99), "größe");
  EXPECT_EQ(cut("\x80\x80\x80", 2), "") << "no character begins here";
}

}  // namespace
}  // namespace spdld
