// SPDX-License-Identifier: Apache-2.0
#include "observe/http_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/clocks.h"
#include "tests/unit/control/fake_service.h"
#include "tests/unit/observe/read_metrics.h"

namespace spdld::observe {
namespace {

using ::testing::ElementsAre;

constexpr uid_t kAnn = 1001;
constexpr uid_t kBob = 1002;

Peer user(uid_t uid) {
  Peer peer;
  peer.uid = uid;
  return peer;
}

class HttpPagesTest : public ::testing::Test {
 protected:
  HttpPagesTest() {
    service_.daemon_view.rows = 7;
    service_.daemon_view.storage = {{.device = "259:2", .mount = "/data", .stuck = 1}};
    service_.daemon_view.caches.emplace_back().name = "images";
    service_.daemon_view.gpus.emplace_back().uuid = "GPU-1";
    service_.job_view.job = "run";
    service_.job_view.owner = kAnn;
  }
  HttpPages make_pages(bool jobs = false) {
    return http_pages(
        service_, jobs, [this] { return not_ready_; }, clock_);
  }
  ReadMetrics metrics(const HttpPages& pages, const std::optional<Peer>& peer) {
    const HttpPage page = pages.at("/metrics")(peer);
    EXPECT_EQ(page.status, 200u);
    return read_metrics(*page.text);
  }

  control::FakeService service_;
  std::optional<std::string> not_ready_;
  testing::HandClock clock_;
};

TEST_F(HttpPagesTest, ShowAUserWhatThatUserMaySee) {
  const HttpPages pages = make_pages();
  EXPECT_TRUE(metrics(pages, user(kAnn)).samples.contains("spdld_job_rows_total"));
  EXPECT_EQ(service_.last_caller().uid, kAnn);
  metrics(pages, user(kBob));
  EXPECT_EQ(service_.last_caller().uid, kBob);
}

TEST_F(HttpPagesTest, ShowTotalsAloneToAPeerOfNoKnownUser) {
  const HttpPages pages = make_pages();
  const ReadMetrics told = metrics(pages, std::nullopt);
  EXPECT_EQ(told.value("spdld_rows_total"), 7);
  EXPECT_THAT(service_.calls(), ElementsAre("daemon"));
  for (const auto& [name, samples] : told.samples) {
    for (const std::string of : {"spdld_storage_", "spdld_cache_", "spdld_gpu_"})
      EXPECT_FALSE(name.starts_with(of)) << name;
    for (const auto& [labels, value] : samples) EXPECT_FALSE(labels.contains("job")) << name;
  }
}

TEST_F(HttpPagesTest, ShowEverybodyWhatAnAdminSeesWhereTheyMay) {
  const HttpPages pages = make_pages(true);
  const ReadMetrics told = metrics(pages, std::nullopt);
  EXPECT_EQ(service_.last_caller().uid, Credentials::kDaemon);
  EXPECT_TRUE(told.samples.contains("spdld_job_rows_total"));
  EXPECT_TRUE(told.samples.contains("spdld_storage_stuck"));
  metrics(pages, user(kBob));
  EXPECT_EQ(service_.last_caller().uid, kBob) << "a user is known, and sees its own";
}

TEST_F(HttpPagesTest, AreMadeOnceASecondForEachUser) {
  const HttpPages pages = make_pages();
  const auto& page = pages.at("/metrics");
  const auto first = page(user(kAnn)).text;
  clock_.advance(std::chrono::milliseconds(999));
  EXPECT_EQ(page(user(kAnn)).text, first);
  EXPECT_NE(page(user(kBob)).text, first);
  EXPECT_NE(page(std::nullopt).text, first);
  clock_.advance(std::chrono::milliseconds(1));
  EXPECT_NE(page(user(kAnn)).text, first);
}

TEST_F(HttpPagesTest, OfTheLatestUsersAreKeptWhereManyAsk) {
  const HttpPages pages = make_pages();
  const auto& page = pages.at("/metrics");
  const auto first = page(user(kAnn)).text;
  clock_.advance(std::chrono::milliseconds(1));
  for (uid_t uid = 2000; uid < 2015; ++uid) page(user(uid));
  const auto bob = page(user(kBob)).text;
  EXPECT_EQ(page(user(kBob)).text, bob);
  EXPECT_NE(page(user(kAnn)).text, first) << "it was the oldest of 16, and a 17th came";
}

TEST_F(HttpPagesTest, SayWhyTheDaemonIsNotReady) {
  const HttpPages pages = make_pages();
  const auto& page = pages.at("/readyz");
  EXPECT_EQ(page(std::nullopt).status, 200u);
  EXPECT_EQ(*page(std::nullopt).text, "ready\n");
  not_ready_ = "it stops";
  EXPECT_EQ(page(std::nullopt).status, 503u);
  EXPECT_EQ(*page(std::nullopt).text, "it stops\n");
  EXPECT_EQ(pages.at("/healthz")(std::nullopt).status, 200u) << "it lives none the less";
}

}  // namespace
}  // namespace spdld::observe
