// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uid_t kAdmin = 999;
const TrustedUsers kTrusted({kAdmin}, false);

std::vector<std::string> ids(const std::string& text, uid_t caller) {
  const auto found = pipeline_ids(text, caller, kTrusted);
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
  EXPECT_THAT(ids("1001/train", kAdmin), ElementsAre("1001/train"));
  for (const auto& [uid, why] :
       {std::pair(1000, "uid 1000 is not in access.admins: the shared"),
        std::pair(0, "uid 0 (access.trust_root is false) is not in access.admins: the shared")}) {
    const auto refused = pipeline_ids("1001/train", static_cast<uid_t>(uid), kTrusted);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.error().message(), HasSubstr(why));
  }
}

TEST(PipelineIdTest, RefusesAUserThatTheMachineDoesNotKnow) {
  for (const std::string text : {"no-such-user-here/train", "-1/train", "4294967295/train"}) {
    const auto refused = pipeline_ids(text, kAdmin, kTrusted);
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
