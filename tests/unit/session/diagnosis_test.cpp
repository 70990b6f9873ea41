// SPDX-License-Identifier: Apache-2.0
#include "session/diagnosis.h"

#include <gtest/gtest.h>

#include <string>

namespace spdld::session {
namespace {

using stream::Shortage;

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
    facts_.daemon.cpu_threads = 2;
    facts_.daemon.io_threads = 256;
    facts_.daemon.workers_lately = WorkersView{.rows_s = 1.8, .core_s = 0.1};
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
  void storage(std::uint32_t reading, std::uint32_t most, std::uint64_t waiting, double served_s) {
    facts_.daemon.storage = {{.device = "8:1",
                              .mount = "/data",
                              .reading = reading,
                              .most = most,
                              .waiting = waiting,
                              .served_s = served_s}};
  }
  std::string first_cause() const {
    const DiagnosisView view = diagnose(facts_);
    return view.findings.empty() ? "" : view.findings.front().cause;
  }

  DiagnosisFacts facts_;
};

TEST_F(DiagnosisTest, FindsNothingWhereRanksDoNotWait) {
  lack(Shortage::kBytes);
  for (SessionView& rank : facts_.ranks) rank.lately->waited_share = 0.01;
  const DiagnosisView view = diagnose(facts_);
  EXPECT_EQ(view.waited_share, 0.01);
  EXPECT_EQ(view.faster, 1);
  EXPECT_TRUE(view.findings.empty());
}

TEST_F(DiagnosisTest, DoesNotKnowYetWhatARankWaitsForThatHasOnlyJustCome) {
  for (SessionView& rank : facts_.ranks) rank.lately.reset();
  EXPECT_EQ(diagnose(facts_).waited_share, std::nullopt);
  facts_.ranks.clear();
  EXPECT_EQ(diagnose(facts_).waited_share, std::nullopt);
}

TEST_F(DiagnosisTest, SaysHowMuchFasterTrainingCouldBe) {
  lack(Shortage::kWorker);
  EXPECT_NEAR(diagnose(facts_).faster, 1 / 0.6, 1e-9);
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
  const DiagnosisView view = diagnose(facts_);
  ASSERT_EQ(view.findings.size(), 2U);
  EXPECT_EQ(view.findings[0].cause, "decode_memory");
  EXPECT_EQ(view.findings[1].cause, "epoch");
  EXPECT_EQ(view.findings[1].command, "spdlctl job advance run");
  EXPECT_NEAR(view.findings[0].evidence.front().value, 0.3 / 0.51, 1e-9);
}

TEST_F(DiagnosisTest, NamesFetchsConcurrencyWhereThatIsLowAndInUse) {
  lack(Shortage::kBytes);
  storage(1, 128, 0, 0.001);
  facts_.fetch.concurrency = 1;
  EXPECT_EQ(first_cause(), "fetch_concurrency");
}

TEST_F(DiagnosisTest, NamesIoThreadsWhereReadsWaitForThem) {
  lack(Shortage::kBytes);
  storage(2, 2, 14, 0.02);
  facts_.daemon.io_threads = 2;
  EXPECT_EQ(first_cause(), "io_threads");
}

TEST_F(DiagnosisTest, NamesTheStoragesLatencyWhereAsManyReadsAreUnderWayAsAreUsual) {
  lack(Shortage::kBytes);
  storage(16, 128, 0, 0.02);
  EXPECT_EQ(first_cause(), "storage_latency");
}

TEST_F(DiagnosisTest, NamesStorageThatDoesNotAnswerAtAll) {
  lack(Shortage::kBytes);
  storage(16, 128, 0, 0.02);
  facts_.daemon.storage[0].stuck = 16;
  facts_.daemon.storage[0].longest_s = 12;
  EXPECT_EQ(first_cause(), "hung_storage");
}

TEST_F(DiagnosisTest, TellsNoMountToWhoeverMayNotKnowIt) {
  lack(Shortage::kBytes);
  storage(16, 128, 0, 0.02);
  facts_.daemon.storage[0].device = facts_.daemon.storage[0].mount = "";
  EXPECT_NE(diagnose(facts_).findings[0].says.find("the storage of its data"), std::string::npos);
}

TEST_F(DiagnosisTest, CannotTellMoreWhereNoReadIsUnderWay) {
  lack(Shortage::kBytes);
  EXPECT_EQ(first_cause(), "storage");
}

TEST_F(DiagnosisTest, NamesTheCpuWhereAllWorkersAreAtWork) {
  lack(Shortage::kWorker);
  EXPECT_EQ(first_cause(), "cpu");
  lack(Shortage::kMaking);
  EXPECT_EQ(diagnose(facts_).findings.size(), 1U) << "both are want of workers";
}

TEST_F(DiagnosisTest, NamesAStagesConcurrencyWhereThatLeavesWorkersIdle) {
  lack(Shortage::kWorker);
  facts_.daemon.workers_lately->rows_s = 1;
  facts_.daemon.workers_lately->stage_bound_s = 1;
  facts_.process.served = 1;
  EXPECT_EQ(first_cause(), "stage_concurrency");
  EXPECT_EQ(diagnose(facts_).findings[0].brings, "up to 1.7 x the rows a second");
}

TEST_F(DiagnosisTest, NamesAJobsLimitWhereThatLeavesWorkersIdle) {
  lack(Shortage::kWorker);
  facts_.daemon.workers_lately->job_bound_s = 1;
  EXPECT_EQ(first_cause(), "job_cpus");
}

TEST_F(DiagnosisTest, NamesOtherJobsWhereTheyHaveTheWorkers) {
  lack(Shortage::kWorker);
  facts_.process.served = 0.2;
  EXPECT_EQ(first_cause(), "cpu");
  facts_.others_served = 1.6;
  EXPECT_EQ(first_cause(), "other_jobs");
  EXPECT_EQ(diagnose(facts_).findings[0].command, "spdlctl job limit run --weight 4");
}

TEST_F(DiagnosisTest, NamesOtherProgramsWhereWorkersWaitForCores) {
  lack(Shortage::kWorker);
  facts_.daemon.workers_lately->core_s = 0.9;
  EXPECT_EQ(first_cause(), "contended_cores");
}

TEST_F(DiagnosisTest, NamesAQuotaWhereThatStopsTheDaemon) {
  lack(Shortage::kWorker);
  facts_.daemon.workers_lately->core_s = 0.9;
  facts_.daemon.workers_lately->throttled_s = 0.7;
  EXPECT_EQ(first_cause(), "cpu_quota");
}

TEST_F(DiagnosisTest, NamesPrefetchWhereWorkersWaitForRanksAtOtherTimes) {
  lack(Shortage::kMaking);
  facts_.daemon.workers_lately = WorkersView{.rows_s = 1.2, .slot_s = 0.8};
  EXPECT_EQ(first_cause(), "prefetch");
  lack(Shortage::kSlot, 5);
  EXPECT_EQ(first_cause(), "prefetch");
}

TEST_F(DiagnosisTest, NamesTheReplicaThatIsLast) {
  facts_.ranks[1].shard = 0;
  facts_.ranks[1].replica = 1;
  facts_.ranks[0].step = 10;
  facts_.ranks[1].step = 4;
  lack(facts_.ranks[0], Shortage::kReplica, 0.8);
  const DiagnosisView view = diagnose(facts_);
  EXPECT_EQ(view.findings[0].cause, "slow_replica");
  EXPECT_NE(view.findings[0].says.find("replica 1 of shard 0"), std::string::npos);
}

TEST_F(DiagnosisTest, NamesFailingDataFirstAlsoWhereNobodyWaits) {
  facts_.process.failures_per_s = 25;
  EXPECT_EQ(first_cause(), "failing_data");
  lack(Shortage::kWorker);
  EXPECT_EQ(first_cause(), "failing_data");
  EXPECT_EQ(diagnose(facts_).findings[1].cause, "cpu");
}

TEST_F(DiagnosisTest, SaysWhatItCannotKnowOfWorkersByTheRanksAlone) {
  lack(Shortage::kWorker);
  facts_.daemon.workers_lately.reset();
  EXPECT_EQ(first_cause(), "cpu");
}

}  // namespace
}  // namespace spdld::session
