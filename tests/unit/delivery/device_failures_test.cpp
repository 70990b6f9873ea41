// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a GPU, on the fake driver: what is said, and what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/driver.h"
#include "tests/unit/delivery/device_faults.h"
#include "tests/unit/delivery/device_rig.h"

namespace spdld::delivery::test {
namespace {

using fake_cuda::doors;
using fake_cuda::Ended;
using fake_cuda::in_child;
using fake_cuda::own_counts;
using fake_cuda::Succeeds;

bool says(const Status& status, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (status.message().find(text) != std::string::npos) continue;
    std::fprintf(stderr, "'%s' does not say '%s'\n", status.message().c_str(), text.c_str());
    return false;
  }
  return true;
}

// All that a consumer has the daemon do with a GPU, once; what failed.
std::vector<Status> use(Devices& devices, Source& source) {
  std::vector<Status> failed;
  auto gpu = devices.open(uuid_of());
  if (!gpu) return {gpu.error()};
  auto to = (*gpu)->allocate(4 * kMiB);
  if (!to) return {to.error()};
  std::unique_ptr<PinnedArena> pinned = (*gpu)->pin(source.arena());
  std::promise<void> gone;
  constexpr std::uint64_t kBytes = 100000;
  for (std::uint32_t slot = 0; slot < 4; ++slot)
    (*gpu)->copy({.pinned = pinned.get(),
                  .slot = slot,
                  .to = to->get(),
                  .parts = {{.from = source.at(slot), .to = slot * kBytes, .bytes = kBytes / 2},
                            {.from = source.at(slot) + kBytes / 2,
                             .to = slot * kBytes + kBytes / 2,
                             .bytes = kBytes / 2}},
                  .beside = {}},
                 [&, slot](const Status& status) {
                   if (!status.ok()) failed.push_back(status);
                   if (slot < 3) return;
                   to->reset();
                   pinned.reset();
                   gone.set_value();
                 });
  gone.get_future().get();
  return failed;
}

// Uses the GPU until the fault has come, and once more, which is none the worse.
struct Uses {
  std::unique_ptr<Devices> devices = find_devices(64 * kMiB);
  Source source{100000, 4};
  std::vector<Status> failed;

  // False: it never comes.
  bool until_called(const char* function, std::uint64_t times) {
    for (int i = 0; i < 6 && doors().calls(function) < times; ++i) {
      for (Status& status : use(*devices, source)) failed.push_back(std::move(status));
    }
    return doors().calls(function) >= times;
  }
};

class FaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultTest, IsToldOnceAndLeavesNothingBehind) {
  const Fault fault = GetParam();
  for (std::uint64_t call = 1; call <= 4; ++call) {
    const auto body = [&] {
      Uses uses;
      if (!uses.until_called(fault.function, call)) REQUIRE(call > 1);
      if (fault.tried != nullptr && doors().calls(fault.function) >= call) {
        REQUIRE(!uses.failed.empty());
        for (const Status& status : uses.failed)
          REQUIRE(says(status, {fault.tried, "CUDA_ERROR_UNKNOWN (unknown error)"}));
      }
      if (fault.tried == nullptr) REQUIRE(uses.failed.empty());
      for (const Status& status : use(*uses.devices, uses.source))
        REQUIRE(says(status, {"no failure any more"}));
      const bool in_budget = uses.devices->facts()[0].arena_bytes == 0;
      uses.devices.reset();
      REQUIRE(fault.leaves || (in_budget && holds_nothing(own_counts())));
    };
    EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=" + std::string(fault.function) + ":" +
                          std::to_string(call) + ":CUDA_ERROR_UNKNOWN"},
                         body),
                Succeeds())
        << fault << ", call " << call;
  }
}
INSTANTIATE_TEST_SUITE_P(Functions, FaultTest, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.function); });

TEST(DeviceFailureTest, ContextThatCannotBeMadeCurrentIsTold) {
  for (const char* call : {"1", "2", "3", "4", "5"}) {
    const auto body = [&] {
      Uses uses;
      REQUIRE(uses.until_called("cuCtxPushCurrent", 5));
      for (const Status& status : uses.failed)
        REQUIRE(says(status, {"making its context current", "CUDA_ERROR_UNKNOWN"}));
      // At its end, an arena that it hinders to be let go of stays in the budget.
      REQUIRE(!uses.failed.empty() || *call >= '4');
      REQUIRE(use(*uses.devices, uses.source).empty());
    };
    EXPECT_THAT(
        in_child({"FAKE_CUDA_FAIL=cuCtxPushCurrent:" + std::string(call) + ":CUDA_ERROR_UNKNOWN"},
                 body),
        Succeeds())
        << "call " << call;
  }
}

TEST(DeviceFailureTest, MemoryThatStaysStaysInTheBudget) {
  for (const char* function : {"cuMemUnmap", "cuMemRelease"}) {
    EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=" + std::string(function) + ":1:CUDA_ERROR_UNKNOWN"},
                         [] {
                           Uses uses;
                           REQUIRE(use(*uses.devices, uses.source).empty());
                           REQUIRE(uses.devices->facts()[0].arena_bytes == 4 * kMiB);
                           REQUIRE(use(*uses.devices, uses.source).empty());
                           REQUIRE(uses.devices->facts()[0].arena_bytes == 4 * kMiB);
                         }),
                Succeeds());
  }
}

TEST(DeviceFailureTest, FailuresInARowAreTold) {
  EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=cuEventCreate:1:CUDA_ERROR_OUT_OF_MEMORY,"
                        "cuStreamSynchronize:1:CUDA_ERROR_UNKNOWN"},
                       [] {
                         Uses uses;
                         const auto failed = use(*uses.devices, uses.source);
                         REQUIRE(!failed.empty());
                         REQUIRE(says(failed[0], {"copying a batch", "CUDA_ERROR_UNKNOWN"}));
                         REQUIRE(use(*uses.devices, uses.source).empty());
                       }),
              Succeeds());
  EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=cuMemCreate:1:CUDA_ERROR_UNKNOWN,"
                        "cuGetErrorName:1:CUDA_ERROR_INVALID_VALUE"},
                       [] {
                         Uses uses;
                         REQUIRE(says(use(*uses.devices, uses.source).at(0), {"error 999"}));
                       }),
              Succeeds());
  EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=cuMemCreate:1:CUDA_ERROR_OUT_OF_MEMORY,"
                        "cuMemGetInfo:1:CUDA_ERROR_UNKNOWN"},
                       [] {
                         Uses uses;
                         const auto failed = use(*uses.devices, uses.source);
                         REQUIRE(failed.at(0).code() == Code::kResourceExhausted);
                         REQUIRE(says(failed[0], {"4.0 MiB on Fake GPU 0 cannot be had;"}));
                       }),
              Succeeds());
}

TEST(DeviceFailureTest, CopiesBeforeTheOneThatFailsEndFirst) {
  EXPECT_THAT(
      in_child({"FAKE_CUDA_FAIL=cuMemcpyHtoDAsync:2:CUDA_ERROR_UNKNOWN", "FAKE_CUDA_LATENESS=20"},
               [] {
                 const auto devices = find_devices(kBudget);
                 Rig rig(*devices);
                 std::promise<void> all_given;
                 rig.gpu->post([given = all_given.get_future().share()] { given.wait(); });
                 std::string ended;
                 std::promise<void> over;
                 rig.gpu->copy(rig.copy_of(0), [&](const Status& status) {
                   ended += status.ok() ? "first there, " : "first not there, ";
                 });
                 rig.gpu->copy(rig.copy_of(1), [&](const Status& status) {
                   ended += status.ok() ? "second there" : "second not there";
                   over.set_value();
                 });
                 all_given.set_value();
                 over.get_future().get();
                 REQUIRE(ended == "first there, second not there");
               }),
      Succeeds());
}

// What `harm` does while the second of many copies is begun; both GPUs copy.
Ended harmed_while_copying(const std::function<void()>& harm, const char* words) {
  return in_child({"FAKE_CUDA_DEVICES=2"}, [=] {
    const auto devices = find_devices(kBudget);
    {
      Rig other(*devices, 256 << 10, 4, 1);
      Rig rig(*devices);
      const DeviceMemoryPtr gpu = rig.gpu;
      std::vector<Status> ended;
      std::promise<void> all;
      std::promise<Status> of_other;
      for (std::uint32_t i = 0; i < 12; ++i) {
        DeviceCopy copy = rig.copy_of(i % 4);
        if (i == 1) {
          copy.beside = [&]() -> Status {
            other.gpu->copy(other.copy_of(0), [&](const Status& s) { of_other.set_value(s); });
            harm();
            return {};
          };
        }
        gpu->copy(std::move(copy), [&](const Status& status) {
          ended.push_back(status);
          if (ended.size() == 12) all.set_value();
        });
      }
      all.get_future().get();
      for (std::uint32_t i = 1; i < 12; ++i)
        REQUIRE(says(ended[i], {"Fake GPU 0: copying a batch", words}));
      REQUIRE(of_other.get_future().get().ok());
      REQUIRE(other.copy(other.copy_of(1)).ok());
      const auto again = devices->open(uuid_of());
      REQUIRE(!again && says(again.error(), {"Fake GPU 0", words}));
      const auto more = gpu->allocate(kMiB);
      REQUIRE(!more && says(more.error(), {"Fake GPU 0", words}));
      REQUIRE(must(devices->open(uuid_of(1))) == other.gpu);
    }
  });
}

TEST(DeviceLossTest, AllCopiesEndWithTheDriversWords) {
  EXPECT_THAT(harmed_while_copying([] { REQUIRE(doors().lose_device(0) == CUDA_SUCCESS); },
                                   "CUDA_ERROR_ECC_UNCORRECTABLE"),
              Succeeds());
}

TEST(DeviceLossTest, BrokenContextEndsAllCopiesThere) {
  EXPECT_THAT(
      harmed_while_copying(
          [] { REQUIRE(doors().break_context(0, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_SUCCESS); },
          "CUDA_ERROR_ILLEGAL_ADDRESS"),
      Succeeds());
}

Ended open_says(const std::vector<std::string>& settings, const std::vector<std::string>& texts,
                const std::string& uuid = uuid_of()) {
  return in_child(settings, [&] {
    const auto refused = find_devices(kBudget)->open(uuid);
    REQUIRE(!refused && refused.error().code() == Code::kFailedPrecondition);
    REQUIRE(says(refused.error(), texts));
    REQUIRE(doors().calls("cuDevicePrimaryCtxRetain") == 0);
  });
}

TEST(DeviceMessageTest, ComputeModesThatShutTrainersOutAreRefused) {
  EXPECT_THAT(
      open_says({"FAKE_CUDA_COMPUTE_MODE=exclusive"},
                {"Fake GPU 0", uuid_of(), "exclusive-process mode", "nvidia-smi -c DEFAULT"}),
      Succeeds());
  EXPECT_THAT(open_says({"FAKE_CUDA_COMPUTE_MODE=prohibited"},
                        {"forbids all contexts", "nvidia-smi -c DEFAULT"}),
              Succeeds());
}

TEST(DeviceMessageTest, UnseenGpuIsToldWithThoseThatAreSeen) {
  EXPECT_THAT(open_says({"FAKE_CUDA_DEVICES=2"},
                        {"no GPU GPU-ffffffff-0000-0000-0000-000000000000",
                         uuid_of(0) + ", " + uuid_of(1), "CUDA_VISIBLE_DEVICES", "MIG"},
                        "GPU-ffffffff-0000-0000-0000-000000000000"),
              Succeeds());
  EXPECT_THAT(
      open_says({"FAKE_CUDA_DEVICES=2", "CUDA_VISIBLE_DEVICES=1"}, {"it sees " + uuid_of(1) + ")"}),
      Succeeds());
}

TEST(DeviceMessageTest, GpuThatIsNotIdentifiedIsListedWithWhy) {
  EXPECT_THAT(
      open_says({"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_FAIL=cuDeviceGetUuid:2:CUDA_ERROR_UNKNOWN"},
                {uuid_of(0) + ", GPU 1: the driver does not tell its UUID"}, uuid_of(1)),
      Succeeds());
}

TEST(DeviceMessageTest, DriversThatCannotShareMemoryAreRefused) {
  EXPECT_THAT(open_says({"FAKE_CUDA_ATTRIBUTES=102=0"}, {"no virtual memory management"}),
              Succeeds());
  EXPECT_THAT(open_says({"FAKE_CUDA_ATTRIBUTES=103=0"}, {"cannot share memory by file"}),
              Succeeds());
}

TEST(DeviceMessageTest, DriversThatCannotBeUsedAreTold) {
  EXPECT_THAT(open_says({"FAKE_CUDA_MISSING=cuMemCreate"},
                        {"the daemon cannot use GPUs", "has no cuMemCreate"}),
              Succeeds());
  EXPECT_THAT(open_says({"FAKE_CUDA_DEVICES=0"}, {"cannot use GPUs", "no GPU"}), Succeeds());
  EXPECT_THAT(open_says({"FAKE_CUDA_INIT=CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                        {"cuInit", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}),
              Succeeds());
  for (const char* function : {"cuDriverGetVersion", "cuDeviceGetCount"})
    EXPECT_THAT(open_says({"FAKE_CUDA_FAIL=" + std::string(function) + ":1:CUDA_ERROR_UNKNOWN"},
                          {function, "CUDA_ERROR_UNKNOWN"}),
                Succeeds());
}

TEST(DeviceMessageTest, FactsNameEachGpu) {
  EXPECT_THAT(in_child({"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_NAMES=One,Two", "FAKE_CUDA_VERSION=12040",
                        "FAKE_CUDA_MEMORY=67108864"},
                       [] {
                         const auto devices = find_devices(kBudget);
                         const auto facts = devices->facts();
                         REQUIRE(facts.size() == 2 && devices->why_none().empty());
                         REQUIRE(devices->driver_text() == "CUDA 12.4");
                         REQUIRE(facts[1].name == "Two" && facts[1].uuid == uuid_of(1));
                         REQUIRE(!facts[1].mig && facts[1].compute_mode == "default");
                         REQUIRE(facts[1].total_bytes == 64 * kMiB && facts[1].why_not.empty());
                         REQUIRE(facts[1].budget_bytes == kBudget && !facts[1].context);
                       }),
              Succeeds());
}

TEST(DeviceMessageTest, MigInstanceIsNamedAsOneAndWorks) {
  EXPECT_THAT(in_child({"FAKE_CUDA_MIG=1"},
                       [] {
                         Uses uses;
                         const auto facts = uses.devices->facts();
                         REQUIRE(facts[0].mig && facts[0].uuid.starts_with("MIG-"));
                         // The digits alone tell which one is meant.
                         REQUIRE(use(*uses.devices, uses.source).empty());
                       }),
              Succeeds());
}

// Run without the fake.
TEST(NoDriverTest, MachineWithoutADriverSaysSo) {
  if (cuda::driver().why_not.find("there is no NVIDIA driver here") == std::string::npos)
    GTEST_SKIP() << "this machine has a driver";
  const auto devices = find_devices(kBudget);
  const auto refused = devices->open(uuid_of());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(says(refused.error(), {"the daemon cannot use GPUs", "no NVIDIA driver here"}));
  EXPECT_THAT(devices->facts(), ::testing::IsEmpty());
  EXPECT_THAT(devices->why_none(), ::testing::HasSubstr("no NVIDIA driver here"));
  EXPECT_EQ(devices->driver_text(), "");
}

}  // namespace
}  // namespace spdld::delivery::test
