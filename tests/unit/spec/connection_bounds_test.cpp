// SPDX-License-Identifier: Apache-2.0
#include "spec/connection_bounds.h"

#include <gtest/gtest.h>

namespace spdld::spec {
namespace {

TEST(ConnectionBoundsTest, LeaveDescriptorsForArenasAndFiles) {
  for (const std::uint64_t descriptors : {128U, 256U, 512U, 1024U, 65536U, 1U << 20}) {
    const ConnectionBounds bounds = connection_bounds(LimitsConfig{}, descriptors);
    EXPECT_LE(3 * bounds.data + bounds.control + 2 * bounds.runners, descriptors) << descriptors;
  }
}

TEST(ConnectionBoundsTest, NeverGiveOneUserAllPlaces) {
  for (const std::uint64_t descriptors : {0U, 64U, 512U, 1024U, 65536U, 1U << 20}) {
    const ConnectionBounds bounds = connection_bounds(LimitsConfig{}, descriptors);
    EXPECT_GT(bounds.data_per_user, 0U);
    EXPECT_GT(bounds.data_reserved, 0U);
    EXPECT_LT(bounds.data_per_user, bounds.data - bounds.data_reserved) << descriptors;
    EXPECT_LT(bounds.control_per_user, bounds.control) << descriptors;
    EXPECT_GT(bounds.runners_per_user, 0U);
    EXPECT_LT(bounds.runners_per_user, bounds.runners - bounds.runners_reserved) << descriptors;
  }
}

TEST(ConnectionBoundsTest, HaveAsManyPlacesForAUserAsTheConfigurationSays) {
  LimitsConfig limits;
  limits.connections = 900;
  limits.control_connections = 3;
  const ConnectionBounds bounds = connection_bounds(limits, 1024);
  EXPECT_EQ(bounds.data_per_user, 900U);
  EXPECT_GE(bounds.data, 900U + bounds.data_reserved);
  EXPECT_EQ(bounds.control_per_user, 3U);
}

}  // namespace
}  // namespace spdld::spec
