// SPDX-License-Identifier: Apache-2.0
#include "session/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spdld::session {
namespace {

using stream::Shortage;
using ::testing::HasSubstr;
using ::testing::Not;

// A job of two ranks on two workers, which keep up.
class DiagnosisTest : public ::testing::Test {
 protected:
  DiagnosisTest() {
    facts_.job.job = "run";
    facts_.job.pipeline = "pets";
    facts_.fetch.stage = "fetch";
    facts_.fetch.concurrency = 16;
    facts_.fetch.served = 1;
    facts_.process.stage = "decode_image";
    facts_.process.concurrency = 2;
    facts_.process.p50_us = 4000;
    facts_.process.rows_per_s = 500;
    facts_.process.failures_per_s = 0;
    facts_.process.served = 1.8;
    daemon_.cpu_threads = 2;
    daemon_.io_threads = 256;
    daemon_.workers_lately = WorkersView{.rows_s = 1.8, .core_s = 0.1};
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      SessionView& rank = facts_.ranks.emplace_back();
      rank.shard = shard;
      rank.credits = 2;
      rank.lately = SessionView::Lately{.rows_per_s = 250};
    }
  }

  void lack(SessionView& rank, Shortage why, double share) {
    rank.lately->waited_share = 0.4;
    rank.lately->shortages.lacked_s[static_cast<std::size_t>(why)] = share;
  }
  void lack(Shortage why, double share = 0.5) {
    for (SessionView& rank : facts_.ranks) lack(rank, why, share);
  }
  std::string first_cause() const {
    const DiagnosisView view = diagnose(facts_, daemon_);
    return view.findings.empty() ? "" : view.findings.front().cause;
  }
  std::string first_says() const {
    const DiagnosisView view = diagnose(facts_, daemon_);
    return view.findings.empty() ? "" : view.findings.front().says;
  }

  DiagnosisFacts facts_;
  DaemonView daemon_;
};

TEST_F(DiagnosisTest, FindsNothingWhereRanksDoNotWait) {
  lack(Shortage::kBytes);
  for (SessionView& rank : facts_.ranks) rank.lately->waited_share = 0.01;
  const DiagnosisView view = diagnose(facts_, daemon_);
  EXPECT_EQ(view.waited_share, 0.01);
  EXPECT_EQ(view.faster, 1);
  EXPECT_TRUE(view.findings.empty());
}

TEST_F(DiagnosisTest, NamesWorkersThatTakeTheCoreOfATrainerThatDoesNotWait) {
  for (SessionView& rank : facts_.ranks) rank.lately->waited_share = 0.01;
  facts_.ranks[1].lately->core_waited_share = 0.25;
  const DiagnosisView view = diagnose(facts_, daemon_);
  ASSERT_EQ(view.findings.size(), 1U);
  EXPECT_EQ(view.findings[0].cause, "trainer_core");
  EXPECT_EQ(view.findings[0].command, "spdlctl tune daemon executor.cpu_threads=1");
  daemon_.workers_lately = WorkersView{.rows_s = 0.1};
  EXPECT_EQ(first_cause(), "") << "it is not the daemon that has its core";
}

TEST_F(DiagnosisTest, NamesMapWhereItTakesMuchOfTheTimeOfATrainerThatDoesNotWait) {
  for (SessionView& rank : facts_.ranks) rank.lately->waited_share = 0.01;
  facts_.ranks[0].lately.reset();
  facts_.ranks[1].lately->map_share = 0.3;
  EXPECT_EQ(first_cause(), "");
  facts_.ranks[1].lately->map_share = 1.6;
  EXPECT_EQ(first_cause(), "map");
  EXPECT_THAT(first_says(), HasSubstr("map= of shard 1's rank takes 160 % of its time"));
  lack(Shortage::kBytes);
  EXPECT_NE(first_cause(), "map") << "it is not what the rank waits for";
}

TEST_F(DiagnosisTest, DoesNotKnowYetWhatARankWaitsForThatHasOnlyJustCome) {
  for (SessionView& rank : facts_.ranks) rank.lately.reset();
  EXPECT_EQ(diagnose(facts_, daemon_).waited_share, std::nullopt);
  facts_.ranks.clear();
  EXPECT_EQ(diagnose(facts_, daemon_).waited_share, std::nullopt);
}

TEST_F(DiagnosisTest, SaysHowMuchFasterTrainingCouldBe) {
  lack(Shortage::kWorker);
  EXPECT_NEAR(diagnose(facts_, daemon_).faster, 1 / 0.6, 1e-9);
}

TEST_F(DiagnosisTest, GoesByTheRanksThatWait) {
  lack(facts_.ranks[0], Shortage::kBytes, 0.9);
  facts_.ranks[0].lately->waited_share = 0.1;
  lack(facts_.ranks[1], Shortage::kEpoch, 0.2);
  EXPECT_EQ(first_cause(), "epoch");
}

TEST_F(DiagnosisTest, NamesTheGreatestPartFirstAndLeavesOutSmallOnes) {
  lack(Shortage::kEpoch, 0.2);
  lack(Shortage::kMemory, 0.3);
  lack(Shortage::kCopy, 0.01);
  const DiagnosisView view = diagnose(facts_, daemon_);
  ASSERT_EQ(view.findings.size(), 2U);
  EXPECT_EQ(view.findings[0].cause, "decode_memory");
  EXPECT_EQ(view.findings[1].cause, "epoch");
  EXPECT_EQ(view.findings[1].command, "spdlctl job advance run --pipeline pets");
  EXPECT_NEAR(view.findings[0].evidence.front().value, 0.3 / 0.51, 1e-9);
}

TEST_F(DiagnosisTest, NamesFetchsConcurrencyWhereThatIsLowAndInUse) {
  lack(Shortage::kBytes);
  facts_.fetch.concurrency = 1;
  facts_.fetch.in_flight = 1;
  EXPECT_EQ(first_cause(), "fetch_concurrency");
}

TEST_F(DiagnosisTest, NamesTheStoragesLatencyWhereAsManyReadsAreUnderWayAsAreUsual) {
  lack(Shortage::kBytes);
  facts_.fetch.in_flight = 16;
  EXPECT_EQ(first_cause(), "fetch_concurrency");
  facts_.fetch.p50_lately_us = 20'000;
  EXPECT_EQ(first_cause(), "storage_latency");
}

TEST_F(DiagnosisTest, NamesPrefetchWhereFewerRowsAreAskedForThanMayBe) {
  lack(Shortage::kBytes);
  facts_.fetch.concurrency = 64;
  facts_.fetch.in_flight = 6;
  facts_.fetch.p50_lately_us = 20'000;
  EXPECT_EQ(first_cause(), "prefetch");
}

TEST_F(DiagnosisTest, NamesIoThreadsWhereTheJobsReadsWaitForThem) {
  lack(Shortage::kBytes);
  facts_.fetch.served = 2;
  facts_.fetch.waiting = 14;
  daemon_.io_threads = 2;
  EXPECT_EQ(first_cause(), "io_threads");
  daemon_.io_threads = 256;
  facts_.fetch.p50_lately_us = 20'000;
  EXPECT_EQ(first_cause(), "storage_latency");
}

TEST_F(DiagnosisTest, NamesStorageThatDoesNotAnswerAndTheItem) {
  lack(Shortage::kBytes);
  facts_.fetch.in_flight = 16;
  facts_.oldest_read = "7 (a.jpg)";
  facts_.oldest_read_s = 12;
  EXPECT_EQ(first_cause(), "hung_storage");
  EXPECT_THAT(first_says(), HasSubstr("item 7 (a.jpg) is being read for 12.0 s"));
  facts_.fetch.p50_lately_us = 10'000'000;
  EXPECT_NE(first_cause(), "hung_storage") << "all its reads take as long";
}

TEST_F(DiagnosisTest, NamesAMountOnlyWhereThatIsTheOneThatReadsWaitFor) {
  lack(Shortage::kBytes);
  facts_.fetch.in_flight = 16;
  EXPECT_THAT(first_says(), HasSubstr("its storage takes"));
  daemon_.storage = {{.device = "8:1", .mount = "/data", .reading = 16},
                     {.device = "8:2", .mount = "/other"}};
  EXPECT_THAT(first_says(), HasSubstr("the storage at /data takes"));
  daemon_.storage[1].reading = 1;
  EXPECT_THAT(first_says(), HasSubstr("its storage takes"));
}

TEST_F(DiagnosisTest, NamesTheCpuWhereAllWorkersAreAtWork) {
  lack(Shortage::kWorker);
  EXPECT_EQ(first_cause(), "cpu");
  lack(Shortage::kMaking);
  EXPECT_EQ(diagnose(facts_, daemon_).findings.size(), 1U) << "both are want of workers";
}

TEST_F(DiagnosisTest, NamesTheOpThatTakesMostOfTheCpu) {
  lack(Shortage::kWorker);
  facts_.process.ops = {
      {.field = "image", .ops = "decode_image", .rows = 10, .spent_s = 0.03},
      {.field = "image", .ops = "resize + normalize", .rows = 10, .spent_s = 0.01}};
  EXPECT_THAT(first_says(), HasSubstr("of which 'decode_image' of field 'image' takes 75 %"));
  facts_.process.ops.pop_back();
  EXPECT_THAT(first_says(), Not(HasSubstr("of which")));
}

TEST_F(DiagnosisTest, NamesAStagesConcurrencyWhereThatLeavesWorkersIdle) {
  lack(Shortage::kWorker);
  daemon_.workers_lately->rows_s = 1;
  daemon_.workers_lately->stage_bound_s = 1;
  facts_.process.served = 1;
  EXPECT_NE(first_cause(), "stage_concurrency") << "it is another job's stage";
  facts_.process.concurrency = 1;
  EXPECT_EQ(first_cause(), "stage_concurrency");
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].brings, "up to 1.7 x the rows a second");
}

TEST_F(DiagnosisTest, NamesAJobsLimitWhereThatLeavesWorkersIdle) {
  lack(Shortage::kWorker);
  daemon_.workers_lately->job_bound_s = 1;
  EXPECT_EQ(first_cause(), "cpu") << "it is another job's limit";
  facts_.job.limits.cpus = 1;
  EXPECT_EQ(first_cause(), "job_cpus");
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].command,
            "spdlctl tune run --pipeline pets cpus=all");
}

TEST_F(DiagnosisTest, NamesOtherJobsWhereTheyHaveTheWorkers) {
  lack(Shortage::kWorker);
  facts_.process.served = 0.2;
  EXPECT_EQ(first_cause(), "cpu");
  facts_.others_served = 1.6;
  EXPECT_EQ(first_cause(), "other_jobs");
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].command,
            "spdlctl tune run --pipeline pets weight=4");
}

TEST_F(DiagnosisTest, NamesOtherProgramsWhereWorkersWaitForCores) {
  lack(Shortage::kWorker);
  daemon_.workers_lately->core_s = 0.9;
  EXPECT_EQ(first_cause(), "contended_cores");
}

TEST_F(DiagnosisTest, NamesAQuotaWhereThatStopsTheDaemon) {
  lack(Shortage::kWorker);
  daemon_.workers_lately->core_s = 0.9;
  daemon_.workers_lately->throttled_s = 0.7;
  EXPECT_EQ(first_cause(), "cpu_quota");
}

TEST_F(DiagnosisTest, NamesPrefetchWhereWorkersWaitForRanksAtOtherTimes) {
  lack(Shortage::kMaking);
  daemon_.workers_lately = WorkersView{.rows_s = 1.2, .slot_s = 0.8};
  EXPECT_EQ(first_cause(), "prefetch");
  daemon_.workers_lately = WorkersView{.rows_s = 1.2, .yield_s = 0.8};
  EXPECT_EQ(first_cause(), "prefetch");
  lack(Shortage::kSlot, 5);
  EXPECT_EQ(first_cause(), "prefetch");
}

TEST_F(DiagnosisTest, NamesTheReplicaThatIsLastInTheShardThatWaits) {
  facts_.job.replicas = 2;
  facts_.ranks.resize(4, facts_.ranks[0]);
  for (std::uint32_t at = 0; at < 4; ++at) {
    facts_.ranks[at].shard = at / 2;
    facts_.ranks[at].replica = at % 2;
    facts_.ranks[at].step = 20;
  }
  facts_.ranks[1].step = 10;
  facts_.ranks[2].step = 3;
  lack(facts_.ranks[0], Shortage::kReplica, 0.8);
  EXPECT_EQ(first_cause(), "slow_replica");
  EXPECT_THAT(first_says(), HasSubstr("replica 1 of shard 0"));
  facts_.ranks.erase(facts_.ranks.begin() + 1);
  EXPECT_THAT(first_says(), HasSubstr("of shard 0 1 of 2 are attached"));
}

TEST_F(DiagnosisTest, NamesFailingDataFirstAlsoWhereNobodyWaits) {
  facts_.process.failures_per_s = 25;
  EXPECT_EQ(first_cause(), "failing_data");
  lack(Shortage::kWorker);
  EXPECT_EQ(first_cause(), "failing_data");
  EXPECT_EQ(diagnose(facts_, daemon_).findings[1].cause, "cpu");
}

TEST_F(DiagnosisTest, NamesFailingDataBehindWhatKeepsRanksWaitingMore) {
  facts_.process.failures_per_s = 25;
  lack(Shortage::kSlot);
  EXPECT_EQ(first_cause(), "prefetch");
  EXPECT_EQ(diagnose(facts_, daemon_).findings[1].cause, "failing_data");
  facts_.process.failures_per_s = 250;
  EXPECT_EQ(first_cause(), "failing_data") << "half of the rows fail, and ranks wait for less";
}

TEST_F(DiagnosisTest, NamesFewRowsThatTakeMostOfTheTime) {
  lack(Shortage::kWorker);
  facts_.slow_rows = 0.012;
  facts_.slow_time = 0.86;
  facts_.slowest = "class0/huge.jpg";
  facts_.slowest_s = 1.52;
  EXPECT_EQ(first_cause(), "slow_items");
  EXPECT_THAT(first_says(), HasSubstr("1.2 % of the rows take 86 %"));
  EXPECT_THAT(first_says(), HasSubstr("class0/huge.jpg, which took 1.5 s in"));
  facts_.slow_rows = 0.2;
  EXPECT_EQ(first_cause(), "cpu") << "so many are no exception";
  facts_.slow_rows = 0.012;
  facts_.slow_time = 0.3;
  EXPECT_EQ(first_cause(), "cpu");
}

TEST_F(DiagnosisTest, NamesNothingWhereWorkersAreIdleForNoReasonThatItKnows) {
  lack(Shortage::kWorker);
  daemon_.workers_lately = WorkersView{.rows_s = 0.4, .left_s = 1.6, .core_s = 0.3};
  EXPECT_TRUE(diagnose(facts_, daemon_).findings.empty());
  daemon_.workers_lately.reset();
  EXPECT_TRUE(diagnose(facts_, daemon_).findings.empty());
}

TEST_F(DiagnosisTest, AdvisesNoMorePrefetchThanALoaderTakes) {
  lack(Shortage::kSlot);
  for (SessionView& rank : facts_.ranks) rank.credits = 32;
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].command,
            "spdlctl tune run --pipeline pets prefetch=64");
  for (SessionView& rank : facts_.ranks) rank.credits = 64;
  EXPECT_THAT(first_says(), HasSubstr("take larger batches"));
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].command, "");
}

TEST_F(DiagnosisTest, QuotesNamesInWhatIsToBePasted) {
  lack(Shortage::kEpoch);
  facts_.job.job = "it's $run";
  EXPECT_EQ(diagnose(facts_, daemon_).findings[0].command,
            "spdlctl job advance 'it'\\''s $run' --pipeline pets");
}

}  // namespace
}  // namespace spdld::session
