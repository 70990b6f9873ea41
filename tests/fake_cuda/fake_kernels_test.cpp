// SPDX-License-Identifier: Apache-2.0
// What the fake lets tests do in the place of kernels, of captures and of broken hardware; and the
// order that its seed draws.
#include <array>
#include <cstring>
#include <set>
#include <thread>

#include "tests/fake_cuda/child.h"

namespace spdld::fake_cuda {
namespace {

constexpr std::size_t kKernelBytes = 4096;

// Copies a byte to all of it; from pageable memory, so that it is read at once.
void fill_all(CUdeviceptr to, int byte, CUstream stream) {
  char bytes[kKernelBytes];
  std::memset(bytes, byte, sizeof bytes);
  REQUIRE(cu().MemcpyHtoDAsync(to, bytes, kKernelBytes, stream) == CUDA_SUCCESS);
}

char first_byte(CUdeviceptr address) { return *static_cast<const char*>(doors().peek(address)); }

TEST(FakeCudaKernels, RunInTheOrderOfTheirStream) {
  EXPECT_THAT(in_child({"FAKE_CUDA_LATENESS=30"},
                       [] {
                         use_device();
                         const CUdeviceptr memory = new_memory(kKernelBytes);
                         const CUstream stream = new_stream();
                         struct Reader {
                           const char* content;
                           char seen;
                         } reader{static_cast<const char*>(doors().peek(memory)), 0};
                         const auto read = [](void* argument) {
                           auto& self = *static_cast<Reader*>(argument);
                           self.seen = *self.content;
                         };
                         fill_all(memory, 1, stream);
                         REQUIRE(doors().launch(stream, read, &reader) == CUDA_SUCCESS);
                         fill_all(memory, 2, stream);
                         REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
                         REQUIRE(reader.seen == 1);
                         REQUIRE(first_byte(memory) == 2);
                       }),
              Succeeds());
}

TEST(FakeCudaKernels, HoldBackTheirStreamAlone) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUdeviceptr held = new_memory(kKernelBytes),
                                           free = new_memory(kKernelBytes);
                         const CUstream one = new_stream(), other = new_stream();
                         Gate gate;
                         gate.hold(one);
                         fill_all(held, 1, one);
                         fill_all(free, 1, other);
                         REQUIRE(cu().StreamSynchronize(other) == CUDA_SUCCESS);
                         REQUIRE(first_byte(free) == 1);
                         REQUIRE(first_byte(held) == 0);
                         gate.open();
                         REQUIRE(cu().StreamSynchronize(one) == CUDA_SUCCESS);
                         REQUIRE(first_byte(held) == 1);
                       }),
              Succeeds());
}

TEST(FakeCudaKernels, FindTheContentOfDeviceMemory) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUdeviceptr memory = new_memory(kKernelBytes);
                         auto* const begin = static_cast<std::byte*>(doors().peek(memory));
                         REQUIRE(begin != nullptr);
                         REQUIRE(doors().peek(memory + 10) == begin + 10);
                         REQUIRE(doors().peek(memory + kKernelBytes) == nullptr);
                         REQUIRE(cu().MemFree(memory) == CUDA_SUCCESS);
                         REQUIRE(doors().peek(memory) == nullptr);
                       }),
              Succeeds());
}

TEST(FakeCudaKernels, ThatAreCapturedDoNotRun) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUstream stream = new_stream();
                         bool ran = false;
                         const auto run = [](void* argument) {
                           *static_cast<bool*>(argument) = true;
                         };
                         REQUIRE(doors().begin_capture(stream) == CUDA_SUCCESS);
                         REQUIRE(doors().launch(stream, run, &ran) == CUDA_SUCCESS);
                         REQUIRE(doors().end_capture(stream) == CUDA_SUCCESS);
                         REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
                         REQUIRE(!ran);
                       }),
              Succeeds());
}

TEST(FakeCudaKernels, ThreadsMayCallAtOnce) {
  EXPECT_THAT(in_child({"FAKE_CUDA_LATENESS=10"},
                       [] {
                         const auto work = [] {
                           for (int round = 0; round < 20; ++round) {
                             use_device();
                             const CUstream stream = new_stream();
                             const CUdeviceptr memory = new_memory(kKernelBytes);
                             void* host = nullptr;
                             CUevent event = nullptr;
                             REQUIRE(cu().EventCreate(&event, 0) == CUDA_SUCCESS);
                             REQUIRE(cu().MemHostAlloc(&host, kKernelBytes, 0) == CUDA_SUCCESS);
                             std::memset(host, round, kKernelBytes);
                             REQUIRE(cu().MemcpyHtoDAsync(memory, host, kKernelBytes, stream) ==
                                     CUDA_SUCCESS);
                             REQUIRE(cu().EventRecord(event, stream) == CUDA_SUCCESS);
                             while (cu().EventQuery(event) == CUDA_ERROR_NOT_READY)
                               std::this_thread::yield();
                             REQUIRE(first_byte(memory) == round);
                             REQUIRE(cu().MemFreeHost(host) == CUDA_SUCCESS);
                             REQUIRE(cu().MemFree(memory) == CUDA_SUCCESS);
                             REQUIRE(cu().EventDestroy(event) == CUDA_SUCCESS);
                             REQUIRE(cu().StreamDestroy(stream) == CUDA_SUCCESS);
                             REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                             REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                           }
                         };
                         std::array<std::thread, 4> threads;
                         for (std::thread& thread : threads) thread = std::thread(work);
                         for (std::thread& thread : threads) thread.join();
                         FakeCudaCounts counts{};
                         doors().counts(&counts, nullptr);
                         REQUIRE(counts.contexts + counts.streams + counts.events +
                                     counts.host_allocations + counts.device_bytes +
                                     counts.left_behind ==
                                 0);
                       }),
              Succeeds());
}

TEST(FakeCudaLoss, ABrokenContextRefusesCallsUntilItEnds) {
  EXPECT_THAT(
      in_child({},
               [] {
                 use_device();
                 const CUdeviceptr memory = new_memory(kKernelBytes);
                 REQUIRE(doors().break_context(0, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_SUCCESS);
                 CUdeviceptr more = 0;
                 REQUIRE(cu().MemAlloc(&more, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
                 REQUIRE(cu().MemFree(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
                 REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                 REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                 use_device();
                 new_memory(kKernelBytes);
               }),
      Succeeds());
}

TEST(FakeCudaLoss, ALostDeviceStaysLost) {
  EXPECT_THAT(
      in_child({"FAKE_CUDA_DEVICES=2"},
               [] {
                 use_device(0);
                 REQUIRE(doors().lose_device(0) == CUDA_SUCCESS);
                 CUdeviceptr memory = 0;
                 REQUIRE(cu().MemAlloc(&memory, 1) == CUDA_ERROR_ECC_UNCORRECTABLE);
                 REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                 REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                 CUcontext context = nullptr;
                 REQUIRE(cu().DevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_ECC_UNCORRECTABLE);
                 use_device(1);
                 new_memory(kKernelBytes);
                 REQUIRE(doors().lose_device(2) == CUDA_ERROR_INVALID_DEVICE);
               }),
      Succeeds());
}

TEST(FakeCudaLoss, WaitersLearnOfTheLoss) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUstream stream = new_stream();
                         const CUdeviceptr memory = new_memory(kKernelBytes);
                         Gate gate;
                         gate.hold(stream);
                         fill_all(memory, 1, stream);
                         while (!gate.reached()) std::this_thread::yield();
                         std::thread loss([] {
                           // It is waited for meanwhile, or from now on: both end the same.
                           REQUIRE(doors().lose_device(0) == CUDA_SUCCESS);
                         });
                         REQUIRE(cu().StreamSynchronize(stream) == CUDA_ERROR_ECC_UNCORRECTABLE);
                         loss.join();
                         gate.open();
                         REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                         REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                       }),
              Succeeds());
}

// Which of five streams was the last to write, all of them having begun at once.
int last_writer(int seed) {
  return in_child({"FAKE_CUDA_SEED=" + std::to_string(seed)},
                  [] {
                    use_device();
                    const CUdeviceptr memory = new_memory(kKernelBytes);
                    const CUstream held = new_stream();
                    CUevent opened = nullptr;
                    REQUIRE(cu().EventCreate(&opened, 0) == CUDA_SUCCESS);
                    Gate gate;
                    gate.hold(held);
                    REQUIRE(cu().EventRecord(opened, held) == CUDA_SUCCESS);
                    CUstream streams[5];
                    for (CUstream& stream : streams) {
                      stream = new_stream();
                      REQUIRE(cu().StreamWaitEvent(stream, opened, 0) == CUDA_SUCCESS);
                      fill_all(memory, 10 + static_cast<int>(&stream - streams), stream);
                    }
                    gate.open();
                    for (const CUstream stream : streams)
                      REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
                    std::_Exit(first_byte(memory));
                  })
      .code;
}

TEST(FakeCudaSeed, DrawsTheOrderOfStreams) {
  std::set<int> writers;
  for (int seed = 0; seed < 20; ++seed) writers.insert(last_writer(seed));
  EXPECT_GT(writers.size(), 1u);
  EXPECT_GE(*writers.begin(), 10);
  EXPECT_LE(*writers.rbegin(), 14);
}

TEST(FakeCudaSeed, DrawsTheSameOrderAgain) {
  for (int seed = 0; seed < 10; ++seed) EXPECT_EQ(last_writer(seed), last_writer(seed)) << seed;
}

}  // namespace
}  // namespace spdld::fake_cuda
