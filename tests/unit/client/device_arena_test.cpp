// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "spdld/loader.h"
#include "tests/unit/client/fake_gpu.h"
#include "tests/unit/client/gpu_daemon.h"
#include "tests/unit/client/hostile_daemon.h"
#include "tests/unit/client/looks.h"
#include "tests/unit/client/thrown.h"

// A loader whose batches the daemon brings to the device itself, into memory of its own there. The
// driver is the fake one, whose copies and kernels run late and in a drawn order.
namespace spdld {
namespace {

using test::FakeGpu;
using test::Gate;
using test::GpuDaemon;
using test::kGranule;
using test::Looks;
using test::options_for;
using test::thrown;
using test::value_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::uintptr_t number_of(CUstream stream) { return reinterpret_cast<std::uintptr_t>(stream); }

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

class DeviceArenaTest : public ::testing::Test {
 protected:
  FakeGpu gpu_;
  Looks looks_{gpu_};
};

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
  Cursor before = loader.state();
  before.moves = 0;
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

TEST_F(DeviceArenaTest, AnOlderDaemonIsNotToldOfTheDevice) {
  GpuDaemon daemon({.ways = {{0, false}}, .protocol = 3});
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_EQ(loader.next()->device(), 0);
  EXPECT_EQ(loader.stats().delivery, "pinned");
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

TEST_F(DeviceArenaTest, MainMemoryIsWhatSuchABatchIsNotCopiedTo) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  const auto batch = loader.next();
  EXPECT_THAT(thrown<LeaseError>([&] { (void)batch->copy(); }).what(), HasSubstr("lies on cuda:0"));
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

// A daemon of another version, or a broken one, that this process makes memory for.
class HostileDeviceArenaTest : public DeviceArenaTest {
 protected:
  using Conversation = test::Conversation;
  using ArenaFrame = wire::DeviceArenaFrame;
  using BatchFrame = wire::DeviceBatchFrame;

  static wire::FieldLayout image() {
    wire::FieldLayout field = test::dense(30'000);
    field.flags = wire::kFieldOnDevice;
    field.capacity_bytes = 120'000;
    return field;
  }
  // What next() says in the conversation that `script` leads after the attach.
  static std::string says(const std::function<void(Conversation&)>& script,
                          const std::string& device = "cuda") {
    test::HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach(4);
      script(consumer);
      while (consumer.receive()) {
      }
    });
    LoaderOptions options = daemon.options();
    options.device = device;
    Loader loader = Loader::open(options);
    try {
      loader.next();
    } catch (const ConnectionError& error) {
      return error.what();
    }
    return "was accepted";
  }
  std::string arena_says(const std::function<void(ArenaFrame&)>& change) {
    const FakeCudaCounts before = gpu_.counts();
    std::string said = says([&](Conversation& consumer) {
      consumer.open(*host_);
      send(consumer, change, memory_.fd());
    });
    EXPECT_EQ(gpu_.counts().mapped_ranges, before.mapped_ranges);
    EXPECT_EQ(gpu_.counts().reservations, before.reservations);
    EXPECT_EQ(gpu_.counts().handles, before.handles);
    return said;
  }
  std::string batch_says(const std::function<void(BatchFrame&)>& change,
                         const std::vector<wire::FieldLayout>& fields = {image()}) {
    return says([&](Conversation& consumer) {
      consumer.open(*host_);
      send(consumer, {}, memory_.fd());
      consumer.schema(fields);
      send_batch(consumer, change);
    });
  }
  void send(Conversation& consumer, const std::function<void(ArenaFrame&)>& change, int fd) {
    ArenaFrame frame = test::device_arena_frame(host_->id(), memory_.bytes());
    if (change) change(frame);
    consumer.send(test::bytes_of(frame, wire::FrameType::kDeviceArena), fd);
  }
  void send_batch(Conversation& consumer, const std::function<void(BatchFrame&)>& change) {
    BatchFrame frame{};
    frame.batch = delivery::batch_frame({.lease = 1,
                                         .arena_id = host_->id(),
                                         .schema_id = 1,
                                         .slot_offset = host_->slot_offset(0),
                                         .slot_bytes = host_->shape().slot_bytes,
                                         .rows = 2});
    frame.device_offset = kGranule / 2;
    frame.device_bytes = 120'000;
    if (change) change(frame);
    frame.batch.header = {wire::FrameType::kDeviceBatch, sizeof frame};
    test::Bytes bytes(sizeof frame);
    std::memcpy(bytes.data(), &frame, sizeof frame);
    consumer.send(bytes);
  }

  delivery::ArenaBudget budget_{1 << 24, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
  const std::unique_ptr<delivery::Arena> host_ =
      std::move(*delivery::Arena::create({.slot_bytes = 300'000, .slot_count = 2}, 5, budget_));
  test::GpuMemory memory_{kGranule};
};

TEST_F(HostileDeviceArenaTest, TakesABatchThatIsAsItShouldBe) {
  EXPECT_EQ(batch_says({}), "was accepted");
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryOfADeviceThatTheLoaderDoesNotHave) {
  EXPECT_THAT(says(
                  [&](Conversation& consumer) {
                    consumer.open(*host_);
                    send(consumer, {}, memory_.fd());
                  },
                  ""),
              HasSubstr("sent memory of a GPU, and this loader was opened without a device"));
  EXPECT_THAT(says(
                  [&](Conversation& consumer) {
                    consumer.open(*host_);
                    consumer.schema({image()});
                    send_batch(consumer, {});
                  },
                  ""),
              HasSubstr("memory of a GPU that the daemon did not announce"));
  test::HostileDaemon daemon([&](Conversation& consumer) {
    const std::uint8_t generation[16] = {};
    consumer.receive();
    consumer.send(delivery::welcome_frame(4, generation, "hostile"));
    consumer.receive();
    test::Bytes attached = delivery::attached_frame({.session = 1, .credits = 4});
    test::append_text(attached, wire::TextKey::kDevice, "GPU-0");
    wire::AttachedFrame fixed;
    std::memcpy(&fixed, attached.data(), sizeof fixed);
    fixed.header.bytes = static_cast<std::uint32_t>(attached.size());
    ++fixed.text_count;
    std::memcpy(attached.data(), &fixed, sizeof fixed);
    consumer.send(attached);
    consumer.receive();
  });
  EXPECT_THAT(daemon.next_says(), HasSubstr("batches lie on GPU-0, and this loader was opened"));
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryThatBelongsToNoArena) {
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.arena_id = 9; }),
              HasSubstr("arena 9, which it did not open"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, memory_.fd());
                send(consumer, {}, memory_.fd());
              }),
              HasSubstr("arena 5, which has some already"));
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryThatMakesNoSense) {
  EXPECT_THAT(
      arena_says([](ArenaFrame& frame) { frame.kind = static_cast<wire::DeviceMemoryKind>(7); }),
      HasSubstr("its kind is 7, which this client does not know"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes = 0; }),
              HasSubstr("it has no bytes"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { ++frame.total_bytes; }),
              HasSubstr("no multiple of 2097152"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes = 1ull << 62; }),
              HasSubstr("and the GPU has"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes += kGranule; }),
              HasSubstr("smaller than announced"));
}

TEST_F(HostileDeviceArenaTest, RefusesFilesThatAreNoMemoryOfAGpu) {
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, -1);
              }),
              HasSubstr("an arena on a GPU without its memory"));
  const UniqueFd file(::memfd_create("file", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kGranule), 0);
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, file.get());
              }),
              HasSubstr("its file descriptor is none of a GPU's memory"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                ArenaFrame frame{};
                frame.header = {wire::FrameType::kDeviceArena, 12};
                test::Bytes cut(12);
                std::memcpy(cut.data(), &frame, cut.size());
                consumer.send(cut, memory_.fd());
              }),
              HasSubstr("an arena on a GPU without its memory"));
}

TEST_F(HostileDeviceArenaTest, RefusesBatchesBeyondTheirMemory) {
  const char* const unannounced = "memory of a GPU that the daemon did not announce";
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_offset = ~0ull - 255; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_bytes = ~0ull; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_bytes = kGranule / 2 + 1; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_offset += 8; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.rows = 5; }),
              HasSubstr("reaches beyond the batch's part of the GPU's memory"));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.rows = ~0u; }),
              HasSubstr("reaches beyond the batch's part of the GPU's memory"));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.slot_bytes = ~0ull; }),
              HasSubstr("memory that the daemon did not announce"));
  wire::FieldLayout far = image();
  far.offset = 1ull << 40;
  EXPECT_THAT(batch_says({}, {far}), HasSubstr("reaches beyond the batch's part"));
  // Tables of rows are in the slot, which is smaller than the part on the GPU.
  wire::FieldLayout sound = image();
  sound.kind = wire::FieldKind::kRagged;
  sound.shape[0] = -1;
  sound.offsets_offset = 300'000;
  EXPECT_THAT(batch_says({}, {sound}), HasSubstr("its offsets reach beyond its slot"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                consumer.schema({image()});
                send_batch(consumer, {});
              }),
              HasSubstr(unannounced));
}

TEST_F(HostileDeviceArenaTest, RefusesFieldsOnTheDeviceOfABatchInMainMemory) {
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, memory_.fd());
                consumer.schema({image()});
                consumer.batch(*host_);
              }),
              HasSubstr("it lies on a GPU, and the batch does not"));
}

TEST_F(HostileDeviceArenaTest, RefusesFieldsThatDoNotLieOnADevice) {
  wire::FieldLayout field = image();
  field.kind = wire::FieldKind::kBytes;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("such a field does not lie on a GPU"));
  field = image();
  field.flags |= wire::kFieldMeta;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("such a field does not lie on a GPU"));
  field = image();
  field.offset = 8;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("it is not aligned"));
}

TEST_F(HostileDeviceArenaTest, AFieldGoesToTheDeviceByItsSpaceNotByWhatABatchHasOfIt) {
  // Two rows of 30,000 bytes, of four that would fit.
  wire::FieldLayout large = image();
  large.flags = 0;
  wire::FieldLayout small = test::dense(30'000);
  std::strcpy(small.name, "small");
  small.offset = 120'064;
  small.capacity_bytes = 60'000;
  test::HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach(4);
    consumer.open(*host_);
    consumer.schema({large, small});
    consumer.batch(*host_);
    while (consumer.receive()) {
    }
  });
  LoaderOptions options = daemon.options();
  options.device = "cuda";
  {
    Loader loader = Loader::open(options);
    const auto batch = loader.next();
    EXPECT_TRUE((*batch)["image"].on_device);
    EXPECT_TRUE((*batch)["small"].copied);
  }
  options.device = "";
  Loader loader = Loader::open(options);
  EXPECT_TRUE((*loader.next())["image"].copied);
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

// The driver grants no access for reading alone.
class ReadWriteArenaTest : public DeviceArenaTest {};

TEST_F(ReadWriteArenaTest, BatchesComeAllTheSame) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  while (const auto batch = loader.next()) looks_.make_ready_and_launch(*batch, stream);
  looks_.expect_all_right({stream}, 12);
  EXPECT_EQ(gpu_.calls("cuMemSetAccess"), 3u);  // the daemon's, and two of ours
}

// The driver cannot map memory of other processes'.
class NoSharedMemoryTest : public DeviceArenaTest {};

TEST_F(NoSharedMemoryTest, TheDaemonIsNotAskedForIt) {
  GpuDaemon daemon({.ways = {{0, false}}});
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_EQ(loader.next()->device(), 0);
  EXPECT_THAT(daemon.seen().devices, ElementsAre(""));
}

// The device is an instance of a GPU that is cut into several.
class InstanceArenaTest : public DeviceArenaTest {};

TEST_F(InstanceArenaTest, IsNamedAsOne) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  EXPECT_TRUE(loader.next());
  EXPECT_THAT(daemon.seen().devices, ElementsAre(StartsWith("MIG-10111213-")));
}

// Calls of the driver fail, each once, one at each attach, and then while batches are read.
class FailingArenaTest : public DeviceArenaTest {};

TEST_F(FailingArenaTest, EachFailureIsToldAndNoneLosesABatch) {
  const FakeCudaCounts before = gpu_.counts();
  const std::ptrdiff_t files = open_files();
  CUstream stream = gpu_.make_stream();
  std::string told;
  {
    GpuDaemon daemon({.fake = {.steps = 40, .epochs = 1}});
    Loader loader = Loader::open(options_for(daemon));
    for (std::uint64_t step = 0; step < 40;) {
      try {
        const auto batch = loader.next();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->step(), step++);
        for (bool ready = false; !ready;) {
          try {
            batch->make_ready(number_of(stream));
            ready = true;
          } catch (const DeviceError& failed) {
            told += failed.what() + std::string("\n");
          }
        }
        looks_.launch(*batch, stream);
      } catch (const DeviceError& failed) {
        told += failed.what() + std::string("\n");
      }
    }
    EXPECT_FALSE(loader.next());
    EXPECT_EQ(daemon.seen().bad_releases, 0);
  }
  looks_.expect_all_right({stream}, 40);
  for (const char* what :
       {"asking for the granularity", "asking for its memory", "importing the daemon's memory",
        "asking where the daemon's memory is", "reserving addresses", "mapping the daemon's memory",
        "asking for access", "letting go of the handle", "asking a stream",
        "asking whether a batch has been read"})
    EXPECT_THAT(told, HasSubstr(std::string("cuda:0: ") + what));
  EXPECT_THAT(told, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  FakeGpu::check(gpu_.functions().StreamDestroy(stream));
  const FakeCudaCounts after = gpu_.counts();
  EXPECT_EQ(after.mapped_ranges, before.mapped_ranges);
  EXPECT_EQ(after.reservations, before.reservations);
  EXPECT_EQ(after.handles, before.handles);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.contexts, before.contexts);
  EXPECT_EQ(open_files(), files);
}

// The first event cannot be made, and the next one not be recorded.
class FailingEventArenaTest : public DeviceArenaTest {};

TEST_F(FailingEventArenaTest, ALeaseGoesOnUntilItIsKnownWhatStreamsDo) {
  GpuDaemon daemon;
  Loader loader = Loader::open(options_for(daemon));
  CUstream stream = gpu_.make_stream();
  Gate gate(gpu_, stream);
  auto batch = loader.next();
  looks_.make_ready_and_launch(*batch, stream);
  batch.reset();
  EXPECT_EQ(daemon.seen().releases, 0);
  EXPECT_THAT(thrown<DeviceError>([&] { (void)loader.next(); }).what(),
              HasSubstr("recording how far a stream is that reads a batch: CUDA_ERROR_UNKNOWN"));
  EXPECT_EQ(loader.next()->step(), 1u);
  EXPECT_EQ(daemon.seen().releases, 1);
  gate.open();
  looks_.expect_all_right({stream}, 1);
  EXPECT_EQ(loader.next()->step(), 2u);
  EXPECT_EQ(daemon.seen().releases, 3);
}

// The daemon is another process, made before this one begins CUDA: each is a test process's own.
class OtherProcessArenaTest : public ::testing::Test {
 protected:
  OtherProcessArenaTest() {
    int ends[2];
    SPDLD_CHECK(::pipe(ends) == 0);
    daemon_ = ::fork();
    if (daemon_ == 0) {
      ::alarm(120);
      const GpuDaemon daemon(test::GpuPipeline{}, &at_);
      if (::write(ends[1], "x", 1) != 1) std::_Exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    SPDLD_CHECK(::read(ends[0], &byte, 1) == 1);
    ::close(ends[0]);
    ::close(ends[1]);
    gpu_.emplace();
    looks_.emplace(*gpu_);
  }
  ~OtherProcessArenaTest() override { kill_daemon(); }
  void kill_daemon() {
    if (daemon_ == 0) return;
    ::kill(daemon_, SIGKILL);
    EXPECT_EQ(::waitpid(std::exchange(daemon_, 0), nullptr, 0) > 0, true);
  }
  LoaderOptions options() const {
    return {.pipeline = "p",
            .job = "",
            .rank = 0,
            .world_size = 1,
            .device = "cuda",
            .address = at_,
            .timeout = std::chrono::seconds(60)};
  }

  const test::ScratchDir directory_;
  const std::string at_ = directory_.path();
  pid_t daemon_ = 0;
  std::optional<FakeGpu> gpu_;
  std::optional<Looks> looks_;
};

class OrphanedArenaTest : public OtherProcessArenaTest {};

TEST_F(OrphanedArenaTest, BatchesAreReadableThoughTheDaemonWasKilled) {
  CUstream stream = gpu_->make_stream();
  Loader loader = Loader::open(options());
  const auto held = loader.next();
  ASSERT_TRUE(held);
  EXPECT_TRUE((*held)["image"].on_device);
  Gate gate(*gpu_, stream);
  looks_->make_ready_and_launch(*loader.next(), stream);
  kill_daemon();
  looks_->make_ready_and_launch(*held, stream);
  const GpuDaemon again(test::GpuPipeline{}, &at_);
  for (std::uint64_t step = 2; step < 12; ++step) EXPECT_EQ(loader.next()->step(), step);
  gate.open();
  looks_->expect_all_right({stream}, 2);
  EXPECT_EQ(loader.stats().reconnects, 1u);
}

// Ends what the driver can do for this process.
class BrokenArenaTest : public OtherProcessArenaTest {};

TEST_F(BrokenArenaTest, AFailedDeviceIsToldAndClosingDoesNotWaitForIt) {
  CUstream stream = gpu_->make_stream();
  Gate gate(*gpu_, stream);
  Loader loader = Loader::open(options());
  auto held = loader.next();
  looks_->make_ready_and_launch(*held, stream);
  looks_->make_ready_and_launch(*loader.next(), stream);
  gate.wait_until_reached();
  gpu_->break_context(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(thrown<DeviceError>([&] { (void)loader.next(); }).what(),
              AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr("A kernel of this process failed before")));
  loader.close();
  held.reset();
  EXPECT_TRUE(loader.closed());
}

}  // namespace
}  // namespace spdld
