// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <gtest/gtest.h>

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
  job.rows_per_s = stage.rows_per_s = session.rows_per_s = daemon.rows_per_s = 0;
  stage.busy_share = 0.5;
  daemon.batches_per_s = 2;
  EXPECT_TRUE(of(v1::Job(), job).has_rows_per_s());
  EXPECT_TRUE(of(v1::Stage(), stage).has_rows_per_s());
  EXPECT_EQ(of(v1::Stage(), stage).busy_share(), 0.5);
  EXPECT_TRUE(of(v1::Session(), session).has_rows_per_s());
  EXPECT_TRUE(of(v1::Daemon(), daemon).has_rows_per_s());
  EXPECT_EQ(of(v1::Daemon(), daemon).batches_per_s(), 2);
}

TEST(Fill, WritesASessionWithItsReplicaAndVersion) {
  session::SessionView view;
  view.replica = 1;
  view.pipeline_version = 4;
  v1::Session message;
  fill(&message, view);
  EXPECT_EQ(message.replica(), 1u);
  EXPECT_EQ(message.pipeline_version(), 4u);
}

}  // namespace
}  // namespace spdld::control
