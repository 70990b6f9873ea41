// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "base/check.h"

namespace spdld {
namespace {

Status fail_if(bool fails) { return fails ? Status(Code::kNotFound, "no such thing") : Status(); }

Result<std::unique_ptr<int>> make(bool fails) {
  if (fails) return error(Code::kDataLoss, "broken");
  return std::make_unique<int>(5);
}

Status tries(bool fails, bool& went_on) {
  SPDLD_TRY(fail_if(fails));
  went_on = true;
  return {};
}

Result<int> assigns(bool try_fails, bool make_fails) {
  SPDLD_TRY(fail_if(try_fails));
  SPDLD_ASSIGN(auto made, make(make_fails));
  SPDLD_ASSIGN(const std::unique_ptr<int> other, make(false));
  return *made + *other;
}

TEST(Status, IsSuccessByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), Code::kOk);
  EXPECT_EQ(Status(), Status(Code::kOk, ""));
}

TEST(Status, TakesContextOnItsWayUpOnlyWhenItFailed) {
  const Status status = Status(Code::kNotFound, "b").with_context("a").with_context("pipeline 'x'");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "pipeline 'x': a: b");
  EXPECT_TRUE(Status().with_context("a").ok());
  EXPECT_EQ(Status().with_context("a").message(), "");
}

TEST(Status, LeavesTheFunctionOnlyWithAFailure) {
  bool went_on = false;
  EXPECT_EQ(tries(true, went_on), Status(Code::kNotFound, "no such thing"));
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(tries(false, went_on).ok());
  EXPECT_TRUE(went_on);
}

TEST(Status, PassesFailuresOnAsAnyResult) {
  EXPECT_EQ(assigns(false, false).value(), 10);
  EXPECT_EQ(assigns(true, false).error(), Status(Code::kNotFound, "no such thing"));
  EXPECT_EQ(assigns(false, true).error(), Status(Code::kDataLoss, "broken"));
}

TEST(Status, HasANameForEveryCodeAndForNone) {
  for (int code = 0; code <= 15; ++code) {
    EXPECT_EQ(code_name(static_cast<Code>(code)) == "UNKNOWN", code == 2) << code;
  }
  EXPECT_EQ(code_name(static_cast<Code>(99)), "UNKNOWN");
}

TEST(Status, GivesErrorNumbersTheCodeThatFits) {
  EXPECT_EQ(errno_status(ENOENT, "x").code(), Code::kNotFound);
  EXPECT_EQ(errno_status(EACCES, "x").code(), Code::kPermissionDenied);
  EXPECT_EQ(errno_status(ENOSPC, "x").code(), Code::kResourceExhausted);
  EXPECT_EQ(errno_status(EIO, "x").code(), Code::kUnavailable);
  EXPECT_EQ(errno_status(EEXIST, "x").code(), Code::kAlreadyExists);
  EXPECT_EQ(errno_status(EINVAL, "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(errno_status(EXDEV, "x").code(), Code::kUnknown);
  EXPECT_EQ(errno_status(ENOENT, "cannot open /a").message(),
            "cannot open /a: No such file or directory");
}

TEST(CheckDeathTest, NamesWhatDoesNotHold) {
  EXPECT_DEATH(SPDLD_CHECK(1 + 1 == 3), "bug in spdld: .*status_test.cpp:[0-9]+: 1 \\+ 1 == 3");
  SPDLD_CHECK(true);
}

}  // namespace
}  // namespace spdld
