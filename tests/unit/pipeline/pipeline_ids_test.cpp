// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ids(const std::string& text, uid_t caller, bool is_admin = false) {
  const auto found = pipeline_ids(text, caller, is_admin);
  EXPECT_TRUE(found) << found.error().message();
  return found.value_or(std::vector<std::string>());
}

TEST(PipelineIdTest, MeansOnesOwnPipelineBeforeTheSharedOne) {
  EXPECT_THAT(ids("train", 1000), ElementsAre("1000/train", "train"));
}

TEST(PipelineIdTest, MeansTheSharedOneWhereANameBeginsWithASlash) {
  EXPECT_THAT(ids("/train", 1000), ElementsAre("train"));
}

TEST(PipelineIdTest, TakesAUserByNumberOrByName) {
  EXPECT_THAT(ids("1000/train", 1000), ElementsAre("1000/train"));
  EXPECT_THAT(ids("root/train", 0), ElementsAre("0/train"));
}

TEST(PipelineIdTest, LetsOnlyAdminsNameOtherUsersPipelines) {
  EXPECT_THAT(ids("1001/train", 1000, true), ElementsAre("1001/train"));
  const auto refused = pipeline_ids("1001/train", 1000, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("uid 1000 is not in access.admins"));
}

TEST(PipelineIdTest, RefusesAUserThatTheMachineDoesNotKnow) {
  for (const std::string text : {"no-such-user-here/train", "-1/train", "4294967295/train"}) {
    const auto refused = pipeline_ids(text, 0, true);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code(), Code::kNotFound);
    EXPECT_THAT(refused.error().message(), HasSubstr("there is no such user on this machine"));
  }
}

TEST(PipelineIdTest, IsReadBackFromARecord) {
  for (const job::PipelineOwner& owner : {job::PipelineOwner{.uid = 7, .shared = true},
                                          job::PipelineOwner{.uid = 7, .shared = false}})
    EXPECT_EQ(job::owner_of(job::pipeline_id(owner, "train"), 7), owner);
}

}  // namespace
}  // namespace spdld::pipeline
