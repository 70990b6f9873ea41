// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "spdld/loader.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/client/device_arena_fixture.h"
#include "tests/unit/client/gpu_daemon.h"
#include "tests/unit/client/thrown.h"

namespace spdld {
namespace {

using test::DeviceArenaTest;
using test::FakeGpu;
using test::Gate;
using test::GpuDaemon;
using test::number_of;
using test::open_files;
using test::options_for;
using test::thrown;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(DeviceArenaTest, BatchesLieWhereTheDaemonBroughtThem) {
  GpuDaemon daemon;
  const std::uint64_t buffers = gpu_.calls("cuMemAlloc");
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->device(), 0);
  EXPECT_TRUE((*batch)["image"].on_device);
  EXPECT_FALSE((*batch)["image"].copied);
  EXPECT_TRUE((*batch)["label"].copied);
  EXPECT_EQ(*reinterpret_cast<const std::int64_t*>((*batch)["label"].data), 0);
  EXPECT_EQ(batch->text("caption", 3), "row 3");
  EXPECT_EQ(batch->indices().size(), 4u);
  looks_.make_ready_and_launch(*batch, stream);
  looks_.expect_all_right({stream}, 1);
  EXPECT_EQ(loader.stats().delivery, "cuda ipc");
  EXPECT_EQ(gpu_.calls("cuMemAlloc"), buffers);
  EXPECT_EQ(gpu_.counts().registrations, 0u);
}

TEST_F(DeviceArenaTest, TheLoaderNamesItsDeviceAtEachAttach) {
  GpuDaemon daemon({.told_at_attach = false});
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_EQ(loader.steps_per_epoch(), 12u);
  EXPECT_EQ(loader.stats().delivery, "pinned");  // as far as the daemon has said
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(loader.stats().delivery, "cuda ipc");
  // A place before anything was handed out is the daemon's to find: by another attach.
  const Cursor before = loader.state();
  Loader other = Loader::open(options_for(daemon));
  other.load_state(before);
  EXPECT_EQ(other.next()->step(), 1u);
  const std::string uuid = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f";
  EXPECT_THAT(daemon.seen().devices, ElementsAre(uuid, uuid));
}

TEST_F(DeviceArenaTest, WhatTheDaemonSaysOfTheDeviceIsToldBeforeTheFirstBatch) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_EQ(loader.steps_per_epoch(), 12u);
  EXPECT_EQ(loader.stats().delivery, "cuda ipc");
}

TEST_F(DeviceArenaTest, ALoaderWithoutADeviceNamesNone) {
  GpuDaemon daemon({.ways = {{0, false}}});
  LoaderOptions options = options_for(daemon);
  options.device = "";
  Loader loader = Loader::open(options);
  EXPECT_EQ(loader.next()->device(), -1);
  EXPECT_EQ(loader.stats().delivery, "host");
  EXPECT_THAT(daemon.seen().devices, ElementsAre(""));
}

TEST_F(DeviceArenaTest, NoSlotIsOverwrittenWhileAKernelReadsIt) {
  GpuDaemon daemon({.fake = {.steps = 40, .epochs = 3}});
  Loader loader = Loader::open(options_for(daemon));
  const std::vector<CUstream> streams{gpu_.make_stream(), gpu_.make_stream()};
  std::size_t looks = 0;
  while (!loader.ended()) {
    while (auto batch = loader.next()) {
      looks_.make_ready_and_launch(*batch, streams[looks % 2]);
      if (looks++ % 3 == 0) looks_.make_ready_and_launch(*batch, streams[looks % 2]);
      batch.reset();
      daemon.settle();  // what was released by now is overwritten before the kernels run, perhaps
    }
  }
  looks_.expect_all_right(streams, 160);
  EXPECT_EQ(looks, 120u);
  loader.close();
  EXPECT_EQ(daemon.seen().releases, 120);
  EXPECT_EQ(daemon.seen().bad_releases, 0);
}

TEST_F(DeviceArenaTest, ALeaseEndsWhenTheStreamsAreThroughThatItWasHandedTo) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream first = gpu_.make_stream();
  CUstream second = gpu_.make_stream();
  Gate first_gate(gpu_, first);
  Gate second_gate(gpu_, second);
  auto batch = loader.next();
  looks_.make_ready_and_launch(*batch, first);
  looks_.launch(*batch, second);
  batch->record_stream(number_of(second));
  batch.reset();
  EXPECT_TRUE(loader.next());  // and is let go of unread
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 2);
  first_gate.open();
  FakeGpu::check(gpu_.functions().StreamSynchronize(first));
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 3);
  second_gate.open();
  looks_.expect_all_right({first, second}, 2);
  EXPECT_EQ(daemon.seen().releases, 3);  // nobody has looked
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 5);
}

TEST_F(DeviceArenaTest, ReleaseLeavesItToTheStreamsToo) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  auto batch = loader.next();
  looks_.make_ready_and_launch(*batch, stream);
  const auto owner = batch->owner((*batch)["image"]);
  EXPECT_THAT(thrown<LeaseError>([&] { batch->release(); }).what(), HasSubstr("still in use"));
  const_cast<std::shared_ptr<const void>&>(owner).reset();
  batch->release();
  EXPECT_TRUE(batch->released());
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 1);
  gate.open();
  looks_.expect_all_right({stream}, 1);
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 3);
}

TEST_F(DeviceArenaTest, ALeaseThatNoStreamReadsEndsAtOnce) {
  GpuDaemon daemon({.fake = {.steps = 12, .epochs = 1, .caption_bytes = 32 * 1024}});
  Loader loader = Loader::open(options_for(daemon));
  auto batch = loader.next();
  // A field in the slot keeps the lease, with nothing of the batch's on the device.
  auto captions = batch->owner((*batch)["caption"]);
  batch.reset();
  EXPECT_EQ(daemon.seen().releases, 0);
  captions.reset();
  EXPECT_EQ(daemon.seen().releases, 1);
}

TEST_F(DeviceArenaTest, ALeaseEndsAtOnceWhereItsStreamIsThrough) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  for (CUstream stream : {gpu_.make_stream(), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    const int released = daemon.seen().releases;
    auto batch = loader.next();
    looks_.make_ready_and_launch(*batch, stream);
    FakeGpu::check(gpu_.functions().StreamSynchronize(stream));
    const std::uint64_t events = gpu_.calls("cuEventRecord");
    batch.reset();
    EXPECT_EQ(daemon.seen().releases, released + 1);
    EXPECT_EQ(gpu_.calls("cuEventRecord"), events);
  }
}

TEST_F(DeviceArenaTest, ALeaseThatEndsAtOnceEndsEarlierOnesBeforeIt) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  auto gate = std::make_unique<Gate>(gpu_, stream);
  looks_.make_ready_and_launch(*loader.next(), stream);
  auto batch = loader.next();
  looks_.make_ready_and_launch(*batch, stream);
  EXPECT_EQ(daemon.seen().releases, 0);
  gate->open();
  FakeGpu::check(gpu_.functions().StreamSynchronize(stream));
  batch.reset();
  EXPECT_EQ(daemon.seen().releases, 2);
  looks_.expect_all_right({stream}, 2);
}

TEST_F(DeviceArenaTest, LettingGoOfABatchDoesNotDisturbACaptureElsewhere) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream captured = gpu_.make_stream();
  CUstream stream = gpu_.make_stream();
  std::optional<Gate> gate;
  for (const bool is_through : {true, false}) {
    auto batch = loader.next();
    looks_.make_ready_and_launch(*batch, stream);
    FakeGpu::check(gpu_.functions().StreamSynchronize(stream));
    if (!is_through) gate.emplace(gpu_, stream);
    gpu_.begin_capture(captured);
    batch.reset();
    EXPECT_EQ(daemon.seen().releases, 1);
    gpu_.end_capture(captured);
  }
  gate->open();
  looks_.expect_all_right({stream}, 2);
}

TEST_F(DeviceArenaTest, NextWaitsForStreamsThatReadAllBatches) {
  GpuDaemon daemon;
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  LoaderOptions options = options_for(daemon);
  int asked = 0;
  options.on_wait = [&] {
    EXPECT_EQ(daemon.seen().releases, 0);
    ++asked;
    gate.open();
  };
  Loader loader = Loader::open(options);
  for (int i = 0; i < 4; ++i) looks_.make_ready_and_launch(*loader.next(), stream);
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->step(), 4u);
  EXPECT_EQ(asked, 1);
  gate.open();
  looks_.expect_all_right({stream}, 4);
}

TEST_F(DeviceArenaTest, HoldingAllBatchesIsALeaseErrorOnceStreamsAreThrough) {
  GpuDaemon daemon;
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  LoaderOptions options = options_for(daemon);
  options.on_wait = [&] { gate.open(); };
  Loader loader = Loader::open(options);
  std::vector<Batch> held;
  held.reserve(4);
  for (int i = 0; i < 3; ++i) held.push_back(*loader.next());
  looks_.make_ready_and_launch(*loader.next(), stream);
  held.push_back(*loader.next());  // in the place of the one that the stream has read by then
  EXPECT_EQ(held.back().step(), 4u);
  const LeaseError full = thrown<LeaseError>([&] { (void)loader.next(); });
  EXPECT_THAT(full.what(), AllOf(HasSubstr("all 4 batches"), HasSubstr("step 4 of epoch 0")));
  held.clear();
  EXPECT_EQ(loader.next()->step(), 5u);
  gate.open();
  looks_.expect_all_right({stream}, 1);
}

TEST_F(DeviceArenaTest, TheEndOfAnEpochIsToldThoughStreamsReadAllBatches) {
  GpuDaemon daemon({.fake = {.steps = 4, .epochs = 1}});
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  for (int i = 0; i < 4; ++i) looks_.make_ready_and_launch(*loader.next(), stream);
  EXPECT_FALSE(loader.next());
  EXPECT_TRUE(loader.ended());
  EXPECT_EQ(daemon.seen().releases, 0);
  gate.open();
  looks_.expect_all_right({stream}, 4);
}

TEST_F(DeviceArenaTest, AfterASeekComesWhatWasAskedFor) {
  GpuDaemon daemon({.fake = {.steps = 20}});
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  const auto look_at_next = [&] {
    const auto batch = loader.next();
    looks_.make_ready_and_launch(*batch, stream);
    return std::pair(batch->epoch(), batch->step());
  };
  look_at_next();
  look_at_next();
  const Cursor after = loader.state();
  for (int i = 0; i < 5; ++i) look_at_next();
  loader.load_state(after);
  EXPECT_EQ(look_at_next(), std::pair(0ul, 2ul));
  loader.set_epoch(3);
  EXPECT_EQ(look_at_next(), std::pair(3ul, 0ul));
  loader.skip_steps(4);
  EXPECT_EQ(look_at_next(), std::pair(3ul, 5ul));
  looks_.expect_all_right({stream}, 10);
  EXPECT_EQ(daemon.seen().bad_releases, 0);
}

TEST_F(DeviceArenaTest, ARestartedDaemonGoesOnWithTheNextBatch) {
  const test::ScratchDir directory;
  const std::string& at = directory.path();
  std::optional<GpuDaemon> daemon;
  daemon.emplace(test::GpuPipeline{}, &at);
  Loader loader = Loader::open(options_for(*daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  for (std::uint64_t step = 0; step < 2; ++step)
    looks_.make_ready_and_launch(*loader.next(), stream);
  const auto held = loader.next();
  daemon.reset();
  daemon.emplace(test::GpuPipeline{}, &at);
  gate.open();
  for (std::uint64_t step = 3; step < 12; ++step) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step(), step);
    looks_.make_ready_and_launch(*batch, stream);
  }
  looks_.make_ready_and_launch(*held, stream);  // as it was
  EXPECT_FALSE(loader.next());
  looks_.expect_all_right({stream}, 12);
  EXPECT_EQ(loader.stats().reconnects, 1u);
}

TEST_F(DeviceArenaTest, ALostDaemonsMemoryIsUnmappedWhenNoStreamReadsIt) {
  const test::ScratchDir directory;
  const std::string& at = directory.path();
  std::optional<GpuDaemon> daemon;
  daemon.emplace(test::GpuPipeline{}, &at);
  Loader loader = Loader::open(options_for(*daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  looks_.make_ready_and_launch(*loader.next(), stream);
  daemon.reset();
  EXPECT_EQ(gpu_.counts().mapped_ranges, 1u);
  daemon.emplace(test::GpuPipeline{}, &at);
  std::uint64_t step = 1;
  for (; loader.stats().reconnects == 0; ++step) EXPECT_EQ(loader.next()->step(), step);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 3u);  // that one, and what both sides have now
  gate.open();
  looks_.expect_all_right({stream}, 1);
  EXPECT_EQ(loader.next()->step(), step);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 2u);
}

TEST_F(DeviceArenaTest, ARetiredArenaStaysMappedWhileAStreamReadsIt) {
  GpuDaemon daemon({.fake = {.steps = 30}});
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  looks_.make_ready_and_launch(*loader.next(), stream);
  auto held = loader.next();
  for (int i = 2; i < 4; ++i) EXPECT_TRUE(loader.next());
  daemon.replace_arena();
  // Those that came before it was retired, and others from the new one.
  for (std::uint64_t step = 4; step < 10; ++step) EXPECT_EQ(loader.next()->step(), step);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 3u);
  held.reset();
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(gpu_.counts().mapped_ranges, 3u);
  gate.open();
  looks_.expect_all_right({stream}, 1);
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(gpu_.counts().mapped_ranges, 2u);
  EXPECT_EQ(gpu_.counts().reservations, 2u);
}

TEST_F(DeviceArenaTest, AllIsGivenBackInTheEnd) {
  const FakeCudaCounts before = gpu_.counts();
  const std::ptrdiff_t files = open_files();
  CUstream stream = gpu_.make_stream();
  {
    GpuDaemon daemon({.fake = {.steps = 30}});
    std::vector<Batch> held;
    {
      Loader loader = Loader::open(options_for(daemon));
      held.reserve(3);
      for (int i = 0; i < 3; ++i) held.push_back(*loader.next());
      for (const Batch& batch : held) looks_.make_ready_and_launch(batch, stream);
      EXPECT_EQ(gpu_.counts().handles, before.handles + 1);  // the daemon's own
    }
    EXPECT_EQ(gpu_.counts().mapped_ranges, before.mapped_ranges + 2);
  }
  looks_.expect_all_right({stream}, 3);
  FakeGpu::check(gpu_.functions().StreamDestroy(stream));
  const FakeCudaCounts after = gpu_.counts();
  EXPECT_EQ(after.mapped_ranges, before.mapped_ranges);
  EXPECT_EQ(after.reservations, before.reservations);
  EXPECT_EQ(after.handles, before.handles);
  EXPECT_EQ(after.shared_bytes, before.shared_bytes);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.contexts, before.contexts);
  EXPECT_EQ(open_files(), files);
}

TEST_F(DeviceArenaTest, ClosingWaitsForStreamsAndThenLeavesNothing) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  auto gate = std::make_unique<Gate>(gpu_, stream);
  looks_.make_ready_and_launch(*loader.next(), stream);
  auto held = loader.next();
  // Opens the gate once `call` waits, or has not waited.
  const auto with_gate = [&](const std::function<void()>& call) {
    const std::uint64_t waits = gpu_.calls("cuEventSynchronize");
    std::atomic<bool> done{false};
    std::thread opens([&] {
      while (!done && gpu_.calls("cuEventSynchronize") == waits) std::this_thread::yield();
      gate->open();
    });
    call();
    done = true;
    opens.join();
  };
  with_gate([&] { loader.close(); });
  EXPECT_EQ(daemon.seen().releases, 1);
  // Who lets go of a batch now waits, too.
  gate = std::make_unique<Gate>(gpu_, stream);
  looks_.make_ready_and_launch(*held, stream);
  with_gate([&] { held.reset(); });
  looks_.expect_all_right({stream}, 2);
  EXPECT_EQ(daemon.seen().releases, 2);
  EXPECT_EQ(daemon.seen().hang_ups, 1);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 0u);
}

TEST_F(DeviceArenaTest, TheDaemonIsNotToldThatBatchesAheadWereRead) {
  GpuDaemon daemon({.fake = {.steps = 30}});
  {
    Loader loader = Loader::open(options_for(daemon));
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(loader.next());
      daemon.settle();  // two more are there by the next call
    }
    loader.close();
  }
  EXPECT_EQ(daemon.seen().hang_ups, 1);
  EXPECT_EQ(daemon.seen().releases, 4);
}

TEST_F(DeviceArenaTest, ACapturedStreamIsRefused) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  auto batch = loader.next();
  gpu_.begin_capture(stream);
  EXPECT_THAT(thrown<LeaseError>([&] { batch->make_ready(number_of(stream)); }).what(),
              AllOf(HasSubstr("captured"), HasSubstr("Copy it")));
  thrown<LeaseError>([&] { batch->record_stream(number_of(stream)); });
  // The capture goes on, whatever the loader does meanwhile: an arena that comes and goes, too.
  daemon.replace_arena();
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(loader.next());
  gpu_.end_capture(stream);
  looks_.make_ready_and_launch(*batch, stream);
  looks_.expect_all_right({stream}, 1);
}

TEST_F(DeviceArenaTest, ABatchThatIsLetGoOfDuringACaptureIsReadAfterIt) {
  GpuDaemon daemon({.fake = {.steps = 30}});
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  std::size_t looks = 0;
  for (; looks < 20; ++looks) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    looks_.make_ready_and_launch(*batch, stream);
    if (looks % 5 != 0) continue;
    const int released = daemon.seen().releases;
    gpu_.begin_capture(stream);
    batch.reset();
    batch = loader.next();
    ++looks;
    EXPECT_LT(daemon.seen().releases, released + 5);
    gpu_.end_capture(stream);
    looks_.make_ready_and_launch(*batch, stream);
  }
  looks_.expect_all_right({stream}, looks);
}

TEST_F(DeviceArenaTest, NextDoesNotWaitForTheEndOfACapture) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  std::vector<Batch> held;
  held.reserve(4);
  for (int i = 0; i < 4; ++i) {
    held.push_back(*loader.next());
    looks_.make_ready_and_launch(held.back(), stream);
  }
  gpu_.begin_capture(stream);
  held.clear();
  EXPECT_THAT(thrown<LeaseError>([&] { (void)loader.next(); }).what(),
              HasSubstr("4 were let go of while a stream that reads them was captured"));
  EXPECT_EQ(daemon.seen().releases, 0);
  gpu_.end_capture(stream);
  EXPECT_EQ(loader.next()->step(), 4u);
  looks_.expect_all_right({stream}, 4);
}

TEST_F(DeviceArenaTest, ABatchOfAThreadsOwnStreamMayBeLetGoOfOnAnotherThread) {
  GpuDaemon daemon({.fake = {.steps = 40}});
  Loader loader = Loader::open(options_for(daemon));
  for (int i = 0; i < 40; ++i) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    daemon.settle();
    looks_.make_ready_and_launch(*batch, CU_STREAM_PER_THREAD);
    std::thread([&] { batch.reset(); }).join();
  }
  looks_.expect_all_right({CU_STREAM_PER_THREAD}, 40);
}

TEST_F(DeviceArenaTest, EachThreadsOwnStreamIsOneThatReads) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  auto batch = loader.next();
  batch->make_ready(number_of(CU_STREAM_PER_THREAD));
  std::optional<Gate> gate;
  std::thread([&] {
    const FakeGpu current;
    gate.emplace(gpu_, CU_STREAM_PER_THREAD);
    looks_.make_ready_and_launch(*batch, CU_STREAM_PER_THREAD);
  }).join();
  batch.reset();
  EXPECT_EQ(daemon.seen().releases, 0);
  gate->open();
  looks_.expect_all_right({CU_STREAM_LEGACY}, 1);
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(daemon.seen().releases, 2);
}

TEST_F(DeviceArenaTest, AnotherWayMayComeInTheMiddle) {
  GpuDaemon daemon(
      {.fake = {.steps = 24, .epochs = 1}, .ways = {{6, false}, {12, true}, {18, false}}});
  Loader loader = Loader::open(options_for(daemon));
  const std::vector<CUstream> streams{gpu_.make_stream(), gpu_.make_stream()};
  std::vector<Batch> held;
  for (std::uint64_t step = 0; step < 24; ++step) {
    auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step(), step);
    EXPECT_TRUE((*batch)["image"].on_device);
    EXPECT_EQ(batch->device(), 0);
    EXPECT_EQ(loader.stats().delivery, step / 6 % 2 == 0 ? "cuda ipc" : "pinned");
    EXPECT_EQ(batch->read_only(), step / 6 % 2 == 0);
    looks_.make_ready_and_launch(*batch, streams[step % 2]);
    held.push_back(*std::move(batch));
    if (held.size() == 3) held.erase(held.begin());
  }
  EXPECT_FALSE(loader.next());
  looks_.expect_all_right(streams, 24);
  held.clear();
  loader.close();
  EXPECT_EQ(daemon.seen().releases, 24);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 0u);
}

TEST_F(DeviceArenaTest, RowsOfDifferentLengthHaveTheirTablesInMainMemory) {
  GpuDaemon daemon({.ragged = true});
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_TRUE(loader.next());
  const auto batch = loader.next();
  const TensorView& sound = (*batch)["sound"];
  EXPECT_TRUE(sound.on_device);
  EXPECT_EQ(sound.kind, FieldKind::kRagged);
  EXPECT_THAT(std::vector(sound.offsets, sound.offsets + 5), ElementsAre(0, 2, 5, 9, 14));
  EXPECT_THAT(std::vector(sound.shapes, sound.shapes + 4), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(sound.bytes, 28u);  // few, and on the device all the same
  batch->make_ready(number_of(gpu_.make_stream()));
  const auto* const values = reinterpret_cast<const std::int16_t*>(gpu_.peek(sound.data));
  EXPECT_THAT(std::vector(values + 5, values + 9), ElementsAre(2, 2, 2, 2));
}

TEST_F(DeviceArenaTest, ACopyOfABatchIsInMainMemoryAndHoldsNoLease) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  auto batch = loader.next();
  batch->make_ready(number_of(gpu_.make_stream()));
  const std::uint8_t* const there = gpu_.peek((*batch)["image"].data);
  const std::vector<std::uint8_t> values(there, there + (*batch)["image"].bytes);
  const Batch copy = batch->copy();
  batch.reset();
  EXPECT_EQ(copy.device(), -1);
  const TensorView& image = copy["image"];
  EXPECT_FALSE(image.on_device);
  EXPECT_TRUE(image.copied);
  EXPECT_EQ(std::memcmp(image.data, values.data(), values.size()), 0);
}

TEST_F(DeviceArenaTest, ABatchOnADeviceHasNoPrivateView) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  const auto batch = loader.next();
  EXPECT_THAT(thrown<LeaseError>([&] { (void)batch->private_data((*batch)["image"]); }).what(),
              HasSubstr("has no private view"));
}

TEST_F(DeviceArenaTest, AForkedChildLeavesTheParentsBatchesAlone) {
  GpuDaemon daemon;
  std::optional<Loader> loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  auto batch = loader->next();
  batch->make_ready(number_of(stream));
  looks_.make_ready_and_launch(*loader->next(), stream);  // one that drains, perhaps
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    batch.reset();
    loader.reset();
    std::_Exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(daemon.seen().hang_ups, 0);
  looks_.make_ready_and_launch(*batch, stream);
  for (std::uint64_t step = 2; step < 12; ++step) EXPECT_EQ(loader->next()->step(), step);
  looks_.expect_all_right({stream}, 2);
}

// Leaves something behind in the process.
class KeptArenaTest : public DeviceArenaTest {};

TEST_F(KeptArenaTest, WhatACaptureReadsToTheEndIsNotToldToBeFree) {
  GpuDaemon daemon;
  CUstream stream = gpu_.make_stream();
  {
    Loader loader = Loader::open(options_for(daemon));
    auto batch = loader.next();
    looks_.make_ready_and_launch(*batch, stream);
    gpu_.begin_capture(stream);
  }
  EXPECT_EQ(daemon.seen().hang_ups, 1);
  EXPECT_EQ(daemon.seen().releases, 0);
  EXPECT_EQ(gpu_.counts().mapped_ranges, 1u);  // it stays
  gpu_.end_capture(stream);
  looks_.expect_all_right({stream}, 1);
}

}  // namespace
}  // namespace spdld
