// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "spdld/loader.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/client/fake_gpu.h"
#include "tests/unit/client/gpu_daemon.h"
#include "tests/unit/client/looks.h"
#include "tests/unit/client/thrown.h"

namespace spdld {
namespace {

using test::FakeGpu;
using test::Gate;
using test::GpuDaemon;
using test::Looks;
using test::thrown;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
