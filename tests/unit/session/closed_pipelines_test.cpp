// SPDX-License-Identifier: Apache-2.0
// What becomes of the items of pipelines that nobody uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

class ClosedPipelinesTest : public SessionsTest {
 protected:
  static constexpr uid_t kOther = 100'002;

  void SetUp() override {
    state_dir_ = files_.path("state");
    SessionsTest::SetUp();
  }
  // Until so many are closed: runs that have ended may take a moment to let go of them.
  void close(std::size_t count) {
    for (std::size_t closed = 0; closed < count; sessions_->tick())
      closed += catalogue_->close_unused();
  }
  std::uint64_t listed(uid_t uid) {
    const auto used = listing_memory_->used();
    const auto found = used.find(uid);
    return found == used.end() ? 0 : found->second;
  }
  PipelineView view(const std::string& name, uid_t uid) {
    const auto view = service_->pipeline({{.uid = uid}, 0}, name);
    EXPECT_TRUE(view) << view.error().message();
    return view ? *view : PipelineView();
  }
  // A table of about three megabytes, whose order goes by length.
  Result<PipelineView> apply_table(uid_t uid, const std::string& name) {
    std::string rows = "uri,cap,length,kind\n";
    for (int i = 0; i < 3000; ++i)
      rows += "0.bin," + std::string(1000, 'x') + "," + std::to_string(i % 70) + ",kind" +
              std::to_string(i % 5) + "\n";
    files_.file(name + ".csv", rows);
    std::filesystem::permissions(files_.path(name + ".csv"), std::filesystem::perms(0644));
    job::ApplyRequest request;
    request.yaml = "pipeline: " + name +
                   "\nsource:\n  table: {file: " + files_.path(name + ".csv") +
                   ", root: " + files_.path("data") +
                   ", uri: uri, label: kind, values: {cap: cap, length: length}}\nstages:\n"
                   "  - fetch\nshuffle: {global: {bucket: {by: length, window: 64, run: 8}}}\n"
                   "batch: {size: 2, max_bytes: 4KiB, last: drop}\n";
    request.file = "-";
    return service_->apply({{.uid = uid}, 0}, request, nullptr);
  }
  Rank attach_for(uid_t uid, const std::string& pipeline) {
    Rank rank = connect(uid);
    delivery::AttachRequest request;
    request.pipeline = pipeline;
    sessions_->attach(rank.connection, std::move(request));
    return rank;
  }
};

TEST_F(ClosedPipelinesTest, TakeNoMemoryAndAreOpenedAsTheyWereApplied) {
  ASSERT_TRUE(apply_table(kOther, "t"));
  const PipelineView before = view("t", kOther);
  const std::uint64_t listed_before = listed(kOther);
  EXPECT_GT(listed_before, 3'000'000U);
  EXPECT_EQ(catalogue_->close_unused(), 0U) << "they were applied just now";
  close(2);
  EXPECT_EQ(listed(kOther), 0U);
  EXPECT_EQ(listed(self_.uid), 0U);
  EXPECT_EQ(catalogue_->close_unused(), 0U) << "they are closed";

  const PipelineView closed = view("t", kOther);
  EXPECT_EQ(closed.items, 3000U);
  EXPECT_EQ(closed.classes, 5U);
  EXPECT_EQ(closed.order_digest, before.order_digest);
  EXPECT_EQ(closed.content_digest, before.content_digest);
  EXPECT_EQ(listed(kOther), 0U) << "to look at it opens nothing";

  // What is there now does not count.
  files_.file("t.csv", "uri,cap,length,kind\n0.bin,x,1,other\n");
  files_.file("data/11.bin", "bytes");
  const Rank rank = attach_for(kOther, "t");
  EXPECT_EQ(rank.attached().steps_per_epoch, 1500U);
  rank.batch();
  EXPECT_GE(listed(kOther), listed_before);
  const PipelineView after = view("t", kOther);
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.order_digest, before.order_digest);
  const auto classes = service_->classes({{.uid = kOther}, 0}, "t", nullptr);
  ASSERT_TRUE(classes) << classes.error().message();
  EXPECT_EQ(classes->names.size(), 5U);

  EXPECT_EQ(attach_for(self_.uid, "p").attached().steps_per_epoch, 5U);
}

TEST_F(ClosedPipelinesTest, AreThoseThatNoJobHas) {
  const Rank rank = attach({.job = "run"});
  rank.attached();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(catalogue_->close_unused(), 0U);
  hang_up(rank);
  close(1);
  EXPECT_EQ(listed(self_.uid), 0U);
}

TEST_F(ClosedPipelinesTest, AreRefusedWhereTheirItemsAreOthersByNow) {
  close(1);
  for (const auto& entry : std::filesystem::directory_iterator(state_dir_ + "/listings"))
    if (entry.path().extension() == ".idx") std::filesystem::remove(entry.path());
  files_.file("data/11.bin", "bytes");
  const std::string refusal = attach({}).refusal();
  EXPECT_THAT(refusal, HasSubstr("pipeline 'p': what was applied cannot be opened: "));
  EXPECT_THAT(refusal, HasSubstr(" has other files by now, or other classes"));
  EXPECT_EQ(view("p", self_.uid).items, 10U);

  std::filesystem::remove(files_.path("data/11.bin"));
  EXPECT_EQ(attach({}).attached().steps_per_epoch, 5U) << "it is listed again, and the same";
}

TEST_F(ClosedPipelinesTest, StayOpenWhereNothingKeepsTheirItems) {
  for (const auto& entry : std::filesystem::directory_iterator(state_dir_ + "/listings"))
    if (entry.path().extension() == ".idx") std::filesystem::remove(entry.path());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(catalogue_->close_unused(), 0U);
  EXPECT_EQ(attach({}).attached().steps_per_epoch, 5U);
}

TEST_F(ClosedPipelinesTest, GiveTheirMemoryToAnotherOneOfTheirUser) {
  stop();
  listing_memory_ = std::make_shared<ListingMemory>(std::uint64_t{5} << 20, TrustedUsers());
  start();
  for (const char* name : {"a", "b"}) {
    auto applied = apply_table(kOther, name);
    // The run of the first one's trial may be about to end.
    while (!applied && applied.error().code() == Code::kResourceExhausted)
      applied = apply_table(kOther, name);
    ASSERT_TRUE(applied) << applied.error().message();
    EXPECT_LE(listed(kOther), std::uint64_t{5} << 20);
  }
  const Rank rank = attach_for(kOther, "a");
  rank.attached();
  EXPECT_THAT(attach_for(kOther, "b").refusal(), HasSubstr("limits.listing_memory allows 5.0 MiB"));
  hang_up(rank);
  stop();
  start();
  service_->restore();
  EXPECT_EQ(view("a", kOther).items, 3000U);
  EXPECT_EQ(view("b", kOther).items, 3000U) << "a restart needs no more memory";
  attach_for(kOther, "b").attached();
}

TEST_F(SessionsTest, ClosesNoPipelineThatIsKeptNowhere) {
  EXPECT_EQ(catalogue_->close_unused() + catalogue_->close_unused(), 0U);
  EXPECT_EQ(attach({}).attached().steps_per_epoch, 5U);
}

}  // namespace
}  // namespace spdld::session
