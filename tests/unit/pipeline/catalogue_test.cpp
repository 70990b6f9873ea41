// SPDX-License-Identifier: Apache-2.0
// Whom a listing serves, and what of an applied pipeline needs none.
#include "pipeline/catalogue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/plan/builtin_ops.h"
#include "tests/unit/pipeline/asking.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::pipeline {
namespace {

bool is_under_way(const Asked<PipelinePtr>& answer) { return answer && !*answer; }

class CatalogueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    files_.age();
    restart();
  }
  void restart() {
    catalogue_ = nullptr;
    catalogue_ = std::make_unique<Catalogue>(CatalogueOptions{.state_dir = files_.path("state")},
                                             engine::builtin_ops(), io_, caches_);
  }
  job::ApplyRequest request(const std::string& more = "") const {
    job::ApplyRequest request;
    request.yaml =
        "pipeline: p\nvars: {last: drop}\nsource:\n  files: {root: " + files_.path("data") +
        ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n"
        "batch: {size: 2, max_bytes: 4KiB, last: \"${last}\"}\n" +
        more;
    request.file = "-";
    return request;
  }
  PipelinePtr build(const job::ApplyRequest& request) {
    auto built = catalogue_->build(owner_, request, nullptr);
    EXPECT_TRUE(built) << built.error().message();
    return built ? *built : nullptr;
  }
  PipelinePtr put(const PipelinePtr& pipeline) {
    auto put = catalogue_->table().put(owner_.uid, pipeline);
    EXPECT_TRUE(put) << put.error().message();
    return put ? *put : nullptr;
  }
  // As a daemon has it that was started again.
  PipelinePtr recalled(const PipelinePtr& applied) {
    restart();
    auto recalled = catalogue_->recall(owner_, applied->request, {.version = applied->version});
    EXPECT_TRUE(recalled) << recalled.error().message();
    return recalled ? put(*recalled) : nullptr;
  }
  Asked<PipelinePtr> variant(const PipelinePtr& base, Asking& asking) {
    return catalogue_->variant(base, {.reader = Credentials::own()}, asking.asker());
  }
  // Asks until there is an answer.
  PipelinePtr opened(const PipelinePtr& base, Asking& asking) {
    for (;;) {
      auto answer = variant(base, asking);
      EXPECT_TRUE(answer) << answer.error().message();
      if (!answer) return nullptr;
      if (*answer) return **answer;
      asking.await_told();
    }
  }

  source::TempDir files_;
  const job::PipelineOwner owner_{.uid = ::geteuid(), .shared = true};
  source::IoPool io_{source::IoPool::Options{.threads = 2}};
  engine::SampleCaches caches_{engine::SampleCachesOptions{.ram_bytes = 1 << 20, .io = io_}};
  std::unique_ptr<Catalogue> catalogue_;
};

TEST_F(CatalogueTest, AnAppliedPipelineComesBackClosedFromItsRecord) {
  const PipelinePtr applied = build(request());
  ASSERT_FALSE(applied->closed);
  // Neither what has come to its directory nor that directory is looked at.
  files_.file("data/more.bin");
  const PipelinePtr back = recalled(applied);
  EXPECT_TRUE(back->closed);
  EXPECT_EQ(back->source->size(), 10U);
  EXPECT_EQ(back->content_digest, applied->content_digest);
  EXPECT_EQ(back->order().digest(), applied->order().digest());
  EXPECT_TRUE(catalogue_->listings().users().empty());
}

TEST_F(CatalogueTest, AClosedPipelineIsOpenedForWhoAsksForIt) {
  const PipelinePtr back = recalled(build(request()));
  Asking asking;
  EXPECT_TRUE(is_under_way(variant(back, asking)));
  const PipelinePtr open = opened(back, asking);
  ASSERT_NE(open, nullptr);
  EXPECT_FALSE(open->closed);
  EXPECT_EQ(open->source->uri(0), "0.bin");
  EXPECT_EQ(catalogue_->table().find("p"), open);
  Asking later;
  const auto at_once = variant(back, later);
  ASSERT_TRUE(at_once && *at_once);
  EXPECT_EQ(**at_once, open);
}

TEST_F(CatalogueTest, AVariantComesBackWithItsBatchSizeBesideItsOpenBase) {
  const PipelinePtr base = put(build(request()));
  const auto sized =
      catalogue_->variant(base, {.batch_size = 5, .reader = Credentials::own()}, nullptr);
  ASSERT_TRUE(sized);
  const PipelinePtr back = recalled(base);
  const auto closed = catalogue_->recall(owner_, (*sized)->request,
                                         {.version = base->version, .batch_size = 5, .reader = {}});
  ASSERT_TRUE(closed);
  EXPECT_TRUE((*closed)->closed);
  EXPECT_EQ((*closed)->content_digest, (*sized)->content_digest);
  ASSERT_TRUE(catalogue_->variant(back, {.reader = Credentials::own()}, nullptr));
  const auto open = catalogue_->variant(*closed, {.reader = Credentials::own()}, nullptr);
  ASSERT_TRUE(open);
  EXPECT_FALSE((*open)->closed);
  EXPECT_EQ((*open)->plan->spec.batch.size, 5);
}

TEST_F(CatalogueTest, APipelineThatComesBackHasItsCache) {
  const PipelinePtr applied = build(request("cache: {form: encoded, size: 1MiB, where: ram}\n"));
  ASSERT_TRUE(applied->cache);
  const PipelinePtr back = recalled(applied);
  EXPECT_EQ(back->content_digest, applied->content_digest);
  Asking asking;
  const PipelinePtr open = opened(back, asking);
  ASSERT_NE(open, nullptr);
  EXPECT_TRUE(open->cache);
}

TEST_F(CatalogueTest, APipelineWhoseRecordIsLostIsListedAgain) {
  const PipelinePtr applied = build(request());
  files_.remove("state");
  const PipelinePtr back = recalled(applied);
  EXPECT_FALSE(back->closed);
  EXPECT_EQ(back->content_digest, applied->content_digest);
}

TEST_F(CatalogueTest, AnAskerIsToldOfAVariantThatItAskedFor) {
  const PipelinePtr base = put(build(request()));
  Asking asking;
  const auto ask = [&] {
    return catalogue_->variant(base, {.vars = {{"last", "keep"}}, .reader = Credentials::own()},
                               asking.asker());
  };
  EXPECT_TRUE(is_under_way(ask()));
  asking.await_told();
  const auto made = ask();
  ASSERT_TRUE(made && *made);
  EXPECT_NE((**made)->content_digest, base->content_digest);
}

TEST_F(CatalogueTest, AFailureIsTheSameForWhoAsksAndForWhoWaits) {
  job::ApplyRequest missing = request();
  files_.remove("data");
  const auto waited = catalogue_->build(owner_, missing, nullptr);
  ASSERT_FALSE(waited);
  Asking asking;
  ASSERT_TRUE(is_under_way(catalogue_->build(owner_, missing, asking.asker())));
  asking.await_told();
  const auto asked = catalogue_->build(owner_, missing, asking.asker());
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message(), waited.error().message());
}

TEST_F(CatalogueTest, ListsNothingOnceItIsStopped) {
  catalogue_->listings().stop();
  const auto refused = catalogue_->build(owner_, request(), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_TRUE(catalogue_->listings().idle_within(std::chrono::hours(1)));
}

}  // namespace
}  // namespace spdld::pipeline
