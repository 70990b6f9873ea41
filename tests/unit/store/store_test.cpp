// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/failure_log.h"
#include "store/stored_json.h"
#include "tests/support/scratch_dir.h"

namespace spdld::store {
namespace {

using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() {
    auto store = Store::open(directory_);
    EXPECT_TRUE(store) << store.error().message();
    return store ? std::move(*store) : nullptr;
  }

  test::ScratchDir scratch_;
  const std::string directory_ = scratch_.path();
};

TEST_F(StoreTest, KeepsPipelinesAcrossARestart) {
  StoredPipeline pipeline{.id = "train", .version = 3, .owner = 1000, .request = {}};
  pipeline.request.yaml = "pipeline: train\n# \"quotes\" and ünïcode\n";
  pipeline.request.file = "/etc/spdld/train.yaml";
  pipeline.request.vars = {{"size", "224"}};
  pipeline.request.env = {{"HOME", "/root"}};
  pipeline.request.reader = Credentials{.uid = 1000, .gid = 1001, .groups = {27, 100}};
  pipeline.request.bucket_run = 128;
  pipeline.request.image_sizes = {{"image", {32, 24}}};
  ASSERT_TRUE(open()->put_pipeline(pipeline, {}).ok());
  const auto kept = open()->pipelines();
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->front().version, 3U);
  EXPECT_EQ(kept->front().owner, 1000U);
  EXPECT_EQ(kept->front().request.yaml, pipeline.request.yaml);
  EXPECT_EQ(kept->front().request.vars, pipeline.request.vars);
  EXPECT_EQ(kept->front().request.env, pipeline.request.env);
  EXPECT_EQ(kept->front().request.reader, pipeline.request.reader);
  EXPECT_EQ(kept->front().request.bucket_run, pipeline.request.bucket_run);
  EXPECT_EQ(kept->front().request.image_sizes, pipeline.request.image_sizes);
}

TEST(StoredJsonTest, ARecordWithoutAReaderIsReadAsOneThatNamesNone) {
  const auto request =
      parse_request(R"({"yaml": "pipeline: p", "file": "-", "vars": {}, "env": {}})");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->reader, std::nullopt);
  EXPECT_EQ(request->bucket_run, std::nullopt);
}

TEST(StoredJsonTest, ARecordWhoseReaderMakesNoSenseIsNone) {
  const std::string rest = R"("yaml": "pipeline: p", "file": "-", "vars": {}, "env": {})";
  for (const char* reader : {"7", R"({"uid": 7})", R"({"uid": "x", "gid": 1, "groups": []})",
                             R"({"uid": 7, "gid": 1, "groups": 3})"})
    EXPECT_FALSE(parse_request("{" + rest + ", \"reader\": " + reader + "}")) << reader;
}

// It has run one version from the first step on.
StoredJob new_job(uid_t uid, const std::string& name) {
  StoredJob job;
  job.key = {.uid = uid, .job = name, .pipeline = "train"};
  const job::VersionFacts facts{.items = 100, .tail = Tail::kDrop, .batch = 5, .order = "A"};
  job.schedule = job::Schedule(7, facts, {.shards = 2}).record();
  job.phases[0].version = 1;
  return job;
}

StoredJob ended_job(uid_t uid, const std::string& name, std::uint64_t unix_ms) {
  StoredJob job = new_job(uid, name);
  job.ended = true;
  job.kept_unix_ms = unix_ms;
  StoredEnd& end = job.end.emplace();
  end.end = job::EndView{.unix_ms = unix_ms, .how = "failed: caf\xe9", .at = {3, 7}};
  end.view.cpu_s = 12.5;
  end.view.rows = 640;
  job::StageView& stage = end.stages.emplace_back();
  stage.stage = "fetch";
  stage.tasks = 9;
  stage.jpeg = {.indexed = 1, .from_begin = 2, .by_libjpeg = 3, .by_coefficients = 4, .recoded = 5};
  return job;
}

engine::LoggedFailure kept_failure(std::uint64_t number) {
  return {.number = number,
          .facts = {.unix_ms = 1000 + number,
                    .sample = engine::FailedSample{.epoch = 1,
                                                   .position = 2,
                                                   .item = number,
                                                   .uri = "a",
                                                   .replaced_by = std::nullopt},
                    .code = "DATA_LOSS",
                    .message = "truncated",
                    .ended_stream = false}};
}

TEST_F(StoreTest, KeepsHowEachJobEndedTheLastTime) {
  ASSERT_TRUE(open()->put_jobs({ended_job(7, "a", 10), ended_job(8, "b", 20)}).ok());
  ASSERT_TRUE(open()->put_jobs({ended_job(7, "a", 30)}).ok());
  const auto ends = open()->ended_jobs(std::nullopt);
  ASSERT_TRUE(ends) << ends.error().message();
  ASSERT_EQ(ends->size(), 2U);
  EXPECT_EQ(ends->front().view.job, "a");
  EXPECT_EQ(ends->front().view.owner, 7U);
  EXPECT_EQ(ends->front().end.unix_ms, 30U);
  EXPECT_EQ(ends->front().end.how, "failed: caf\xef\xbf\xbd");
  EXPECT_EQ(ends->front().end.at, (job::StepAt{3, 7}));
  EXPECT_EQ(ends->front().view.rows, 640U);
  ASSERT_EQ(ends->front().stages.size(), 1U);
  EXPECT_EQ(ends->front().stages[0].job, "a");
  EXPECT_EQ(ends->front().stages[0].tasks, 9U);
  EXPECT_EQ(
      ends->front().stages[0].jpeg,
      (JpegImages{
          .indexed = 1, .from_begin = 2, .by_libjpeg = 3, .by_coefficients = 4, .recoded = 5}));
  ASSERT_EQ(open()->ended_jobs(8)->size(), 1U);
  EXPECT_EQ(open()->ended_jobs(8)->front().view.job, "b");
}

TEST_F(StoreTest, AddsFailuresToThoseThatAreKeptAndDropsTheOldest) {
  StoredJob job = ended_job(7, "a", 10);
  job.failures = {kept_failure(1), kept_failure(2)};
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  job.failures = {kept_failure(2), kept_failure(3)};  // told twice
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  auto failures = open()->failures(7);
  ASSERT_TRUE(failures) << failures.error().message();
  ASSERT_EQ(failures->size(), 3U);
  EXPECT_EQ(failures->front().failure, kept_failure(3)) << "the latest comes first";
  EXPECT_EQ(*open()->last_failure(job.key), 3U);
  EXPECT_TRUE(open()->failures(8)->empty());

  job.failures = {kept_failure(engine::FailureLog::kKept + 2)};
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  failures = open()->failures(std::nullopt);
  ASSERT_EQ(failures->size(), 2U);
  EXPECT_EQ(failures->back().failure.number, 3U);
}

TEST_F(StoreTest, GivesTheLatestFailuresOfManyJobsAndThoseOfOneByItsName) {
  const auto store = open();
  const std::size_t jobs = Store::kMostFailures / engine::FailureLog::kKept + 2;
  for (std::size_t number = 0; number < jobs; ++number) {
    StoredJob job = ended_job(7, "job-" + std::to_string(number), number);
    for (std::uint64_t i = 1; i <= engine::FailureLog::kKept; ++i)
      job.failures.push_back(kept_failure(i));
    ASSERT_TRUE(store->put_jobs({job}).ok());
  }
  const auto latest = store->failures(7);
  ASSERT_EQ(latest->size(), Store::kMostFailures);
  EXPECT_EQ(latest->front().key.job, "job-" + std::to_string(jobs - 1));
  EXPECT_EQ(latest->back().key.job, "job-2");
  const auto first = store->failures(7, "job-0");
  ASSERT_EQ(first->size(), engine::FailureLog::kKept);
  EXPECT_EQ(first->back().failure, kept_failure(1));
  EXPECT_TRUE(store->failures(8, "job-0")->empty());
}

TEST_F(StoreTest, ForgetsEndsAndFailuresWithTheirJob) {
  for (const bool removed : {true, false}) {
    StoredJob job = ended_job(7, "a", 10);
    job.failures = {kept_failure(1)};
    ASSERT_TRUE(open()->put_jobs({job}).ok());
    ASSERT_TRUE((removed ? open()->remove_job(job.key) : open()->forget_before(11)).ok());
    EXPECT_TRUE(open()->ended_jobs(std::nullopt)->empty());
    EXPECT_TRUE(open()->failures(std::nullopt)->empty());
    EXPECT_EQ(*open()->last_failure(job.key), 0U);
  }
}

TEST_F(StoreTest, ForgetsWhatAUserHasEndedBeyondTheShareOldestFirst) {
  std::vector<StoredJob> jobs;
  for (std::uint64_t i = 0; i < 6; ++i)
    jobs.push_back(ended_job(7, std::string(1, static_cast<char>('a' + i)), 10 + i));
  jobs[1].declared = true;
  jobs.push_back(ended_job(8, "a", 1));
  const auto store = open();
  ASSERT_TRUE(store->put_jobs(jobs).ok());
  EXPECT_EQ(*store->forget_ended(7, 2, {jobs[2].key}), 2U);
  const auto ended = store->ended_jobs(7);
  std::string left;
  for (const StoredEnd& end : *ended) left += end.view.job;
  EXPECT_EQ(left, "fecb") << "'c' runs again, and 'b' is declared";
  EXPECT_FALSE(*store->job(jobs[0].key));
  EXPECT_TRUE(*store->job(jobs[2].key));
  EXPECT_EQ(store->ended_jobs(8)->size(), 1U);
  EXPECT_EQ(*store->forget_ended(7, 2, {jobs[2].key}), 0U);
}

TEST_F(StoreTest, RefusesWhatIsNotUtf8) {
  StoredPipeline pipeline{.id = "train", .version = 1, .owner = 0, .request = {}};
  pipeline.request.env = {{"NAME", "\xff"}};
  EXPECT_THAT(open()->put_pipeline(pipeline, {}).message(), HasSubstr("not UTF-8"));
  StoredJob job = new_job(7, "run-1");
  job.declared = true;
  job.vars = {{"root", "\xff"}};
  EXPECT_THAT(open()->put_jobs({job}).message(), HasSubstr("not UTF-8"));
  EXPECT_TRUE(open()->declared_jobs()->empty());
}

// What is read of a job that was kept.
class StoreJobTest : public StoreTest {
 protected:
  StoredJob kept(const StoredJob& job) {
    EXPECT_TRUE(open()->put_jobs({job}).ok());
    auto kept = open()->job(job.key);
    EXPECT_TRUE(kept) << kept.error().message();
    return kept && *kept ? **kept : StoredJob();
  }
};

TEST_F(StoreJobTest, KeepsWhatAJobWasDeclaredWith) {
  StoredJob job = new_job(7, "run-1");
  job.declared = true;
  job.incarnation = 3;
  job.replicas = 4;
  job.batch_size = 32;
  job.vars = {{"size", "224"}};
  job.epochs = job::EpochMode::kManual;
  job.max_epochs = 90;
  job.seed = 0xffffffffffffffff;
  job.open_epochs = 4;
  job.limits = {.weight = 2.5, .cpus = 3, .bytes = std::nullopt};
  job.start = {2, 17};
  job.phases[1].version = 2;
  job.phases[1].request.yaml = "pipeline: train\n";
  job.phases[1].batch_size = 48;
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  const auto kept = open()->declared_jobs();
  ASSERT_TRUE(kept) << kept.error().message();
  ASSERT_EQ(kept->size(), 1U);
  const StoredJob& same = kept->front();
  EXPECT_EQ(same.key, job.key);
  EXPECT_EQ(same.incarnation, 3U);
  EXPECT_EQ(same.replicas, 4U);
  EXPECT_EQ(same.batch_size, job.batch_size);
  EXPECT_EQ(same.vars, job.vars);
  EXPECT_EQ(same.epochs, job::EpochMode::kManual);
  EXPECT_EQ(same.max_epochs, 90U);
  EXPECT_EQ(same.seed, job.seed);
  EXPECT_EQ(same.open_epochs, 4U);
  EXPECT_EQ(same.limits, job.limits);
  EXPECT_EQ(same.start, job.start);
  ASSERT_EQ(same.phases.size(), 2U);
  EXPECT_EQ(same.phases.at(1).version, 2U);
  EXPECT_EQ(same.phases.at(1).request.yaml, "pipeline: train\n");
  EXPECT_EQ(same.phases.at(1).batch_size, job.phases[1].batch_size);
  EXPECT_EQ(same.schedule, job.schedule);
}

TEST_F(StoreJobTest, KeepsMembersAsTheyWereAndTheReservedTurn) {
  StoredJob job = new_job(7, "run-1");
  using Presence = job::MemberRecord::Presence;
  for (const Presence presence :
       {Presence::kHere, Presence::kExpected, Presence::kAway, Presence::kDone})
    job.members.push_back({.member = {2, static_cast<std::uint32_t>(job.members.size())},
                           .presence = presence,
                           .progress = {.sent = 29,
                                        .next = {3, 7},
                                        .released = 27,
                                        .at = {3, 5},
                                        .position = 640,
                                        .order = "A"}});
  job.reserved = 285;
  job.reached = 300;
  job.done = {{0, 1}, {2, 3}};
  const StoredJob same = kept(job);
  EXPECT_EQ(same.members, job.members);
  EXPECT_EQ(same.reserved, 285U);
  EXPECT_EQ(same.reached, 300U);
  EXPECT_EQ(same.done, job.done);
}

TEST_F(StoreJobTest, KeepsEveryKindOfEdit) {
  const job::OwnSeek entry{.turn = 5, .to = {2, 4}, .position = 40, .version = 0, .skip = 3};
  for (const decltype(job::Edit::change)& change : std::vector<decltype(job::Edit::change)>{
           job::Edit::Seek{{3, 2}}, job::Edit::Skip{.epoch = 1, .steps = 4}, job::Edit::Resize{3},
           job::Edit::Resize{.shards = 3, .entry = entry}, job::Edit::Swap{0}}) {
    StoredJob job = new_job(7, "run-1");
    job.schedule.edits = {{.turn = 5, .change = change}, {.turn = 5, .change = change}};
    EXPECT_EQ(kept(job).schedule, job.schedule) << "kind " << change.index();
  }
}

TEST_F(StoreJobTest, KeepsAPlannedSwapWithAPlaceOrForTheNextEpoch) {
  for (const std::optional<job::StepAt>& place :
       {std::optional<job::StepAt>(), std::optional(job::StepAt{}),
        std::optional(job::StepAt{4, 2})}) {
    StoredJob job = new_job(7, "run-1");
    job.schedule.planned = job::PlannedSwap{.from = 9, .place = place, .version = 0};
    EXPECT_EQ(kept(job).schedule, job.schedule);
  }
}

TEST_F(StoreJobTest, KeepsVersionsAndBranchesOfASchedule) {
  StoredJob job = new_job(7, "run-1");
  job::ScheduleRecord& schedule = job.schedule;
  schedule.run = 0xffffffffffffffff;
  schedule.versions[1] = {.items = 100, .tail = Tail::kPad, .batch = 2, .order = "A"};
  schedule.versions[12] = {.items = 60, .tail = Tail::kKeep, .batch = 10, .order = "B", .group = 5};
  schedule.versions_made = 13;
  schedule.earlier = {1, 12};
  schedule.base = {
      .epoch = 3, .step = 2, .position = 20, .shards = 2, .version = 1, .next_version = 12};
  schedule.base_turn = 32;
  schedule.oldest = 33;
  schedule.partings = {{.branch = 2, .turn = 40}, {.branch = 5, .turn = 41}};
  job.phases[1].version = 2;
  job.phases[12].version = 3;
  const StoredJob same = kept(job);
  EXPECT_EQ(same.schedule, schedule);
  EXPECT_TRUE(job::Schedule::restored(same.schedule));
  for (const std::uint64_t group : {7, 4}) {  // of the items, of the batch
    schedule.versions[12].group = group;
    EXPECT_FALSE(job::Schedule::restored(kept(job).schedule)) << group;
  }
}

TEST_F(StoreJobTest, KeepsTheWholeCursorOfAPosition) {
  const StoredJob job = new_job(7, "run-1");
  const job::Cursor cursor{.order = "order",
                           .at = {1, 2},
                           .position = 3,
                           .run = 0xffffffffffffffff,
                           .branch = 4,
                           .turn = 5};
  ASSERT_TRUE(
      open()->put_jobs({job}, {{.key = job.key, .cursor = cursor, .kept_unix_ms = 10}}).ok());
  const auto position = open()->position(job.key);
  ASSERT_TRUE(position && *position);
  EXPECT_EQ((*position)->cursor, cursor);
  EXPECT_EQ((*position)->kept_unix_ms, 10U);
}

// As a disk, or somebody's hand, may leave it.
TEST_F(StoreJobTest, RefusesADamagedJob) {
  StoredJob job = new_job(7, "run-1");
  job.schedule.edits = {{.turn = 5, .change = job::Edit::Skip{.epoch = 1, .steps = 4}}};
  job.schedule.planned = job::PlannedSwap{.from = 9, .place = job::StepAt{4, 2}, .version = 0};
  job.members.resize(1);
  const auto text = job_text(job);
  ASSERT_TRUE(text) << text.error().message();
  ASSERT_TRUE(parse_job(*text));
  const std::vector<std::pair<std::string, std::string>> damages{
      {R"("schedule":{)", R"("no_schedule":{)"},
      {R"("run":7)", R"("run":"seven")"},
      {R"("tail":"drop")", R"("tail":"dropped")"},
      {R"("versions":{"0":)", R"("versions":{"first":)"},
      {R"("versions":{"0":)", R"("versions":{"1":)"},
      {R"("phases":{"0":)", R"("phases":{"1":)"},
      {R"("skip":{)", R"("skipped":{)"},
      {R"("steps":4)", R"("steps":null)"},
      {R"("place":[4,2])", R"("place":[4])"},
      {R"("base_turn":)", R"("base":)"},
      {R"("is":"here")", R"("is":"there")"},
      {R"("members":[)", R"("members":[7,)"},
      {R"("reserved":0)", R"("reserved":[])"},
      {R"({"done")", R"(["done")"}};
  for (const auto& [from, to] : damages) {
    std::string damaged = *text;
    const std::size_t at = damaged.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    damaged.replace(at, from.size(), to);
    const auto parsed = parse_job(damaged);
    ASSERT_FALSE(parsed) << to;
    EXPECT_EQ(parsed.error().code(), Code::kDataLoss) << to;
  }
  for (std::size_t size = 0; size < text->size(); ++size)
    ASSERT_FALSE(parse_job(text->substr(0, size))) << size;
}

TEST_F(StoreJobTest, RefusesAJobThatRunsNothing) {
  StoredJob job = new_job(7, "run-1");
  job.schedule.versions.clear();
  job.phases.clear();
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  const auto read = open()->job(job.key);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr("job 'run-1' cannot be read: it runs nothing"));
}

TEST_F(StoreTest, KeepsTheHistoryOfAPipelineAndForgetsItWithThePipeline) {
  auto store = open();
  StoredPipeline pipeline{.id = "train", .version = 1, .owner = 0, .request = {}};
  for (std::uint32_t version = 1; version <= 3; ++version) {
    pipeline.version = version;
    pipeline.request.yaml = "version " + std::to_string(version);
    ASSERT_TRUE(store
                    ->put_pipeline(pipeline, {.version = version,
                                              .applied_unix_ms = version * 1000,
                                              .applied_by = 7,
                                              .content_digest = "d",
                                              .note = "n",
                                              .request = {}})
                    .ok());
  }
  store.reset();
  store = open();
  const auto history = store->history("train");
  ASSERT_TRUE(history);
  ASSERT_EQ(history->size(), 3U);
  EXPECT_EQ(history->front().version, 1U);
  EXPECT_EQ(history->back().request.yaml, "version 3");
  EXPECT_EQ(history->back().applied_unix_ms, 3000U);
  ASSERT_TRUE(store->remove_pipeline("train").ok());
  EXPECT_TRUE(store->history("train")->empty());
}

TEST_F(StoreTest, KeepsNoMoreOfAHistoryThanItSays) {
  auto store = open();
  StoredPipeline pipeline{.id = "train", .version = 1, .owner = 0, .request = {}};
  for (std::uint32_t version = 1; version <= Store::kMaxRevisions + 5; ++version)
    ASSERT_TRUE(store->put_pipeline(pipeline, {.version = version}).ok());
  EXPECT_EQ(store->history("train")->size(), static_cast<std::size_t>(Store::kMaxRevisions));
  EXPECT_EQ(store->history("train")->front().version, 6U);
}

TEST_F(StoreTest, ChangesNothingWhenOneOfTheJobsOfASwapCannotBeKept) {
  auto store = open();
  StoredPipeline pipeline{.id = "train", .version = 1, .owner = 0, .request = {}};
  ASSERT_TRUE(store->put_pipeline(pipeline, {.version = 1}).ok());
  StoredJob good = new_job(7, "good");
  good.declared = true;
  StoredJob bad = good;
  bad.key.job = "bad";
  bad.vars = {{"x", "\xff"}};
  pipeline.version = 2;
  EXPECT_FALSE(store->put_pipeline(pipeline, {.version = 2}, {good, bad}).ok());
  EXPECT_EQ(store->pipelines()->front().version, 1U);
  EXPECT_EQ(store->history("train")->size(), 1U);
  EXPECT_TRUE(store->declared_jobs()->empty());
}

TEST_F(StoreTest, KeepsPositionsAndForgetsThoseOfJobsThatEndedLongAgo) {
  const job::JobKey old{.uid = 7, .job = "old", .pipeline = "train"};
  const job::JobKey declared{.uid = 7, .job = "declared", .pipeline = "train"};
  const job::Cursor cursor{
      .order = "A", .at = {1, 2}, .position = 30, .run = 7, .branch = 0, .turn = 9};
  auto store = open();
  StoredJob job = new_job(7, "declared");
  job.declared = true;
  job.kept_unix_ms = 10;
  job.replaced = {6};
  ASSERT_TRUE(store->put_jobs({job}).ok());
  job.key = old;
  job.declared = false;
  job.replaced = {5};
  ASSERT_TRUE(store->put_jobs({job}).ok());
  ASSERT_TRUE(store
                  ->put_jobs({}, {{.key = old, .cursor = cursor, .kept_unix_ms = 10},
                                  {.key = declared, .cursor = cursor, .kept_unix_ms = 10}})
                  .ok());
  EXPECT_EQ((*store->position(old))->cursor, cursor);
  EXPECT_EQ(*store->jobs_named("old"), std::vector<job::JobKey>{old});
  ASSERT_TRUE(store->forget_before(11).ok());
  EXPECT_TRUE(store->jobs_named("old")->empty());
  EXPECT_TRUE(store->replaced(old)->empty());
  EXPECT_EQ(store->replaced(declared)->size(), 1U);
  EXPECT_FALSE(store->position(old)->has_value());
  EXPECT_FALSE(store->job(old)->has_value());
  EXPECT_EQ((*store->position(declared))->cursor, cursor);
}

TEST_F(StoreTest, ForgetsAJobWithWhatWasReplacedInIt) {
  auto store = open();
  StoredJob job = new_job(7, "run-1");
  const job::JobKey key = job.key;
  job.declared = true;
  job.replaced = {5};
  ASSERT_TRUE(store->put_jobs({job}).ok());
  ASSERT_TRUE(store->put_jobs({job}).ok());
  EXPECT_EQ(store->replaced(key)->size(), 1U);
  ASSERT_TRUE(store->remove_job(key).ok());
  EXPECT_TRUE(store->declared_jobs()->empty());
  EXPECT_TRUE(store->replaced(key)->empty());
}

}  // namespace
}  // namespace spdld::store
