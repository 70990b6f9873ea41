// SPDX-License-Identifier: Apache-2.0
// As a release has it, whatever this build is.
#undef SPDLD_FAILPOINTS
#include "base/failpoint.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace spdld {
namespace {

Status goes_through() {
  SPDLD_FAILPOINT("no such place: nobody looks at the name");
  SPDLD_FAILPOINT_STATUS("nor here");
  return SPDLD_ARM_FAILPOINTS();
}

// A call that could do anything would be no constant.
static_assert(SPDLD_FAILPOINT_ERRNO("nor here") == 0);

TEST(FailpointWhereThereAreNone, IsNothing) { EXPECT_TRUE(goes_through().ok()); }

}  // namespace
}  // namespace spdld
