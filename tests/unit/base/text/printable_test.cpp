// SPDX-License-Identifier: Apache-2.0
#include "base/text/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace spdld {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  const std::string text = "caf\xc3\xa9 \xe6\x9c\xac \xf0\x9f\x90\x88 \\ \"quoted\"";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesControlCharactersOfBothKinds) {
  EXPECT_EQ(printable("a\nb\rc\td"), R"(a\nb\rc\td)");
  EXPECT_EQ(printable(std::string("\x1b[0m\x7f\0", 6)), R"(\x1b[0m\x7f\x00)");
  EXPECT_EQ(printable("\xc2\x85\xc2\x9b"), R"(\xc2\x85\xc2\x9b)");
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");  // no-break space is the first that prints
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xff\x80"), R"(\xff\x80)");
  EXPECT_EQ(printable("\xc0\xaf"), R"(\xc0\xaf)");          // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), R"(\xed\xa0\x80)");  // a surrogate
  EXPECT_EQ(printable("\xe6\x9c"), R"(\xe6\x9c)");          // cut short
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)");
}

}  // namespace
}  // namespace spdld
