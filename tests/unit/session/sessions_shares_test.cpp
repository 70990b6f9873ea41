// SPDX-License-Identifier: Apache-2.0
// How users share what answers them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "pipeline/class_texts.h"
#include "tests/support/fake_source.h"
#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

constexpr uid_t kOther = 100'002;

UserView user_of(const std::vector<UserView>& users, uid_t uid) {
  for (const UserView& user : users) {
    if (user.uid == uid) return user;
  }
  return {};
}

TEST(ClassTextsTest, MakesTheTextOfASourceOnceAndForgetsItWithTheSource) {
  pipeline::ClassTexts texts;
  std::shared_ptr<source::Source> source =
      std::make_shared<spdld::testing::FakeSource>(spdld::testing::FakeSource::numbered(3));
  std::string wanted;
  for (const std::string& name : source->classes()) wanted += name + '\0';
  const auto first = texts.of(source);
  EXPECT_EQ(*first, wanted);
  EXPECT_EQ(texts.of(source), first);
  std::weak_ptr<const std::string> kept = first;
  EXPECT_EQ(kept.use_count(), 2);
  texts.forget_gone();
  EXPECT_EQ(kept.use_count(), 2) << "the source is there";
  source.reset();
  texts.forget_gone();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(SessionsTest, AnswersEveryQueryOfAConsumerInTheOrderOfAsking) {
  const Rank rank = attach({.job = "run"});
  rank.attached();
  for (std::uint32_t serial = 1; serial <= 6; ++serial) {
    sessions_->query(*rank.connection,
                     {.kind = serial % 2 == 0 ? wire::QueryKind::kClasses : wire::QueryKind::kStats,
                      .serial = serial});
  }
  for (std::uint32_t serial = 1; serial <= 6; ++serial) {
    std::string text;
    const auto answer = rank.next<wire::BlobFrame>(wire::FrameType::kBlob, &text);
    EXPECT_EQ(answer.serial, serial);
    if (serial % 2 == 1) {
      EXPECT_NE(text.find(R"("job":"run")"), std::string::npos) << text;
    }
  }
}

TEST_F(SessionsTest, EndsAConsumerThatAsksWithoutWaitingForAnswers) {
  const Rank rank = attach({.job = "run"});
  rank.attached();
  const Rank patient = attach({.job = "other"});
  patient.attached();
  while (!rank.connection->ending())
    sessions_->query(*rank.connection, {.kind = wire::QueryKind::kStats, .serial = 1});
  EXPECT_NE(rank.refusal().find("8 queries of one consumer wait already"), std::string::npos);
  sessions_->query(*patient.connection, {.kind = wire::QueryKind::kStats, .serial = 7});
  EXPECT_EQ(patient.next<wire::BlobFrame>(wire::FrameType::kBlob).serial, 7U);
}

TEST_F(SessionsTest, ShowsUsersTheirOwnRowAndAdminsAll) {
  const Rank own = attach({.job = "run"});
  own.attached();
  const std::vector<UserView> of_other = service_->users({{.uid = kOther}, 0}, {self_.uid});
  ASSERT_EQ(of_other.size(), 1U);
  EXPECT_EQ(of_other[0].uid, kOther);
  EXPECT_EQ(of_other[0].jobs.used, 0U);
  EXPECT_EQ(of_other[0].listings.limit, 4U);

  const std::vector<UserView> all = service_->users({{.uid = 0}, 0}, {kOther});
  const UserView mine = user_of(all, self_.uid);
  EXPECT_EQ(mine.jobs.used, 1U);
  EXPECT_EQ(mine.pipelines.used, 1U);
  EXPECT_GT(mine.arena_bytes.used, 0U);
  EXPECT_EQ(user_of(all, kOther).uid, kOther);
  EXPECT_EQ(mine.jobs.limit, std::nullopt) << "the daemon's own user is not bound";
  EXPECT_EQ(user_of(all, kOther).jobs.limit, 1024U);
  EXPECT_EQ(user_of(all, kOther).pipelines.limit, 256U);
}

// One user may have two pipelines and two jobs.
class SharesTest : public SessionsTest {
 protected:
  void SetUp() override {
    pipelines_per_user_ = jobs_per_user_ = 2;
    SessionsTest::SetUp();
  }
  Result<PipelineView> apply_for(uid_t uid, const std::string& name, bool dry_run = false) {
    job::ApplyRequest request;
    request.yaml = yaml(name, "drop");
    request.file = "-";
    request.dry_run = dry_run;
    return service_->apply({{.uid = uid}, 0}, request, nullptr);
  }
  Result<job::JobView> create_for(uid_t uid, const std::string& job) {
    JobRequest request;
    request.job = job;
    request.pipeline = "p";
    return service_->create_job({{.uid = uid}, 0}, request, nullptr);
  }
  Rank attach_for(uid_t uid, const std::string& job, const std::string& text = {}) {
    Rank rank = connect(uid);
    delivery::AttachRequest request;
    request.pipeline = "p";
    request.job = job;
    request.pipeline_yaml = text;
    sessions_->attach(rank.connection, std::move(request));
    return rank;
  }
  UserView other() { return user_of(service_->users({{.uid = 0}, 0}, {kOther}), kOther); }
};

TEST_F(SharesTest, RefusesPipelinesBeyondWhatOneUserMayApply) {
  ASSERT_TRUE(apply_for(kOther, "a"));
  ASSERT_TRUE(apply_for(kOther, "b"));
  for (const bool dry_run : {true, false}) {
    const auto refused = apply_for(kOther, "c", dry_run);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_EQ(refused.error().message().substr(refused.error().message().find("user ")),
              "user 100002 has 2 pipelines, and limits.pipelines allows 2: delete some ('spdlctl "
              "delete pipeline NAME'), or have limits.pipelines raised");
  }
  EXPECT_FALSE(service_->pipeline(self_, "c"));
  EXPECT_TRUE(apply_for(kOther, "b")) << "it has this one";
  EXPECT_TRUE(apply_for(kOther + 1, "d")) << "another user has room";
  for (const char* name : {"e", "f", "g"}) EXPECT_TRUE(apply_for(self_.uid, name));
  EXPECT_EQ(other().pipelines.used, 2U);
  EXPECT_EQ(other().pipelines.limit, 2U);
  ASSERT_TRUE(service_->delete_pipeline({{.uid = kOther}, 0}, "a").ok());
  EXPECT_TRUE(apply_for(kOther, "c"));
}

TEST_F(SharesTest, RefusesTablesBeyondTheMemoryThatOneUserMayHave) {
  stop();
  listing_memory_ = std::make_shared<ListingMemory>(std::uint64_t{4} << 20, TrustedUsers());
  start();
  const auto apply_table = [this](uid_t uid, const std::string& name) {
    std::string rows = "uri,cap\n";
    for (int i = 0; i < 3000; ++i) rows += "0.bin," + std::string(1000, 'x') + "\n";
    files_.file(name + ".csv", rows);
    std::filesystem::permissions(files_.path(name + ".csv"), std::filesystem::perms(0644));
    job::ApplyRequest request;
    request.yaml = "pipeline: " + name +
                   "\nsource:\n  table: {file: " + files_.path(name + ".csv") +
                   ", root: " + files_.path("data") +
                   ", uri: uri, values: {cap: cap}}\nstages:\n  - fetch\n"
                   "batch: {size: 2, max_bytes: 4KiB, last: drop}\n";
    request.file = "-";
    return service_->apply({{.uid = uid}, 0}, request, nullptr);
  };
  const auto first = apply_table(kOther, "a");
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_GT(other().listing_bytes.used, 3'000'000U);
  EXPECT_EQ(other().listing_bytes.limit, std::uint64_t{4} << 20);
  const auto refused = apply_table(kOther, "b");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("limits.listing_memory allows 4.0 MiB: ask for fewer"),
            std::string::npos)
      << refused.error().message();
  EXPECT_TRUE(apply_table(kOther + 1, "c")) << "another user has room";
  ASSERT_TRUE(service_->delete_pipeline({{.uid = kOther}, 0}, "a").ok());
  EXPECT_EQ(other().listing_bytes.used, 0U);
  EXPECT_TRUE(apply_table(kOther, "b"));
}

TEST_F(SharesTest, CountsTheWindowsOfAnOrderForEachJobThatHasOne) {
  stop();
  jobs_per_user_ = 10;
  listing_memory_ = std::make_shared<ListingMemory>(std::uint64_t{2} << 20, TrustedUsers());
  start();
  std::string rows = "uri,length\n";
  for (int i = 0; i < 20'000; ++i) rows += "0.bin," + std::to_string(i) + "\n";
  files_.file("a.csv", rows);
  std::filesystem::permissions(files_.path("a.csv"), std::filesystem::perms(0644));
  job::ApplyRequest request;
  request.yaml = "pipeline: a\nsource:\n  table: {file: " + files_.path("a.csv") +
                 ", root: " + files_.path("data") +
                 ", uri: uri, values: {length: length}}\nstages:\n  - fetch\nshuffle: {global: "
                 "{bucket: {by: length, window: 1048576, run: 8}}}\n"
                 "batch: {size: 2, max_bytes: 4KiB, last: drop}\n";
  request.file = "-";
  const auto applied = service_->apply({{.uid = kOther}, 0}, request, nullptr);
  ASSERT_TRUE(applied) << applied.error().message();
  const std::uint64_t listed = other().listing_bytes.used;
  const auto create = [this](const std::string& job) {
    JobRequest wanted;
    wanted.job = job;
    wanted.pipeline = "a";
    return service_->create_job({{.uid = kOther}, 0}, wanted, nullptr);
  };
  const auto first = create("first");
  ASSERT_TRUE(first) << first.error().message();
  const std::uint64_t windows = other().listing_bytes.used - listed;
  EXPECT_GT(windows, 4 * 20'000 * sizeof(std::uint32_t));
  ASSERT_TRUE(create("second"));
  EXPECT_EQ(other().listing_bytes.used, listed + 2 * windows);
  ASSERT_TRUE(create("third"));
  const auto fourth = create("fourth");
  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code(), Code::kResourceExhausted);
  EXPECT_NE(fourth.error().message().find("the windows of shuffle.global.bucket, which take less "
                                          "with a smaller 'window': its items would take"),
            std::string::npos)
      << fourth.error().message();
}

TEST_F(SharesTest, CountsPipelinesOfLoadersOnlyOnceTheyAreApplied) {
  for (const char* name : {"a", "b", "c"}) {
    const Rank rank = attach_for(kOther, {}, yaml(name, "drop"));
    rank.attached();
    hang_up(rank);
  }
  EXPECT_EQ(other().pipelines.used, 0U);
  stop();
  start();
  service_->restore();
  EXPECT_EQ(other().pipelines.used, 0U) << "a restart knows who brought them";
  ASSERT_TRUE(apply_for(kOther, "a"));
  ASSERT_TRUE(apply_for(kOther, "b"));
  EXPECT_EQ(other().pipelines.used, 2U);
  EXPECT_FALSE(apply_for(kOther, "c"));
}

TEST_F(SharesTest, LetsAPipelineOfALoaderGiveWayOnceNoJobRunsIt) {
  std::vector<Rank> ranks;
  for (const char* name : {"a", "b"}) {
    ranks.push_back(attach_for(kOther, {}, yaml(name, "drop")));
    ranks.back().attached();
  }
  EXPECT_NE(attach_for(kOther, {}, yaml("c", "drop"))
                .refusal()
                .find("user 100002 reads 2 pipelines that its loaders brought, and "
                      "limits.pipelines allows 2: let some end"),
            std::string::npos);
  hang_up(ranks[1]);
  attach_for(kOther, {}, yaml("c", "drop")).attached();
  const job::Caller other{{.uid = kOther}, 0};
  EXPECT_FALSE(service_->pipeline(other, "b"));
  EXPECT_TRUE(service_->pipeline(other, "a"));
  sessions_->keeper().keep();
  EXPECT_EQ(store_->pipelines()->size(), 3U) << "with that of the fixture";
}

TEST_F(SharesTest, KeepsPipelinesThatWereAppliedBeforeTheLimitWasLowered) {
  ASSERT_TRUE(apply_for(kOther, "a"));
  ASSERT_TRUE(apply_for(kOther, "b"));
  stop();
  pipelines_per_user_ = 1;
  start();
  service_->restore();
  EXPECT_EQ(other().pipelines.used, 2U);
  EXPECT_TRUE(apply_for(kOther, "b"));
  EXPECT_FALSE(apply_for(kOther, "c"));
}

TEST_F(SharesTest, RefusesJobsBeyondWhatOneUserMayHave) {
  ASSERT_TRUE(create_for(kOther, "a"));
  const Rank running = attach_for(kOther, {});
  running.attached();
  const std::string why =
      "user 100002 has 2 jobs, declared or running, and limits.jobs allows 2: delete some "
      "('spdlctl "
      "delete job NAME'), let some end, or have limits.jobs raised";
  const auto refused = create_for(kOther, "b");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message(), why);
  EXPECT_NE(attach_for(kOther, "b").refusal().find(why), std::string::npos);
  EXPECT_EQ(other().jobs.used, 2U);
  EXPECT_EQ(other().jobs.limit, 2U);

  attach_for(kOther, "a").attached();  // it has this one
  for (const char* job : {"c", "d", "e"}) EXPECT_TRUE(create_for(self_.uid, job));
  EXPECT_TRUE(create_for(kOther + 1, "a")) << "another user has room";
  hang_up(running);
  EXPECT_TRUE(create_for(kOther, "b"));
}

TEST_F(SharesTest, ForgetsJobsThatEndedFirstBeyondWhatOneUserMayHave) {
  for (const char* job : {"a", "b", "c", "d"}) {
    const Rank rank = attach_for(kOther, job);
    rank.attached();
    hang_up(rank);
    sessions_->keeper().keep();
  }
  const auto known = [&](uid_t uid) {
    const auto ended = store_->ended_jobs(uid);
    std::string names;
    for (const store::StoredEnd& end : *ended) names += end.view.job;
    return names;
  };
  EXPECT_EQ(known(kOther), "dc");
  for (const char* job : {"a", "b", "c"}) {
    const Rank rank = attach_for(self_.uid, job);
    rank.attached();
    hang_up(rank);
  }
  sessions_->keeper().keep();
  EXPECT_EQ(known(self_.uid).size(), 3U) << "trusted users are not bound";
}

TEST_F(SharesTest, LetsRanksBackToTheJobThatTheyHadWhenTheDaemonDied) {
  ASSERT_TRUE(create_for(kOther, "a"));
  attach_for(kOther, "run").batch();
  sessions_->suspend();
  stop();
  jobs_per_user_ = 1;
  start();
  service_->restore();
  EXPECT_EQ(other().jobs.used, 1U);
  Rank rank = connect(kOther);
  delivery::AttachRequest request;
  request.pipeline = "p";
  request.job = "run";
  request.reconnect = true;
  request.start = wire::StartMode::kCursor;
  sessions_->attach(rank.connection, std::move(request));
  rank.attached();
  EXPECT_NE(attach_for(kOther, "new").refusal().find("limits.jobs"), std::string::npos);
}

}  // namespace
}  // namespace spdld::session
