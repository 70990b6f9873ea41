// SPDX-License-Identifier: Apache-2.0
#include "session/job_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "stream/span.h"

namespace spdld::session {
namespace {

// Ten steps of four rows.
std::shared_ptr<pipeline::Phase> phase(std::uint64_t batch = 4) {
  auto made = std::make_shared<pipeline::Phase>();
  made->items = 40;
  made->batch = batch;
  return made;
}

struct Planned {
  std::shared_ptr<JobPlan> plan;
  std::uint32_t version = 0;
};
Planned planned_for(job::StepAt place) {
  auto plan = std::make_shared<JobPlan>(*new_run(phase(), {}));
  const std::uint32_t version = plan->schedule.add_version(stream::facts_of(*phase()));
  plan->phases[version] = phase();
  EXPECT_TRUE(plan->schedule.plan({.from = 0, .place = place, .version = version}));
  return {.plan = plan, .version = version};
}

TEST(JobPlan, OfEachRunHasAnotherNumber) {
  std::set<std::uint64_t> runs;
  for (int i = 0; i < 100; ++i) runs.insert(new_run(phase(), {})->schedule.run());
  EXPECT_EQ(runs.size(), 100U);
  EXPECT_EQ(runs.count(0), 0U);
  EXPECT_LT(*runs.rbegin(), std::uint64_t{1} << 63);
}

TEST(JobPlan, NamesTheVersionThatWasGivenLast) {
  const Planned planned = planned_for({0, 4});
  EXPECT_EQ(planned.plan->last_version(), planned.version);
  const auto placed =
      with_edit(*planned.plan, {.turn = 4, .change = job::Edit::Swap{planned.version}}, 0, 0);
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)->last_version(), planned.version);
  EXPECT_EQ((*placed)->schedule.record().planned, std::nullopt);
  const auto back = with_edit(**placed, {.turn = 4, .change = job::Edit::Swap{0}}, 0, 0);
  ASSERT_TRUE(back);
  EXPECT_EQ((*back)->last_version(), 0U);
}

TEST(JobPlan, AssumesAPlannedSwapWhereAMemberComesToIt) {
  const Planned planned = planned_for({2, 4});
  const Assumed here = assumed(planned.plan, 3, {});
  EXPECT_EQ(here.due, 24U);
  EXPECT_EQ(here.plan->schedule.locate(24, {}).version, planned.version);
  EXPECT_EQ(here.plan->schedule.locate(23, {}).version, 0U);
  const job::OwnSeeks own = {{.turn = 3, .to = {.epoch = 2, .step = 0}}};
  EXPECT_EQ(assumed(planned.plan, 3, own).due, 7U);
  const JobPlanPtr without = new_run(phase(), {});
  EXPECT_EQ(assumed(without, 3, {}).plan, without);
  EXPECT_EQ(assumed(without, 3, {}).due, job::kNoTurn);
}

TEST(JobPlan, KeepsItsScheduleUnderOtherPhases) {
  const JobPlanPtr plan = new_run(phase(), {});
  const auto other = phase();
  const JobPlanPtr renamed = with_phases(*plan, {{plan->last_phase(), other}});
  EXPECT_EQ(renamed->last_phase(), other);
  EXPECT_EQ(renamed->schedule.record(), plan->schedule.record());
}

}  // namespace
}  // namespace spdld::session
