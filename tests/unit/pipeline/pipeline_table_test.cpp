// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_source.h"

namespace spdld::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kAdmin = 999;
constexpr uid_t kOwner = 1000;
const TrustedUsers kTrusted({kAdmin}, false);

Result<std::vector<std::string>> asked(const std::string& text, uid_t caller) {
  return PipelineTable(kTrusted, 1).ids(caller, text);
}

std::vector<std::string> ids(const std::string& text, uid_t caller) {
  const auto found = asked(text, caller);
  EXPECT_TRUE(found) << found.error().message();
  return found.value_or(std::vector<std::string>());
}

// A pipeline of kOwner's.
PipelinePtr made(const std::string& name, const std::string& text) {
  auto plan = std::make_shared<engine::Plan>();
  plan->spec.name = name;
  plan->spec.canonical_text = text;
  auto version = std::make_shared<PipelineVersion>();
  version->owner = {.uid = kOwner, .shared = false};
  version->plan = std::move(plan);
  version->source = std::make_shared<spdld::testing::FakeSource>(std::vector<std::string>{"item"});
  version->content_digest = text;
  return version;
}

bool any(const PipelineVersion&) { return true; }

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
    const auto refused = asked("1001/train", static_cast<uid_t>(uid));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.error().message(), HasSubstr(why));
  }
}

TEST(PipelineIdTest, RefusesAUserThatTheMachineDoesNotKnow) {
  for (const std::string text : {"no-such-user-here/train", "-1/train", "4294967295/train"}) {
    const auto refused = asked(text, kAdmin);
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

TEST(PipelineTableTest, NumbersAnotherContentAndKeepsTheVersionOfTheSame) {
  PipelineTable table(kTrusted, 8);
  EXPECT_EQ((*table.put(kOwner, made("train", "a")))->version, 1U);
  EXPECT_EQ((*table.put(kOwner, made("train", "a")))->version, 1U);
  EXPECT_EQ((*table.numbered(kOwner, made("train", "b")))->version, 2U);
  EXPECT_EQ((*table.put(kOwner, made("train", "b")))->version, 2U);
}

TEST(PipelineTableTest, ALostPipelineIsNamedUntilItIsAppliedAgain) {
  PipelineTable table(kTrusted, 8);
  table.put_lost("1000/train", kOwner, 4, {Code::kDataLoss, "its items are others"});
  EXPECT_EQ(table.name_for(kOwner, "train"), "/train");
  EXPECT_EQ(table.named(kOwner, "train").error().message(), "its items are others");
  EXPECT_EQ((*table.put(kOwner, made("train", "a")))->version, 5U);
  EXPECT_TRUE(table.named(kOwner, "train"));
}

TEST(PipelineTableTest, SaysWhyTheFileOfAnAbsentPipelineWasRefused) {
  PipelineTable table(kTrusted, 8);
  const auto why = [&](const std::string& name) {
    return table.named(kOwner, name).error().message();
  };
  table.put_refused("/etc/train.yaml", "train", "/etc/train.yaml: it has a slip");
  for (const char* name : {"train", "/train"})
    EXPECT_THAT(why(name), HasSubstr("': its file was refused: /etc/train.yaml: it has a slip; "));
  EXPECT_THAT(why("val"), Not(HasSubstr("refused")));
  table.put_refused("/etc/val.yaml", "", "/etc/val.yaml: no such file");
  EXPECT_THAT(why("val"), HasSubstr("'; a file that does not say its pipeline's name was refused: "
                                    "/etc/val.yaml: no such file; "));
  EXPECT_THAT(why("train"), Not(HasSubstr("val.yaml")));
  table.accept("/etc/train.yaml");
  table.accept("/etc/val.yaml");
  for (const char* name : {"train", "val"}) EXPECT_THAT(why(name), Not(HasSubstr("refused")));
}

TEST(PipelineTableTest, LetsAUserApplyOnlySoManyPipelines) {
  PipelineTable table(kTrusted, 1);
  ASSERT_TRUE(table.put(kOwner, made("train", "a")));
  EXPECT_TRUE(table.numbered(kOwner, made("train", "b"))) << "it has that one";
  EXPECT_EQ(table.numbered(kOwner, made("test", "a")).error().code(), Code::kResourceExhausted);
  ASSERT_TRUE(table.remove(kOwner, "1000/train").ok());
  EXPECT_TRUE(table.numbered(kOwner, made("test", "a")));
}

TEST(PipelineTableTest, ClosesOnlyPipelinesThatNobodyHas) {
  PipelineTable table(kTrusted, 8);
  auto had = *table.put(kOwner, made("train", "a"));
  auto source = made("test", "a")->source;
  auto read = std::make_shared<PipelineVersion>(*made("test", "a"));
  read->source = source;
  ASSERT_TRUE(table.put(kOwner, read));
  read = nullptr;
  EXPECT_EQ(table.close(any), 0U);
  source = nullptr;
  EXPECT_EQ(table.close(any), 1U);
  EXPECT_TRUE(table.find("1000/test")->closed);
  EXPECT_FALSE(table.find("1000/train")->closed);
  had = nullptr;
  EXPECT_EQ(table.close(any), 1U);
}

TEST(PipelineTableTest, FindsThatAClosedPipelineWasOpened) {
  PipelineTable table(kTrusted, 8);
  ASSERT_TRUE(table.put(kOwner, made("train", "a")));
  ASSERT_EQ(table.close(any), 1U);
  const PipelinePtr closed = table.find("1000/train");
  EXPECT_EQ(table.find_open(closed), nullptr);
  auto open = std::make_shared<PipelineVersion>(*closed);
  open->closed = false;
  table.put_open(closed, open);
  EXPECT_EQ(table.find_open(closed), open);
  table.put_open(closed, closed);
  EXPECT_EQ(table.find_open(closed), open) << "it has not been in that place since";
}

TEST(PipelineTableTest, APipelineIsUsedUntilNobodyAsksForIt) {
  PipelineTable table(kTrusted, 8);
  ASSERT_TRUE(table.put(kOwner, made("train", "a")));
  EXPECT_THAT(table.take_used(), ElementsAre("1000/train")) << "it was put just now";
  EXPECT_THAT(table.take_used(), ElementsAre());
  (void)table.find_open(table.find("1000/train"));
  EXPECT_THAT(table.take_used(), ElementsAre("1000/train"));
}

}  // namespace
}  // namespace spdld::pipeline
