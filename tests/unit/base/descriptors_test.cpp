// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/status.h"

namespace spdld {
namespace {

TEST(Descriptors, CountsTheFailuresThatAreForWantOfOne) {
  const std::uint64_t before = descriptor_shortages();
  note_descriptor_shortage(ENOENT);
  (void)errno_status(EACCES, "a file");
  EXPECT_EQ(descriptor_shortages(), before);
  note_descriptor_shortage(ENFILE);
  (void)errno_status(EMFILE, "a file");
  EXPECT_EQ(descriptor_shortages(), before + 2);
}

}  // namespace
}  // namespace spdld
