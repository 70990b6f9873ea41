// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "spdld/loader.h"
#include "tests/unit/client/device_arena_fixture.h"
#include "tests/unit/client/gpu_daemon.h"
#include "tests/unit/client/thrown.h"

// Drivers that cannot do all that is asked of them, or that fail at some calls.
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace spdld
