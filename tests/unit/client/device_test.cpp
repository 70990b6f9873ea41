// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/fake_daemon.h"
#include "tests/unit/client/fake_gpu.h"
#include "tests/unit/client/looks.h"
#include "tests/unit/client/thrown.h"

// A loader whose large fields come on a device. The driver is the fake one, whose copies and
// kernels run late and in a drawn order.
namespace spdld {
namespace {

using test::FakeDaemon;
using test::FakeGpu;
using test::FakePipeline;
using test::FakeService;
using test::Looks;
using test::thrown;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceTest : public ::testing::Test {
 protected:
  static LoaderOptions options(const FakeDaemon& daemon) {
    LoaderOptions options = test::options_for(daemon);
    options.device = "cuda";
    return options;
  }

  void look_at(const Batch& batch, CUstream stream) { looks_.make_ready_and_launch(batch, stream); }
  void expect_all_right(const std::vector<CUstream>& streams, std::size_t looks) {
    looks_.expect_all_right(streams, looks);
  }

  FakeGpu gpu_;
  Looks looks_{gpu_};
};

TEST_F(DeviceTest, LargeFieldsComeOnTheDeviceAndSmallOnesDoNot) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->device(), 0);
  EXPECT_TRUE((*batch)["image"].on_device);
  EXPECT_FALSE((*batch)["label"].on_device);
  EXPECT_EQ(*reinterpret_cast<const std::int64_t*>((*batch)["label"].data), 0);
  EXPECT_EQ(batch->text("caption", 3), "row 3");
  look_at(*batch, stream);
  expect_all_right({stream}, 1);
  EXPECT_EQ(loader.stats().staged, 0u);
}

TEST_F(DeviceTest, NoBufferIsFilledWhileAKernelReadsIt) {
  FakeDaemon daemon({.steps = 40});
  Loader loader = Loader::open(options(daemon));
  const std::vector<CUstream> streams{gpu_.make_stream(), gpu_.make_stream()};
  std::size_t looks = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (const auto batch = loader.next()) look_at(*batch, streams[looks++ % 2]);
  }
  EXPECT_EQ(looks, 120u);
  expect_all_right(streams, looks);
  // The buffers are used again and again.
  EXPECT_LE(gpu_.calls("cuMemAlloc"), 10u);
}

TEST_F(DeviceTest, AStreamThatIsRecordedHoldsTheMemoryToo) {
  FakeDaemon daemon({.steps = 30});
  Loader loader = Loader::open(options(daemon));
  CUstream first = gpu_.make_stream();
  CUstream second = gpu_.make_stream();
  CUevent event = nullptr;
  FakeGpu::check(gpu_.functions().EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  std::size_t looks = 0;
  while (const auto batch = loader.next()) {
    batch->make_ready(reinterpret_cast<std::uintptr_t>(first));
    FakeGpu::check(gpu_.functions().EventRecord(event, first));
    FakeGpu::check(gpu_.functions().StreamWaitEvent(second, event, 0));
    looks_.launch(*batch, second);
    batch->record_stream(reinterpret_cast<std::uintptr_t>(second));
    ++looks;
  }
  expect_all_right({first, second}, looks);
}

TEST_F(DeviceTest, SlotsGoBackOnceTheyHaveBeenRead) {
  FakeDaemon daemon({.steps = 12, .epochs = 1});
  Loader loader = Loader::open(options(daemon));
  std::vector<Batch> held;
  held.reserve(4);
  // All that it may hold, on the device: no slot of the daemon's is held for it.
  for (int i = 0; i < 4; ++i) held.push_back(*loader.next());
  const LeaseError full = thrown<LeaseError>([&] { (void)loader.next(); });
  EXPECT_THAT(full.what(), AllOf(HasSubstr("all 4 batches"), HasSubstr("on the device")));
  EXPECT_EQ(loader.stats().batches, 4u);
  held.clear();
  for (std::uint64_t step = 4; step < 12; ++step) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step(), step);
  }
  EXPECT_FALSE(loader.next());
  loader.close();
  EXPECT_EQ(daemon.service().bad_releases, 0);
}

TEST_F(DeviceTest, AfterASeekComesWhatWasAskedFor) {
  FakeDaemon daemon({.steps = 20});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  look_at(*loader.next(), stream);
  look_at(*loader.next(), stream);
  const Cursor after = loader.state();
  EXPECT_EQ(after.step, 2u);
  for (int i = 0; i < 5; ++i) look_at(*loader.next(), stream);
  loader.load_state(after);
  const auto again = loader.next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step(), 2u);
  look_at(*again, stream);
  loader.set_epoch(3);
  const auto other = loader.next();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->epoch(), 3u);
  EXPECT_EQ(other->step(), 0u);
  look_at(*other, stream);
  loader.skip_steps(4);
  EXPECT_EQ(loader.next()->step(), 5u);
  expect_all_right({stream}, 9);
}

TEST_F(DeviceTest, ARestartedDaemonGoesOnWithTheNextBatch) {
  FakeDaemon daemon({.steps = 10});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  for (std::uint64_t step = 0; step < 3; ++step) look_at(*loader.next(), stream);
  const auto held = loader.next();
  daemon.stop();
  daemon.start();
  for (std::uint64_t step = 4; step < 10; ++step) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step(), step);
    look_at(*batch, stream);
  }
  look_at(*held, stream);  // as it was
  EXPECT_FALSE(loader.next());
  expect_all_right({stream}, 10);
}

TEST_F(DeviceTest, WhatIsToldOfThePipelineIsOfTheBatchHandedOut) {
  FakeDaemon daemon({.steps = 8});
  daemon.run([](FakeService& service) {
    service.swap_to = {.steps = 5, .rows = 6, .order_digest = "0ther", .version = 4};
  });
  Loader loader = Loader::open(options(daemon));
  for (std::uint64_t step = 0; step < 8; ++step) {
    ASSERT_TRUE(loader.next());
    if (step == 0) {
      EXPECT_EQ(loader.apply({{"size", "6"}}).epoch, 1u);
    }
    // Batches of the other version may be here already.
    EXPECT_EQ(loader.pipeline_version(), 3u);
    EXPECT_EQ(loader.steps_per_epoch(), 8u);
    EXPECT_EQ(loader.state().order_digest, "0rder");
  }
  EXPECT_FALSE(loader.next());
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->pipeline_version(), 4u);
  EXPECT_EQ(loader.pipeline_version(), 4u);
  EXPECT_EQ(loader.state().order_digest, "0ther");
}

TEST_F(DeviceTest, ACapturedStreamIsRefused) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  auto batch = loader.next();
  gpu_.begin_capture(stream);
  const LeaseError refused = thrown<LeaseError>([&] { batch->make_ready(number); });
  EXPECT_THAT(refused.what(), AllOf(HasSubstr("captured"), HasSubstr("Copy it")));
  thrown<LeaseError>([&] { batch->record_stream(number); });
  // The capture goes on, whatever the loader does meanwhile.
  EXPECT_TRUE(loader.next());
  gpu_.end_capture(stream);
  look_at(*batch, stream);
  expect_all_right({stream}, 1);
}

TEST_F(DeviceTest, ABatchThatIsLetGoOfWhileItsStreamIsCapturedStays) {
  FakeDaemon daemon({.steps = 30});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  std::size_t looks = 0;
  for (; looks < 20; ++looks) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    look_at(*batch, stream);
    if (looks % 5 != 0) continue;
    gpu_.begin_capture(stream);
    batch.reset();
    batch = loader.next();
    ++looks;
    gpu_.end_capture(stream);
    look_at(*batch, stream);
  }
  expect_all_right({stream}, looks);
}

TEST_F(DeviceTest, ABufferThatACapturedStreamReadsIsNotFilled) {
  FakeDaemon daemon({.steps = 30});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  CUstream other = gpu_.make_stream();
  test::Gate gate(gpu_, stream);
  auto batch = loader.next();
  look_at(*batch, stream);
  gpu_.begin_capture(stream);
  batch.reset();
  for (int i = 0; i < 6; ++i) look_at(*loader.next(), other);
  gpu_.end_capture(stream);
  FakeGpu::check(gpu_.functions().StreamSynchronize(other));
  gate.open();
  expect_all_right({stream, other}, 7);
}

TEST_F(DeviceTest, WhatACaptureMayReadIsFreedAfterIt) {
  const FakeCudaCounts before = gpu_.counts();
  FakeDaemon daemon({.steps = 30});
  {
    Loader loader = Loader::open(options(daemon));
    CUstream stream = gpu_.make_stream();
    auto batch = loader.next();
    look_at(*batch, stream);
    expect_all_right({stream}, 1);
    gpu_.begin_capture(stream);
    batch.reset();
    loader.close();
    EXPECT_GT(gpu_.counts().device_bytes, before.device_bytes);
    gpu_.end_capture(stream);
  }
  EXPECT_EQ(gpu_.counts().device_bytes, before.device_bytes);
}

TEST_F(DeviceTest, AllIsGivenBackInTheEnd) {
  const FakeCudaCounts before = gpu_.counts();
  {
    FakeDaemon daemon({.steps = 30});
    Loader loader = Loader::open(options(daemon));
    std::vector<Batch> held;
    held.reserve(3);
    for (int i = 0; i < 3; ++i) held.push_back(*loader.next());
    loader.close();
    EXPECT_GT(gpu_.counts().device_bytes, before.device_bytes);
  }
  const FakeCudaCounts after = gpu_.counts();
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.registrations, before.registrations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.contexts, before.contexts);
}

TEST_F(DeviceTest, AClosedLoaderKeepsNoMemoryOnTheDevice) {
  const FakeCudaCounts before = gpu_.counts();
  FakeDaemon daemon({.steps = 30});
  Loader loader = Loader::open(options(daemon));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(loader.next());
  loader.close();
  EXPECT_EQ(gpu_.counts().device_bytes, before.device_bytes);
}

TEST_F(DeviceTest, AReleasedBatchHasNothingToCopy) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  auto batch = loader.next();
  batch->release();
  EXPECT_THAT(thrown<LeaseError>([&] { (void)batch->copy(); }).what(), HasSubstr("was released"));
}

TEST_F(DeviceTest, ABatchWhoseTextsStayInItsSlotIsReleasedAtOnce) {
  FakeDaemon daemon({.steps = 12, .epochs = 1, .caption_bytes = 32 * 1024});
  Loader loader = Loader::open(options(daemon));
  std::uint64_t steps = 0;
  for (; auto batch = loader.next(); ++steps) {
    EXPECT_FALSE((*batch)["caption"].on_device);
    const std::string row = "row " + std::to_string(steps * 4 + 1) + ".";
    EXPECT_EQ(batch->text("caption", 1).substr(0, row.size()), row);
    batch->release();
    EXPECT_TRUE(batch->released());
  }
  EXPECT_EQ(steps, 12u);
  EXPECT_EQ(daemon.service().bad_releases, 0);
}

TEST_F(DeviceTest, HoldingTheTextsOfAllBatchesIsALeaseError) {
  FakeDaemon daemon({.steps = 12, .caption_bytes = 32 * 1024});
  Loader loader = Loader::open(options(daemon));
  std::vector<std::shared_ptr<const void>> texts;
  for (int i = 0; i < 4; ++i) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    texts.push_back(batch->owner((*batch)["caption"]));
  }
  EXPECT_THAT(thrown<LeaseError>([&] { (void)loader.next(); }).what(),
              HasSubstr("holds all 4 batches that it may hold (step 0"));
  texts.clear();
  EXPECT_EQ(loader.next()->step(), 4u);
}

TEST_F(DeviceTest, TheDaemonIsNotToldThatBatchesAheadWereRead) {
  FakeDaemon daemon({.steps = 30});
  {
    Loader loader = Loader::open(options(daemon));
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(loader.next());
      daemon.run([](FakeService&) {});  // two more are there by the next call
    }
    loader.close();
  }
  while (daemon.service().closes == 0) daemon.run([](FakeService&) {});
  EXPECT_EQ(daemon.service().releases, 4);
}

TEST_F(DeviceTest, SmallBatchesAheadAreNotReleasedBeforeTheyAreRead) {
  FakeDaemon daemon({.steps = 30, .image_bytes = 64});
  {
    Loader loader = Loader::open(options(daemon));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(loader.next()->device(), -1);
      daemon.run([](FakeService&) {});
    }
    loader.close();
  }
  while (daemon.service().closes == 0) daemon.run([](FakeService&) {});
  EXPECT_EQ(daemon.service().releases, 4);
}

TEST_F(DeviceTest, ABatchOfSmallFieldsNeedsNoRoomOnTheDevice) {
  FakeDaemon daemon({.steps = 8});
  daemon.run([](FakeService& service) {
    service.swap_to = {.steps = 4, .image_bytes = 64, .order_digest = "0ther", .version = 4};
  });
  Loader loader = Loader::open(options(daemon));
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(loader.apply({{"size", "6"}}).epoch, 1u);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(loader.next());
  std::vector<Batch> held;
  for (int i = 4; i < 8; ++i) held.push_back(*loader.next());
  EXPECT_FALSE(loader.next());
  const auto small = loader.next();
  ASSERT_TRUE(small);
  EXPECT_EQ(small->epoch(), 1u);
  EXPECT_EQ(small->device(), -1);
}

TEST_F(DeviceTest, AFailureComesAfterTheBatchesThatCameBeforeIt) {
  FakeDaemon daemon({.steps = 30});
  LoaderOptions few = options(daemon);
  few.prefetch = 2;
  Loader loader = Loader::open(few);
  std::vector<Batch> held;
  held.reserve(2);
  for (int i = 0; i < 2; ++i) held.push_back(*loader.next());
  // Both slots have been read, and two more batches come.
  while (daemon.service().releases < 2) thrown<LeaseError>([&] { (void)loader.next(); });
  daemon.run(
      [](FakeService& service) { service.fail_all(Status(Code::kDataLoss, "a file is broken")); });
  for (int i = 0; i < 3; ++i) thrown<LeaseError>([&] { (void)loader.next(); });
  held.clear();
  EXPECT_EQ(loader.next()->step(), 2u);
  EXPECT_EQ(loader.next()->step(), 3u);
  EXPECT_THAT(thrown<PipelineError>([&] { (void)loader.next(); }).what(),
              HasSubstr("a file is broken"));
}

TEST_F(DeviceTest, ABatchOfAThreadsOwnStreamMayBeLetGoOfOnAnotherThread) {
  FakeDaemon daemon({.steps = 40});
  Loader loader = Loader::open(options(daemon));
  for (int i = 0; i < 40; ++i) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    look_at(*batch, CU_STREAM_PER_THREAD);
    std::thread([&] { batch.reset(); }).join();
  }
  expect_all_right({CU_STREAM_PER_THREAD}, 40);
}

TEST_F(DeviceTest, TheDefaultStreamIsRefusedWhileABlockingOneIsCaptured) {
  FakeDaemon daemon({.steps = 40});
  Loader loader = Loader::open(options(daemon));
  CUstream blocking = nullptr;
  FakeGpu::check(gpu_.functions().StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
  for (int i = 0; i < 20; ++i) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    look_at(*batch, CU_STREAM_LEGACY);
    const std::uint64_t frees = gpu_.calls("cuMemFree");
    gpu_.begin_capture(blocking);
    EXPECT_THAT(thrown<LeaseError>([&] { batch->make_ready(1); }).what(), HasSubstr("captured"));
    batch.reset();
    gpu_.end_capture(blocking);
    EXPECT_EQ(gpu_.calls("cuMemFree"), frees);
  }
  expect_all_right({CU_STREAM_LEGACY}, 20);
}

TEST_F(DeviceTest, ACopyToMainMemoryWaitsForTheBatch) {
  FakeDaemon daemon({.steps = 8});
  LoaderOptions on_host = options(daemon);
  on_host.device.clear();
  Loader host = Loader::open(on_host);
  Loader loader = Loader::open(options(daemon));
  while (const auto batch = loader.next()) {
    const Batch copy = batch->copy();  // at once: the copy to the device may not have begun
    const auto expected = host.next();
    ASSERT_TRUE(expected);
    EXPECT_EQ(copy.device(), -1);
    for (const TensorView& field : expected->fields()) {
      const TensorView& found = copy[field.name];
      ASSERT_EQ(found.bytes, field.bytes);
      EXPECT_EQ(std::memcmp(found.data, field.data, field.bytes), 0) << field.name;
    }
  }
}

TEST_F(DeviceTest, ACopyToMainMemoryLeavesACaptureOfTheThreadsStreamAlone) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  const auto batch = loader.next();
  gpu_.begin_capture(CU_STREAM_PER_THREAD);
  const Batch copy = batch->copy();
  gpu_.end_capture(CU_STREAM_PER_THREAD);
  EXPECT_EQ(copy.device(), -1);
}

TEST_F(DeviceTest, ACopyToMainMemoryHasWhatAStreamWroteToTheBatch) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  const auto batch = loader.next();
  CUstream stream = gpu_.make_stream();
  batch->make_ready(reinterpret_cast<std::uintptr_t>(stream));
  auto* const values = const_cast<std::uint8_t*>(gpu_.peek((*batch)["image"].data));
  gpu_.launch(
      stream, [](void* at) { *static_cast<std::uint8_t*>(at) ^= 0xFF; }, values);
  const std::uint8_t written = std::to_integer<std::uint8_t>(batch->copy()["image"].data[0]);
  EXPECT_EQ(written, *gpu_.peek((*batch)["image"].data));
  gpu_.begin_capture(stream);
  EXPECT_THAT(thrown<LeaseError>([&] { (void)batch->copy(); }).what(), HasSubstr("captured"));
  gpu_.end_capture(stream);
}

TEST_F(DeviceTest, ABatchOnADeviceHasNoPrivateView) {
  FakeDaemon daemon;
  Loader loader = Loader::open(options(daemon));
  const auto batch = loader.next();
  EXPECT_THAT(thrown<LeaseError>([&] { (void)batch->private_data((*batch)["image"]); }).what(),
              HasSubstr("has no private view"));
}

TEST_F(DeviceTest, ADeviceThatIsNotThereIsToldWithWhatIs) {
  FakeDaemon daemon;
  LoaderOptions other = options(daemon);
  other.device = "cuda:7";
  EXPECT_THAT(thrown<DeviceError>([&] { Loader::open(other); }).what(),
              AllOf(HasSubstr("no device cuda:7"), HasSubstr("sees 1 device")));
  for (const char* name : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda0"}) {
    other.device = name;
    EXPECT_THAT(thrown<DeviceError>([&] { Loader::open(other); }).what(),
                HasSubstr("\"cuda\", \"cuda:N\" or \"cpu\""));
  }
}

TEST_F(DeviceTest, CpuIsMainMemory) {
  FakeDaemon daemon;
  LoaderOptions other = options(daemon);
  other.device = "cpu";
  Loader loader = Loader::open(other);
  EXPECT_EQ(loader.next()->device(), -1);
}

// Each of these ends what the driver can do for this process, and runs in one of its own.
class BrokenDeviceTest : public DeviceTest {};

TEST_F(BrokenDeviceTest, AFailedKernelOfTheTrainersIsSaidToBeTheTrainers) {
  FakeDaemon daemon({.steps = 30});
  Loader loader = Loader::open(options(daemon));
  EXPECT_TRUE(loader.next());
  const auto batch = loader.next();
  gpu_.break_context(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(thrown<DeviceError>([&] { (void)batch->copy(); }).what(),
              HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  const DeviceError failed = thrown<DeviceError>([&] {
    for (;;) (void)loader.next();
  });
  EXPECT_THAT(failed.what(), AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                                   HasSubstr("A kernel of this process failed before")));
}

// The driver is one that cannot register memory that may only be read.
class StagingTest : public DeviceTest {};

TEST_F(StagingTest, BatchesGoByAPinnedBufferWhereSlotsCannotBePinned) {
  FakeDaemon daemon({.steps = 20});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  std::size_t looks = 0;
  while (const auto batch = loader.next()) {
    look_at(*batch, stream);
    ++looks;
  }
  expect_all_right({stream}, 20);
  EXPECT_EQ(looks, 20u);
  EXPECT_EQ(gpu_.counts().registrations, 0u);
  EXPECT_GE(loader.stats().staged, 20u);
  EXPECT_THAT(loader.stats().staged_why, HasSubstr("cannot register memory"));
}

// Some calls of the driver fail, each once.
class FailingDriverTest : public DeviceTest {};

TEST_F(FailingDriverTest, ABatchThatCouldNotBeCopiedComesAtTheNextCall) {
  FakeDaemon daemon({.steps = 40, .epochs = 1});
  Loader loader = Loader::open(options(daemon));
  CUstream stream = gpu_.make_stream();
  int failures = 0;
  std::uint64_t step = 0;
  for (; step < 40;) {
    std::optional<Batch> batch;
    try {
      batch = loader.next();
    } catch (const DeviceError& failed) {
      EXPECT_THAT(failed.what(), AllOf(HasSubstr("cuda:0: "), HasSubstr("CUDA_ERROR_")));
      ++failures;
      continue;
    }
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step(), step++);
    look_at(*batch, stream);
  }
  EXPECT_FALSE(loader.next());
  EXPECT_GE(failures, 1);
  expect_all_right({stream}, 40);
}

}  // namespace
}  // namespace spdld
