// SPDX-License-Identifier: Apache-2.0
// Each function of the driver hangs at each of its calls while ranks attach, read, are swapped,
// seek and leave: ranks in main memory go on meanwhile. On the fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "cuda/functions.h"
#include "tests/fake_cuda/child.h"
#include "tests/unit/delivery/device_faults.h"
#include "tests/unit/delivery/device_rig.h"
#include "tests/unit/session/sessions_gpu_fixture.h"

namespace spdld::session {
namespace {

using fake_cuda::doors;
using fake_cuda::in_child;
using fake_cuda::Succeeds;

constexpr unsigned kHangWatchdogS = 60;

// In a child. Its only thread stands for those that must not wait for a driver: the dispatcher's
// and the operators'. Whenever a call hangs, it has ranks in main memory attach, read, seek and
// leave before it lets the call go.
class Hanging : public ArraysTest {
 public:
  Hanging() { SetUp(); }
  void TestBody() override {}

  void use() {
    apply_arrays("device: cpu", "host");
    in_main_memory_.emplace(attach({.pipeline = "host", .job = "h"}));
    read(*in_main_memory_, 0, 1, false);
    operate([&] { apply_arrays("device: cpu", "swapped"); });
    operate([&] { apply_arrays("device: cuda", "there"); });

    const Rank moved = attach({.pipeline = "swapped", .job = "j", .device = gpu()});
    await_batch(moved, 0);
    const Rank rank = attach({.pipeline = "there", .job = "k", .device = gpu()});
    const wire::BatchFrame first = await_batch(rank, 0);
    REQUIRE(is_on_gpu(first));
    // It shares the stream, so that a rank that goes back needs slots of its own.
    const Rank other = attach({.pipeline = "there", .job = "l", .device = gpu()});
    REQUIRE(is_on_gpu(await_batch(other, 0)));
    operate([&] {
      const auto swapped = service_->swap(self_, arrays("device: cuda", "swapped"), at(8), nullptr);
      EXPECT_TRUE(swapped) << swapped.error().message();
    });
    await_batch(rank, 1);
    sessions_->seek(*rank.connection, {.turn = 2, .epoch = 0, .serial = 1});
    for (std::uint64_t step = 0; step < 3; ++step) REQUIRE(is_on_gpu(await_batch(rank, step)));
    for (std::uint64_t step = 1; step < kSteps; ++step)
      REQUIRE(is_on_gpu(await_batch(moved, step)) == (step >= 8));
    sessions_->detach(*moved.connection);
    for (const Rank* one : {&moved, &rank, &other}) hang_up(*one);
    while (fake_cuda::own_counts().contexts > 0) look();
  }
  // That request for memory on the GPU, counted from the measurement's begin, hangs until the
  // measured rank has read on.
  void measure(std::uint64_t call) {
    apply_arrays("device: cuda", "there");
    const Rank rank = attach({.pipeline = "there", .job = "k", .device = gpu()});
    const auto read_one = [&] {
      const wire::BatchFrame batch = rank.any_batch();
      REQUIRE(is_on_gpu(batch));
      sessions_->release(*rank.connection, batch.lease);
    };
    read_one();
    doors().hold("cuMemCreate", doors().calls("cuMemCreate") + call);
    std::atomic<bool> done{false};
    std::thread measures([&] {
      const auto found =
          service_->headspace(self_, "k", "", Headspace::kLeastSteps,
                              [](auto, auto, const auto&, const auto&) { return true; });
      REQUIRE(found.has_value() && found->ended_by.empty() && found->warning.empty());
      done = true;
    });
    while (!done) {
      read_one();
      if (doors().held() == 0) continue;
      hung_ = true;
      for (std::uint64_t batch = 0; batch < 2 * kSteps; ++batch) read_one();
      doors().let_go();
    }
    measures.join();
    hang_up(rank);
    while (fake_cuda::own_counts().contexts > 0) std::this_thread::yield();
  }
  bool has_hung() const { return hung_; }
  void let_go() {
    stop();
    devices_.reset();
  }

 private:
  static std::string gpu() { return delivery::test::uuid_of(); }
  void look() {
    std::this_thread::yield();
    if (doors().held() == 0) return;
    if (!hung_) go_on_in_main_memory();
    hung_ = true;
    doors().let_go();
  }
  void go_on_in_main_memory() {
    read(*in_main_memory_, 1, 6, false);
    Rank comes = attach({.pipeline = "host", .job = "i"});
    comes.passed = [&](const wire::BatchFrame& batch) {
      sessions_->release(*comes.connection, batch.lease);
    };
    read(comes, 0, 3, false);
    sessions_->seek(*comes.connection, {.turn = 3, .epoch = 0, .serial = 1});
    comes.next<wire::ResetFrame>(wire::FrameType::kReset);
    read(comes, 0, 3, false);
    REQUIRE(sessions_->reports().jobs(self_).size() >= 2);
    sessions_->heartbeat();
    sessions_->tick();
    hang_up(comes);
    REQUIRE(!::testing::Test::HasFailure());
  }
  wire::BatchFrame await_batch(const Rank& rank, std::uint64_t step) {
    std::array<std::byte, wire::kMaxFrameBytes> bytes;
    while (true) {
      const ssize_t size = ::recv(rank.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (size < 0) {
        look();
        continue;
      }
      REQUIRE(size > 0);
      const test::ReceivedFrame frame(
          std::span<const std::byte>(bytes).first(static_cast<std::size_t>(size)));
      REQUIRE(frame.type() != wire::FrameType::kError);
      const auto batch = frame.as<wire::BatchFrame>();
      if (frame.type() != wire::FrameType::kBatch && !is_on_gpu(batch)) continue;
      sessions_->release(*rank.connection, batch.lease);
      if (batch.step == step) return batch;
    }
  }
  // An operator waits for what the change needs, and nobody else does.
  void operate(const std::function<void()>& change) {
    std::atomic<bool> done{false};
    std::thread operates([&] {
      change();
      done = true;
    });
    while (!done) look();
    operates.join();
    REQUIRE(!::testing::Test::HasFailure());
  }

  std::optional<Rank> in_main_memory_;
  bool hung_ = false;
};

// Exits with 3 if nothing has hung.
void run(const std::function<void(Hanging&)>& use) {
  ::alarm(kHangWatchdogS);
  auto hanging = std::make_unique<Hanging>();
  use(*hanging);
  const bool hung = hanging->has_hung();
  doors().let_go();
  hanging->let_go();
  hanging.reset();
  REQUIRE(!::testing::Test::HasFailure());
  std::_Exit(hung ? 0 : 3);
}

#define SPDLD_NAME(name, version) "cu" #name,
constexpr const char* kFunctions[] = {SPDLD_CUDA_FUNCTIONS(SPDLD_NAME)};
#undef SPDLD_NAME

class SessionHangTest : public ::testing::TestWithParam<const char*> {
 protected:
#ifdef SPDLD_SANITIZED
  static constexpr std::uint64_t kMostCalls = 1;  // each costs a second or two
#else
  static constexpr std::uint64_t kMostCalls = 3;
#endif
};

TEST_P(SessionHangTest, HoldsUpNoRankInMainMemory) {
  const std::string_view function = GetParam();
  const bool is_called =
      std::any_of(std::begin(delivery::test::kFaults), std::end(delivery::test::kFaults),
                  [&](const auto& fault) { return function == fault.function; });
  for (std::uint64_t call = 1; call <= kMostCalls; ++call) {
    const fake_cuda::Ended ended = in_child({}, [&] {
      doors().hold(GetParam(), call);
      run([](Hanging& hanging) { hanging.use(); });
    });
    if (ended.code == 3 && (call > 1 || !is_called)) return;
    ASSERT_THAT(ended, Succeeds()) << function << ", call " << call;
  }
}

TEST(HeadspaceHangTest, HoldsUpNoRankThatIsMeasured) {
  constexpr std::uint64_t kCalls = 2;  // to grow, and to shrink
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    const fake_cuda::Ended ended =
        in_child({}, [&] { run([&](Hanging& hanging) { hanging.measure(call); }); });
    ASSERT_THAT(ended, Succeeds()) << "call " << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, SessionHangTest, ::testing::ValuesIn(kFunctions),
                         [](const auto& function) { return std::string(function.param); });

}  // namespace
}  // namespace spdld::session
