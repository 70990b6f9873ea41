// SPDX-License-Identifier: Apache-2.0
#include "base/text/counted.h"

#include <gtest/gtest.h>

namespace spdld {
namespace {

TEST(Counted, SaysOneThingAsOneAndAnyOtherNumberAsMany) {
  EXPECT_EQ(counted(0, "item"), "0 items");
  EXPECT_EQ(counted(1, "item"), "1 item");
  EXPECT_EQ(counted(2, "item"), "2 items");
  EXPECT_EQ(counted(1, "class", "classes"), "1 class");
  EXPECT_EQ(counted(3, "class", "classes"), "3 classes");
}

}  // namespace
}  // namespace spdld
