// SPDX-License-Identifier: Apache-2.0
// Each function of the driver fails at each of its calls while ranks attach, read, are swapped and
// leave: what they are told, and what is left. On the fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/child.h"
#include "tests/support/received_frame.h"
#include "tests/unit/delivery/device_faults.h"
#include "tests/unit/delivery/device_rig.h"
#include "tests/unit/session/sessions_gpu_fixture.h"

namespace spdld::session {
namespace {

using delivery::test::Fault;
using fake_cuda::doors;
using fake_cuda::in_child;
using fake_cuda::Succeeds;

constexpr unsigned kWatchdogS = 60;

// In a child: all that ranks have the daemon do with a GPU.
class Uses : public ArraysTest {
 public:
  explicit Uses(std::string delivery) : delivery_(std::move(delivery)) { SetUp(); }
  void TestBody() override {}

  // What a rank or an operator was told that failed.
  std::vector<std::string> use() {
    std::vector<std::string> errors;
    apply_arrays("device: cpu", "swapped");
    apply_arrays(delivery_, "there");
    const Rank moved = attach({.pipeline = "swapped", .job = "j", .device = gpu()});
    REQUIRE(read_up_to(moved, 1, errors));  // in main memory
    const auto swap = service_->swap(self_, arrays(delivery_, "swapped"), at(8), nullptr);
    if (!swap) errors.push_back(swap.error().message());
    read_up_to(moved, kSteps - 1, errors);
    leave(moved);
    const Rank rank = attach({.pipeline = "there", .job = "k", .device = gpu()});
    read_up_to(rank, 3, errors);
    leave(rank);
    return errors;
  }
  // Uses the GPU until the fault has come. False: it never comes.
  bool until_called(const Fault& fault, std::uint64_t call, std::vector<std::string>& errors) {
    for (int i = 0; i < 3 && doors().calls(fault.function) < call; ++i) {
      for (std::string& error : use()) errors.push_back(std::move(error));
    }
    return doors().calls(fault.function) >= call;
  }
  void let_go() {
    stop();
    devices_.reset();
  }

 private:
  static std::string gpu() { return delivery::test::uuid_of(); }
  void leave(const Rank& rank) {
    sessions_->detach(*rank.connection);
    hang_up(rank);
  }
  // False: it was told that it is not given that step.
  bool read_up_to(const Rank& rank, std::uint64_t step, std::vector<std::string>& errors) {
    while (true) {
      const auto frame = test::receive_frame(rank.socket.get());
      REQUIRE(frame);
      if (frame->type() == wire::FrameType::kError) {
        errors.push_back(frame->text_behind<wire::ErrorFrame>());
        return false;
      }
      const auto batch = frame->as<wire::BatchFrame>();
      if (frame->type() != wire::FrameType::kBatch && !is_on_gpu(batch)) continue;
      sessions_->release(*rank.connection, batch.lease);
      if (batch.step == step) return true;
    }
  }

  const std::string delivery_;
};

bool says(const std::string& error, const char* text) {
  if (error.find(text) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' does not say '%s'\n", error.c_str(), text);
  return false;
}

// The fault at its nth call; `delivery`: what may become of the batches then. Exits with 3 if the
// function is not called so often.
void run(const Fault& fault, std::uint64_t call, const std::string& delivery) {
  ::alarm(kWatchdogS);
  std::vector<std::string> errors;
  auto uses = std::make_unique<Uses>(delivery);
  const bool came = uses->until_called(fault, call, errors);
  for (const std::string& error : errors) {
    REQUIRE(fault.tried != nullptr && says(error, fault.tried));
    REQUIRE(says(error, "CUDA_ERROR_UNKNOWN (unknown error)"));
  }
  for (const std::string& error : uses->use()) REQUIRE(says(error, "no failure any more"));
  uses->let_go();
  uses.reset();
  REQUIRE(!::testing::Test::HasFailure());
  if (!fault.leaves) {
    delivery::test::await_no_context();
    REQUIRE(delivery::test::holds_nothing(fake_cuda::own_counts()));
  }
  std::_Exit(came ? 0 : 3);
}

class SessionFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  static void fails_at_each_call(const std::string& delivery) {
    const Fault fault = GetParam();
    for (std::uint64_t call = 1; call <= kMostCalls; ++call) {
      const fake_cuda::Ended ended = in_child({"FAKE_CUDA_FAIL=" + std::string(fault.function) +
                                               ":" + std::to_string(call) + ":CUDA_ERROR_UNKNOWN"},
                                              [&] { run(fault, call, delivery); });
      if (ended.code == 3) return;
      ASSERT_THAT(ended, Succeeds()) << fault << ", call " << call;
    }
  }
#ifdef SPDLD_SANITIZED
  static constexpr std::uint64_t kMostCalls = 1;  // each costs a second or two
#else
  static constexpr std::uint64_t kMostCalls = 3;
#endif
};

TEST_P(SessionFaultTest, IsToldToWhomItConcernsAndLeavesNothingBehind) {
  fails_at_each_call("device: cuda");
}

TEST_P(SessionFaultTest, LeavesBatchesInMainMemoryOrIsTold) {
  fails_at_each_call("device: cuda, on_unavailable: host");
}

INSTANTIATE_TEST_SUITE_P(Functions, SessionFaultTest, ::testing::ValuesIn(delivery::test::kFaults),
                         [](const auto& fault) { return std::string(fault.param.function); });

}  // namespace
}  // namespace spdld::session
