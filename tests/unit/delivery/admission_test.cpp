// SPDX-License-Identifier: Apache-2.0
#include "delivery/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace spdld::delivery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uid_t kAnn = 100'001;
constexpr uid_t kBob = 100'002;
constexpr uid_t kAdmin = 100'003;

void enter(Admission& admission, uid_t uid, int times) {
  for (int i = 0; i < times; ++i) ASSERT_TRUE(admission.enter(uid).ok()) << uid << ", " << i;
}

TEST(AdmissionTest, RefusesAUserWhoHasEnoughAndNobodyElse) {
  Admission admission({.in_all = 10, .reserved = 2, .per_user = 3});
  enter(admission, kAnn, 3);
  const Status refused = admission.enter(kAnn);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("user 100001 has 3 consumers already"));
  enter(admission, kBob, 3);
  admission.leave(kAnn);
  enter(admission, kAnn, 1);
  EXPECT_THAT(admission.users(), ElementsAre(Pair(kAnn, 3), Pair(kBob, 3)));
}

TEST(AdmissionTest, KeepsPlacesForRootAdminsAndItsOwnUserWhenOthersHaveTakenTheirs) {
  Admission admission(
      {.in_all = 10, .reserved = 3, .per_user = 4, .trusted = TrustedUsers({kAdmin})});
  enter(admission, kAnn, 4);
  enter(admission, kBob, 3);
  const Status refused = admission.enter(kBob);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("the daemon has its 7 consumers already"));
  enter(admission, 0, 1);
  enter(admission, ::geteuid(), 1);
  enter(admission, kAdmin, 1);
  EXPECT_FALSE(admission.enter(kAdmin).ok()) << "ten are all there may be";
  admission.leave(kAnn);
  enter(admission, kBob, 1);
}

TEST(AdmissionTest, LetsTrustedUsersHaveWhatOthersDoNotTake) {
  Admission admission(
      {.in_all = 10, .reserved = 2, .per_user = 9, .trusted = TrustedUsers({kAdmin})});
  enter(admission, kAdmin, 9);
  enter(admission, kAnn, 1);
  EXPECT_FALSE(admission.enter(kAnn).ok());
}

}  // namespace
}  // namespace spdld::delivery
