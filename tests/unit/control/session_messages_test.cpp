// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <gtest/gtest.h>

#include <vector>

namespace spdld::control {
namespace {

TEST(Fill, TellsASubstituteOfItemZeroFromNone) {
  session::FailureView view;
  v1::Failure none;
  fill(&none, view);
  EXPECT_FALSE(none.has_replaced_by());
  EXPECT_FALSE(none.has_item());
  view.facts.sample.emplace().replaced_by = 0;
  v1::Failure zero;
  fill(&zero, view);
  EXPECT_TRUE(zero.has_replaced_by());
  EXPECT_TRUE(zero.has_item());
}

TEST(Fill, TellsARateOfZeroFromOneThatIsNotKnown) {
  const auto of = [](auto message, auto view) {
    fill(&message, view);
    return message;
  };
  job::JobView job;
  job::StageView stage;
  session::SessionView session;
  session::DaemonView daemon;
  EXPECT_FALSE(of(v1::Job(), job).has_rows_per_s());
  EXPECT_FALSE(of(v1::Stage(), stage).has_rows_per_s());
  EXPECT_FALSE(of(v1::Stage(), stage).has_busy_share());
  EXPECT_FALSE(of(v1::Session(), session).has_rows_per_s());
  EXPECT_FALSE(of(v1::Daemon(), daemon).has_rows_per_s());
  job.rows_per_s = stage.rows_per_s = daemon.rows_per_s = 0;
  session.lately = session::SessionView::Lately{};
  stage.busy_share = 0.5;
  daemon.batches_per_s = 2;
  EXPECT_TRUE(of(v1::Job(), job).has_rows_per_s());
  EXPECT_TRUE(of(v1::Stage(), stage).has_rows_per_s());
  EXPECT_EQ(of(v1::Stage(), stage).busy_share(), 0.5);
  EXPECT_TRUE(of(v1::Session(), session).has_rows_per_s());
  EXPECT_FALSE(of(v1::Session(), session).has_ready_share()) << "it was given no batch";
  EXPECT_TRUE(of(v1::Daemon(), daemon).has_rows_per_s());
  EXPECT_EQ(of(v1::Daemon(), daemon).batches_per_s(), 2);
}

TEST(Fill, WritesOfTheDaemonsProcessWhatIsKnown) {
  session::DaemonView view;
  v1::Daemon none;
  fill(&none, view);
  EXPECT_FALSE(none.has_priority() || none.has_pss_bytes() || none.has_cpu_pressure());
  view.pss_bytes = 7;
  view.cpu_pressure = 0;
  view.priority = {.by = CpuPriority::By::kWeight, .value = 10, .cgroup = "/a"};
  v1::Daemon known;
  fill(&known, view);
  EXPECT_EQ(known.pss_bytes(), 7u);
  EXPECT_TRUE(known.has_cpu_pressure());
  EXPECT_EQ(known.priority().by(), "cpu_weight");
  EXPECT_EQ(known.priority().value(), 10);
  EXPECT_EQ(known.priority().cgroup(), "/a");
}

TEST(Fill, WritesASessionWithItsReplicaAndVersion) {
  session::SessionView view;
  view.replica = 1;
  view.pipeline_version = 4;
  view.waits_by_length = {1, 2, 3, 4, 5, 6};
  view.steps = 40;
  view.between_s = 2.5;
  view.map_s = 0.5;
  v1::Session message;
  fill(&message, view);
  EXPECT_EQ(message.replica(), 1u);
  EXPECT_EQ(message.pipeline_version(), 4u);
  EXPECT_EQ(std::vector<std::uint64_t>(message.waits_by_length().begin(),
                                       message.waits_by_length().end()),
            (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(message.steps(), 40u);
  EXPECT_EQ(message.between_s(), 2.5);
  EXPECT_EQ(message.map_s(), 0.5);
  EXPECT_FALSE(message.has_map_share() || message.has_between_share()) << "not known yet";
}

TEST(Fill, WritesEachShortageOfASessionUnderItsOwnName) {
  session::SessionView view;
  view.shortages.attached_s = 100;
  for (std::size_t why = 0; why < stream::kShortages; ++why)
    view.shortages.lacked_s[why] = static_cast<double>(why) + 1;
  v1::Session message;
  fill(&message, view);
  const v1::Shortages& of = message.shortages();
  const std::vector<double> written = {of.bytes_s(),  of.worker_s(), of.memory_s(),  of.calls_s(),
                                       of.making_s(), of.slot_s(),   of.replica_s(), of.job_s(),
                                       of.copy_s(),   of.epoch_s(),  of.change_s(),  of.disk_s()};
  EXPECT_EQ(of.attached_s(), 100);
  std::vector<double> by_name(stream::kShortages);
  using stream::Shortage;
  const Shortage names[] = {Shortage::kBytes,   Shortage::kWorker, Shortage::kMemory,
                            Shortage::kCalls,   Shortage::kMaking, Shortage::kSlot,
                            Shortage::kReplica, Shortage::kJob,    Shortage::kCopy,
                            Shortage::kEpoch,   Shortage::kChange, Shortage::kDisk};
  for (std::size_t at = 0; at < by_name.size(); ++at) by_name[at] = view.shortages.of(names[at]);
  EXPECT_EQ(written, by_name);
}

}  // namespace
}  // namespace spdld::control
