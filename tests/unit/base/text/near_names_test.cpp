// SPDX-License-Identifier: Apache-2.0
#include "base/text/near_names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spdld {
namespace {

TEST(NearNames, AreSuggestedOnlyWhereTheyAreNear) {
  const std::vector<std::string> known = {"shuffle", "size", "stages"};
  EXPECT_EQ(did_you_mean("shufle", known), "; did you mean 'shuffle'?");
  EXPECT_EQ(did_you_mean("szie", known), "; did you mean 'size'?");
  EXPECT_EQ(did_you_mean("stage", known), "; did you mean 'stages'?");
  EXPECT_EQ(did_you_mean("banana", known), "");
  EXPECT_EQ(did_you_mean("gpu", {"cpu", "cuda"}), "");
  EXPECT_EQ(did_you_mean("cpi", {"cpu", "cuda"}), "; did you mean 'cpu'?");
  EXPECT_EQ(did_you_mean(std::string(100'000, 'x'), known), "");
}

TEST(NearNames, AreTakenForASlipOnlyWhatDiffersByALetterOrTwo) {
  const std::vector<std::string> known = {"random_horizontal_flip", "resize"};
  EXPECT_EQ(did_you_slip("random_horizntal_flop", known),
            "; did you mean 'random_horizontal_flip'?");
  EXPECT_EQ(did_you_slip("random_vertical_flip", known), "");
  EXPECT_EQ(did_you_slip("resise", known), "; did you mean 'resize'?");
  EXPECT_EQ(did_you_slip("size", known), "");
}

TEST(NearNames, AreAllListedWhereNoneIsNear) {
  EXPECT_EQ(hint("banana", {"size", "last"}), "; there are: size, last");
  EXPECT_EQ(hint("banana", {}), "; there are none");
}

}  // namespace
}  // namespace spdld
