// SPDX-License-Identifier: Apache-2.0
// Whose batches come to a GPU, and what becomes of those whose batches cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/unit/session/sessions_gpu_fixture.h"
#include "tests/unit/stream/hand_devices.h"

namespace spdld::session {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kOrFail = "device: cuda";
const std::string kOrHost = "device: cuda, on_unavailable: host";
const std::string kHost = "device: cpu";

class SessionsGpuTest : public ArraysTest {
 protected:
  SessionsGpuTest() { use(std::make_unique<stream::testing::HandDevices>()); }
  void TearDown() override {
    ArraysTest::TearDown();
    for (const std::size_t index : {0, 1}) gpus_->await_no_user(index);
  }
  void use(std::unique_ptr<stream::testing::HandDevices> devices) {
    gpus_ = devices.get();
    devices_ = std::move(devices);
  }
  static std::string attach_answer(const Rank& rank) {
    std::string texts;
    rank.next<wire::AttachedFrame>(wire::FrameType::kAttached, &texts);
    return texts;
  }
  Rank attach_to_j(const std::string& device = "GPU-1") {
    return attach({.pipeline = "g", .job = "j", .device = device});
  }

  stream::testing::HandDevices* gpus_ = nullptr;
};

TEST_F(SessionsGpuTest, LoaderThatNamesNoGpuIsRefusedWithTheWaysOut) {
  apply_arrays(kOrFail);
  EXPECT_THAT(attach({.pipeline = "g"}).refusal(),
              AllOf(HasSubstr("pipeline 'g' delivers to GPUs, and this loader's batches cannot lie "
                              "there: it names none; open it with device=\"cuda\""),
                    HasSubstr("'on_unavailable: host' takes main memory")));
  EXPECT_TRUE(sessions_->reports().jobs(self_).empty());
}

TEST_F(SessionsGpuTest, LoaderThatNamesNoGpuMayBeLeftInMainMemory) {
  apply_arrays(kOrHost);
  const Rank rank = attach({.pipeline = "g"});
  EXPECT_THAT(attach_answer(rank),
              AllOf(HasSubstr("this loader's batches lie in main memory: it names none"),
                    HasSubstr("; one with device= copies them to its GPU itself")));
  read(rank, 0, 4, false);
}

TEST_F(SessionsGpuTest, NobodyNeedsAGpuWhereNoFieldIsLargeEnough) {
  job::ApplyRequest request = arrays(kOrFail);
  const std::string size = "{size: 2";
  request.yaml.replace(request.yaml.find(size), size.size(), "{size: 1");
  ASSERT_TRUE(service_->apply(self_, request, nullptr));
  read(attach({.pipeline = "g"}), 0, 4, false);
  read(attach_to_j(), 0, 4, false);
  EXPECT_EQ(gpus_->opened(), 0);
}

TEST_F(SessionsGpuTest, PreviewNeedsNoGpu) {
  gpus_->refuse("there is none");
  apply_arrays(kOrFail);
  const auto shown = service_->preview(self_, arrays(kOrFail), 2, nullptr);
  EXPECT_TRUE(shown) << shown.error().message();
  EXPECT_EQ(gpus_->opened(), 0);
}

TEST_F(SessionsGpuTest, LoaderReadsOnTheGpuThatItNames) {
  apply_arrays(kOrFail);
  const Rank rank = attach_to_j("GPU-2");
  EXPECT_THAT(attach_answer(rank), HasSubstr("GPU-2"));
  read(rank, 0, 4, true);
  EXPECT_EQ(gpus_->users(0), 0);
  sessions_->detach(*rank.connection);
  hang_up(rank);
  gpus_->await_no_user(1);
}

TEST_F(SessionsGpuTest, RankThatComesWhileASwapToItsGpuIsWrittenReadsThereFromThePointOn) {
  apply_arrays(kHost);
  Wish wish{.pipeline = "g", .job = "j", .shard = 0, .num_shards = 2, .device = "GPU-1"};
  const Rank first = attach(wish);
  read(first, 0, 1, false);
  Rank second;
  const auto write = [&](const std::vector<store::StoredJob>&) {
    wish.shard = 1;
    wish.device = "GPU-2";
    second = attach(wish);
    second.next<wire::ProgressFrame>(wire::FrameType::kProgress);
    return Status();
  };
  ASSERT_TRUE(swap_by(write, arrays(kOrFail), at(5)).ok());
  read(second, 0, 5, false);
  read(second, 5, kSteps / 2, true);
}

TEST_F(SessionsGpuTest, RankWithoutTheGpuThatASwapNeedsIsRefusedOnceThatIsWritten) {
  apply_arrays(kHost);
  JobRequest declared;
  declared.job = "j";
  declared.pipeline = "g";
  ASSERT_TRUE(service_->create_job(self_, declared, nullptr));
  for (const bool written : {false, true}) {
    Rank rank;
    const auto write = [&](const std::vector<store::StoredJob>&) {
      rank = attach_to_j("GPU-9");
      rank.next<wire::ProgressFrame>(wire::FrameType::kProgress);
      return written ? Status() : Status(Code::kUnavailable, "no disk");
    };
    EXPECT_EQ(swap_by(write, arrays(kOrFail), at(8)).ok(), written);
    if (written) {
      EXPECT_THAT(rank.refusal(), HasSubstr("cannot lie there: there is no GPU-9"));
    } else {
      read(rank, 0, 2, false);
      hang_up(rank);
    }
  }
}

// The swap is planned for the ranks that were there then.
TEST_F(SessionsGpuTest, RankThatComesWhileASwapToItsGpuIsPlannedReadsThereFromThePointOn) {
  apply_arrays(kHost);
  const Wish wish{.pipeline = "g", .job = "j", .shard = 0, .num_shards = 2, .device = "GPU-1"};
  const Rank first = attach(wish);
  first.attached();
  std::optional<Rank> second;
  gpus_->when_opened([&] {
    Wish other = wish;
    other.shard = 1;
    other.device = "GPU-2";
    second.emplace(attach(other));
    second->attached();
    read(*second, 0, 1, false);
  });
  const auto swapped = swap_to(kOrFail, 5);
  ASSERT_TRUE(swapped) << swapped.error().message();
  read(*second, 1, 5, false);
  read(*second, 5, kSteps / 2, true);
  read(first, 0, 5, false);
  read(first, 5, kSteps / 2, true);
}

TEST_F(SessionsGpuTest, SwapToAGpuThatCannotBeHadNamesTheRankAndChangesNothing) {
  apply_arrays(kHost);
  const Rank rank = attach_to_j();
  read(rank, 0, 1, false);
  gpus_->refuse("it has left");
  const auto refused = swap_to(kOrFail, 6);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("session " + std::to_string(rank.connection->id()) + " (pid "),
                    HasSubstr("cannot lie there: it has left")));
  ASSERT_TRUE(swap_to(kOrHost, 6));
  read(rank, 1, kSteps, false);
}

TEST_F(SessionsGpuTest, AttachThatFindsItsGpuFullIsRefusedOrReadsMainMemory) {
  gpus_->gpu(0).set_limit(0);
  apply_arrays(kOrFail);
  EXPECT_THAT(attach_to_j().refusal(), HasSubstr("3 slots of"));
  apply_arrays(kOrHost, "h");
  const Rank rank = attach({.pipeline = "h", .device = "GPU-1"});
  EXPECT_THAT(attach_answer(rank), HasSubstr("batches lie in main memory: pipeline 'h' needs"));
  read(rank, 0, 4, false);
  gpus_->await_no_user(0);
}

class FullGpuTest : public SessionsGpuTest {
 protected:
  static constexpr std::uint64_t kGpuBytes = std::uint64_t{1} << 20;

  std::unique_ptr<delivery::DeviceArena> fill() {
    gpus_->gpu(0).set_limit(kGpuBytes);
    // Memory that a reader has left is given back by the GPU's thread.
    while (gpus_->gpu(0).bytes() > 0) std::this_thread::yield();
    auto all = gpus_->gpu(0).allocate(kGpuBytes);
    EXPECT_TRUE(all);
    return std::move(*all);
  }
  static void await_waiting(const Rank& rank) {
    std::string what;
    rank.next<wire::ProgressFrame>(wire::FrameType::kProgress, &what);
    EXPECT_THAT(what, HasSubstr("its GPU is full"));
  }
  void lose_patience(const Rank& rank) {
    await_waiting(rank);
    clock_.advance(std::chrono::seconds(3));
    sessions_->tick();
  }
};

TEST_F(FullGpuTest, AttachWaitsForMemoryThatIsJustBeingGivenBack) {
  for (const std::string& delivery : {kOrFail, kOrHost}) {
    apply_arrays(delivery);
    auto all = fill();
    const Rank rank = attach_to_j();
    await_waiting(rank);
    all.reset();
    sessions_->tick();
    read(rank, 0, 4, true);
    hang_up(rank);
    gpus_->await_no_user(0);
  }
}

TEST_F(FullGpuTest, AttachWaitsForAConsumerThatIsJustLeaving) {
  apply_arrays(kOrFail);
  const Rank leaves = attach({.pipeline = "g", .job = "leaves", .device = "GPU-1"});
  for (int held = 0; held < 2; ++held) ASSERT_TRUE(is_on_gpu(leaves.any_batch()));
  gpus_->gpu(0).set_limit(gpus_->gpu(0).bytes());
  job::ApplyRequest other = arrays(kOrFail, "other");
  other.yaml += "seed: 3\n";  // it shares no batches
  ASSERT_TRUE(service_->apply(self_, other, nullptr));
  const Rank rank = attach({.pipeline = "other", .job = "j", .device = "GPU-1"});
  await_waiting(rank);
  hang_up(leaves);
  read(rank, 0, 4, true);
}

TEST_F(FullGpuTest, AttachIsRefusedOrReadsMainMemoryWhereNothingIsGivenBack) {
  const auto all = fill();
  apply_arrays(kOrFail);
  const Rank refused = attach_to_j();
  lose_patience(refused);
  EXPECT_THAT(refused.refusal(), HasSubstr("3 slots of"));
  apply_arrays(kOrHost, "h");
  const Rank rank = attach({.pipeline = "h", .device = "GPU-1"});
  lose_patience(rank);
  EXPECT_THAT(attach_answer(rank), HasSubstr("; this loader copies them to its GPU itself"));
  read(rank, 0, 4, false);
}

TEST_F(SessionsGpuTest, SwapThatFindsTheGpuFullIsRefusedOrReadsMainMemory) {
  apply_arrays(kHost);
  const Rank rank = attach_to_j();
  read(rank, 0, 1, false);
  gpus_->gpu(0).set_limit(0);
  const auto refused = swap_to(kOrFail, 6);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("3 slots of"));
  const auto swapped = swap_to(kOrHost, 6);
  ASSERT_TRUE(swapped) << swapped.error().message();
  read(rank, 1, kSteps, false);
  gpus_->await_no_user(0);
}

// What another job shares with it stays there, so that it needs slots of its own.
TEST_F(SessionsGpuTest, SeekThatFindsTheGpuFullReadsMainMemory) {
  apply_arrays(kOrHost);
  const Rank other = attach({.pipeline = "g", .job = "other", .device = "GPU-1"});
  attach_answer(other);  // it is there before the GPU is full
  const Rank rank = attach_to_j();
  const std::array held = {rank.any_batch(), rank.any_batch()};
  EXPECT_TRUE(is_on_gpu(held[0]));
  gpus_->gpu(0).set_limit(gpus_->gpu(0).bytes());
  sessions_->seek(*rank.connection, {.turn = held.size(), .serial = 1});
  for (const wire::BatchFrame& batch : held) sessions_->release(*rank.connection, batch.lease);
  EXPECT_EQ(rank.next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
  read(rank, 0, 4, false);
  read(other, 0, 4, true);
}

TEST_F(SessionsGpuTest, MeasurementTakesAsManySlotsAsTheGpuHolds) {
  apply_arrays(kOrFail);
  const Rank rank = attach_to_j();
  read(rank, 0, 1, true);
  // Three slots, as many again, and 17: 65 would never fit there.
  gpus_->gpu(0).set_limit((3 + 3 + 17) * 2 * kArrayBytes + 4096);
  auto measured = std::async(std::launch::async, [&] {
    return service_->headspace(self_, "j", "", 100, [](auto...) { return true; });
  });
  while (measured.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const wire::BatchFrame batch = rank.any_batch();
    EXPECT_TRUE(is_on_gpu(batch));
    sessions_->release(*rank.connection, batch.lease);
  }
  const auto found = measured.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "");
  EXPECT_EQ(found->warning, "");
  EXPECT_EQ(found->prefetch, 16U);
}

TEST_F(SessionsGpuTest, JobThatMayLeaveItsGpuIsNotMeasured) {
  apply_arrays(kOrHost);
  const Rank rank = attach_to_j();
  read(rank, 0, 1, true);
  const auto refused = service_->headspace(self_, "j", "", 100, [](auto...) { return true; });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("(on_unavailable: host)"));
}

TEST_F(SessionsGpuTest, ApplyRefusesSlotsThatTheGpusBudgetNeverHolds) {
  stop();
  use(std::make_unique<stream::testing::HandDevices>(3 * 2 * kArrayBytes - 1));
  start();
  const auto refused = service_->apply(self_, arrays(kOrFail), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("pipeline 'g' does not fit on a GPU: each consumer needs 2.0 MiB"),
                    HasSubstr("there (3 slots of "), HasSubstr("and cuda.budget is 23")));
  const auto warned = service_->apply(self_, arrays(kOrHost), nullptr);
  ASSERT_TRUE(warned) << warned.error().message();
  EXPECT_THAT(warned->warnings,
              ::testing::Contains(HasSubstr("until then its batches lie in main memory")));
}

}  // namespace
}  // namespace spdld::session
