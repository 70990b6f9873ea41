// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "engine/executor.h"

namespace spdld::engine {
namespace {

constexpr unsigned kAll = std::numeric_limits<unsigned>::max();

TEST(WorkersAhead, LeaveACoreToTheTraining) {
  EXPECT_EQ(workers_ahead(10, false, 2), 1u);
  EXPECT_EQ(workers_ahead(10, false, 16), 15u);
}

TEST(WorkersAhead, AreAllWhereTheyGiveWayToNobody) {
  EXPECT_EQ(workers_ahead(0, false, 16), kAll);
  EXPECT_EQ(workers_ahead(-5, false, 16), kAll);
}

TEST(WorkersAhead, AreAllOnCoresOfTheirOwn) { EXPECT_EQ(workers_ahead(10, true, 16), kAll); }

TEST(WorkersAhead, AreAllWhereThereIsOneCore) { EXPECT_EQ(workers_ahead(10, false, 1), kAll); }

}  // namespace
}  // namespace spdld::engine
