// SPDX-License-Identifier: Apache-2.0
// What an apply finds out before anybody waits for the pipeline's first batch.
#include <memory>
#include <string>

#include "pipeline/trial.h"
#include "tests/support/fake_source.h"
#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

class FirstBatchTest : public SessionsTest {
 protected:
  Result<PipelineView> submit(const std::string& text, bool dry_run,
                              const Service::Progress& progress = nullptr) {
    job::ApplyRequest request;
    request.yaml = text;
    request.file = "-";
    request.dry_run = dry_run;
    return service_->apply(self_, request, progress);
  }
  // The ten files hold the word "bytes", which is no image.
  std::string decoded(const std::string& on_error = {}) const {
    return "pipeline: d\nsource:\n  files: {root: " + files_.path("data") +
           ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n  - decode_image\n  - resize: "
           "{size: [8, 8]}\nbatch: {size: 2, last: drop}\n" +
           on_error;
  }
  std::string replaced(std::string text, const std::string& from, const std::string& to) const {
    text.replace(text.find(from), from.size(), to);
    return text;
  }
};

TEST_F(FirstBatchTest, ApplyRefusesItemsThatCannotBeDecoded) {
  for (const bool dry_run : {true, false}) {
    const auto refused = submit(decoded(), dry_run);
    ASSERT_FALSE(refused);
    const std::string& why = refused.error().message();
    EXPECT_TRUE(why.starts_with("a first batch could not be made: pipeline 'd', item ")) << why;
    EXPECT_NE(why.find(".bin"), std::string::npos) << why;
  }
  EXPECT_FALSE(service_->pipeline(self_, "d"));
}

TEST_F(FirstBatchTest, ApplyRefusesItemsThatNoSubstituteReplaces) {
  const auto refused = submit(decoded("on_error: {decode: replace}\n"), false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("16 items tried in its place"), std::string::npos)
      << refused.error().message();
}

TEST_F(FirstBatchTest, ApplySaysHowManyBytesEncodedRowsNeed) {
  const auto refused = submit(replaced(yaml("e", "drop"), "4KiB", "7B"), false);
  ASSERT_FALSE(refused);
  EXPECT_NE(
      refused.error().message().find("the rows of 'image' take 10 bytes, and batch.max_bytes is 7: "
                                     "raise it, with room for larger rows, or lower"),
      std::string::npos)
      << refused.error().message();
}

TEST_F(FirstBatchTest, ApplyRefusesSlotsThatTheBudgetNeverHolds) {
  for (const bool dry_run : {true, false}) {
    const auto refused = submit(replaced(yaml("e", "drop"), "4KiB", "1GiB"), dry_run);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    const std::string& why = refused.error().message();
    EXPECT_TRUE(why.starts_with("pipeline 'e' does not fit: each consumer needs ")) << why;
    EXPECT_NE(why.find("arena.budget is 1.0 GiB; lower batch.size or delivery.prefetch, or have "
                       "arena.budget raised"),
              std::string::npos)
        << why;
  }
}

TEST_F(FirstBatchTest, ApplyTakesABatchLargerThanItsDataset) {
  EXPECT_TRUE(submit(replaced(yaml("e", "pad"), "size: 2", "size: 64"), false));
}

TEST_F(FirstBatchTest, ApplyRefusesMoreBadItemsThanTheBudgetHas) {
  const auto refused =
      submit(decoded("on_error: {decode: replace, budget: {fraction: 0, min: 0}}\n"), true);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("on_error.budget"), std::string::npos)
      << refused.error().message();
}

TEST_F(FirstBatchTest, ApplyTellsWhichItemsOthersHaveReplaced) {
  for (int i = 0; i < 10; ++i)
    files_.file("data/" + std::to_string(i) + ".bin", i == 1 ? "no JSON" : R"({"n": 1})");
  const std::string json =
      replaced(replaced(decoded("on_error: {decode: replace, budget: {min: 5}}\n"), "decode_image",
                        "decode_json: {field: image, values: {n: {pointer: /n, type: int64}}}"),
               "  - resize: {size: [8, 8]}\n", "");
  for (const bool dry_run : {true, false}) {
    const auto applied = submit(json, dry_run);
    ASSERT_TRUE(applied) << applied.error().message();
    ASSERT_EQ(applied->warnings.size(), 1U);
    const std::string& warning = applied->warnings.front();
    EXPECT_TRUE(
        warning.starts_with("pipeline 'd': in a first batch 1 item could not be made, and "
                            "on_error has had others take the place; the first: 1.bin: "))
        << warning;
  }
  const auto again = submit(json, false);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->warnings.empty()) << "no batch is made of what is there already";
}

TEST_F(FirstBatchTest, ApplyWithJobsMakesATrialThoughThereIsNone) {
  job::ApplyRequest request;
  request.yaml = decoded();
  request.file = "-";
  const auto refused = service_->swap(self_, request, {}, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message().starts_with("a first batch could not be made"))
      << refused.error().message();
}

// A pipeline whose storage does not answer.
class HungTrialTest : public FirstBatchTest {
 protected:
  void SetUp() override {
    FirstBatchTest::SetUp();
    job::ApplyRequest request;
    request.yaml = yaml("e", "drop");
    request.file = "-";
    const auto built = catalogue_->build({.uid = self_.uid}, request, nullptr);
    ASSERT_TRUE(built);
    for (std::uint64_t item = 0; item < 10; ++item) hung_->hold(item);
    pipeline_ = **built;
    pipeline_.source = hung_;
  }
  // With nobody who waits once its rows are asked for: what was told until then.
  std::string give_up() {
    std::string told;
    const auto given_up = sessions_->trials().first_batch(
        self_.uid, pipeline_, [&](std::uint64_t rows, const std::string& what, const auto&) {
          EXPECT_EQ(rows, 0U);
          told = what;
          return false;
        });
    EXPECT_EQ(given_up.error().code(), Code::kCancelled);
    return told;
  }

  const std::shared_ptr<spdld::testing::FakeSource> hung_ =
      std::make_shared<spdld::testing::FakeSource>(spdld::testing::FakeSource::numbered(10));
  pipeline::PipelineVersion pipeline_;
};

TEST_F(HungTrialTest, EndsWhenNobodyWaitsForIt) {
  EXPECT_EQ(give_up(), "rows of a batch");
  hung_->answer();
}

TEST_F(HungTrialTest, CountsForItsUserUntilItsStorageAnswers) {
  const std::string being_made = "rows of a batch";
  // Two that come on, and eight in all: those that were given up leave room for others.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(give_up(), being_made);
  hung_->wait_for_readers(4);
  EXPECT_EQ(give_up(), being_made + " (others of this user are being made)");
  hung_->answer();
  pipeline_.source =
      std::make_shared<spdld::testing::FakeSource>(spdld::testing::FakeSource::numbered(10));
  EXPECT_TRUE(sessions_->trials().first_batch(self_.uid, pipeline_, nullptr));
}

}  // namespace
}  // namespace spdld::session
