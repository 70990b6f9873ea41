// SPDX-License-Identifier: Apache-2.0
// What every DeviceMemory promises, on the fake driver, whose copies run late and in a drawn order.
#include "delivery/device_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "tests/support/pass_descriptor.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/delivery/device_rig.h"

namespace spdld::delivery::test {
namespace {

using fake_cuda::all_counts;
using fake_cuda::Ended;
using fake_cuda::in_child;
using fake_cuda::OtherProcess;
using fake_cuda::own_counts;
using fake_cuda::Succeeds;

bool says(const Status& status, std::initializer_list<const char*> texts) {
  for (const char* text : texts) {
    if (status.message().find(text) == std::string::npos) {
      std::fprintf(stderr, "'%s' does not say '%s'\n", status.message().c_str(), text);
      return false;
    }
  }
  return true;
}

class DeviceMemoryTest : public ::testing::TestWithParam<int> {
 protected:
  // In a child that sees two GPUs.
  static Ended on_gpus(const std::function<void()>& body, std::vector<std::string> settings = {}) {
    settings.insert(settings.begin(), "FAKE_CUDA_DEVICES=2");
    return in_child(settings, body);
  }
  static Ended on_gpus_drawn(const std::function<void()>& body) {
    return on_gpus(body, {"FAKE_CUDA_SEED=" + std::to_string(GetParam())});
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, DeviceMemoryTest, ::testing::Range(0, 5));

TEST_P(DeviceMemoryTest, PartsLieWhereTheyWereAskedTo) {
  EXPECT_THAT(
      on_gpus_drawn([] {
        const auto devices = find_devices(kBudget);
        Rig rig(*devices, 2 * kMiB, 2);
        const View view(*rig.to);
        std::uint64_t to = 5;
        std::uint64_t from = 3;
        DeviceCopy copy = rig.copy_of(1);
        copy.parts.clear();
        for (const std::uint64_t bytes : {0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 65537, 1048579}) {
          copy.parts.push_back({.from = rig.source.at(1) + from, .to = to, .bytes = bytes});
          to += bytes + 3;
          from += bytes + 1;
        }
        const auto parts = copy.parts;
        REQUIRE(rig.copy(std::move(copy)).ok());
        REQUIRE(view.byte(4) == std::byte{0});
        for (const auto& part : parts) {
          const auto offset = static_cast<std::uint64_t>(part.from - rig.source.at(1));
          REQUIRE(view.holds(1, part.to, offset, part.bytes));
          for (std::uint64_t gap = 0; gap < 3; ++gap)
            REQUIRE(view.byte(part.to + part.bytes + gap) == std::byte{0});
        }
      }),
      Succeeds());
}

TEST_P(DeviceMemoryTest, EachCopyIsThereWhenItsDoneIsCalled) {
  EXPECT_THAT(on_gpus_drawn([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices);
                const View view(*rig.to);
                const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
                std::vector<int> ended;
                std::promise<void> all;
                constexpr int kCopies = 24;
                for (int i = 0; i < kCopies; ++i) {
                  const auto slot = static_cast<std::uint32_t>(i) % 4;
                  rig.gpu->copy(rig.copy_of(slot), [&, i, slot](const Status& status) {
                    std::array<char, 16> name{};
                    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
                    REQUIRE(std::string(name.data()) == "spdld-cuda");
                    REQUIRE(status.ok());
                    REQUIRE(i >= 4 || view.holds(slot, slot * bytes, 0, bytes));
                    ended.push_back(i);
                    if (i + 1 == kCopies) all.set_value();
                  });
                }
                all.get_future().get();
                for (int i = 0; i < kCopies; ++i) REQUIRE(ended[static_cast<std::size_t>(i)] == i);
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, SlotsFilledAgainAreCopiedAgain) {
  EXPECT_THAT(on_gpus_drawn([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices, 70000, 2);
                const View view(*rig.to);
                for (unsigned seed = 0; seed < 40; ++seed) {
                  rig.source.fill(seed % 2, seed);
                  REQUIRE(rig.copy(rig.copy_of(seed % 2)).ok());
                  REQUIRE(view.holds(seed, seed % 2 * 70000, 0, 70000));
                }
                REQUIRE(own_counts().registrations == 2);
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, TwoGpusCopyFromOneArena) {
  EXPECT_THAT(on_gpus_drawn([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices);
                const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
                const DeviceMemoryPtr other = must(devices->open(uuid_of(1)));
                auto there = must(other->allocate(4 * bytes));
                auto pinned = other->pin(rig.source.arena());
                std::array<std::promise<Status>, 8> over;
                for (std::uint32_t slot = 0; slot < 4; ++slot) {
                  DeviceCopy copy = rig.copy_of(slot);
                  rig.gpu->copy(copy, [&, slot](const Status& s) { over[slot].set_value(s); });
                  copy.pinned = pinned.get();
                  copy.to = there.get();
                  other->copy(copy, [&, slot](const Status& s) { over[4 + slot].set_value(s); });
                }
                for (auto& one : over) REQUIRE(one.get_future().get().ok());
                // What one GPU has registered is not registered once more.
                REQUIRE(own_counts().registrations == 4);
                const View first(*rig.to);
                const View second(*there, 1);
                for (std::uint32_t slot = 0; slot < 4; ++slot) {
                  REQUIRE(first.holds(slot, slot * bytes, 0, bytes));
                  REQUIRE(second.holds(slot, slot * bytes, 0, bytes));
                }
                std::promise<void> gone;
                other->post([&] {
                  pinned.reset();
                  gone.set_value();
                });
                gone.get_future().get();
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, TheGpuThatRegisteredAnArenaMayLeaveFirst) {
  EXPECT_THAT(on_gpus_drawn([] {
                auto devices = find_devices(kBudget);
                Rig rig(*devices);
                const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
                DeviceMemoryPtr other = must(devices->open(uuid_of(1)));
                auto there = must(other->allocate(4 * bytes));
                auto pinned = other->pin(rig.source.arena());
                const auto copy = [&](std::uint32_t slot) {
                  DeviceCopy what = rig.copy_of(slot);
                  what.pinned = pinned.get();
                  what.to = there.get();
                  std::promise<Status> over;
                  other->copy(what, [&](const Status& status) { over.set_value(status); });
                  return over.get_future().get();
                };
                REQUIRE(rig.copy(rig.copy_of(0)).ok() && copy(0).ok());
                rig.let_go();
                REQUIRE(own_counts().registrations == 1);
                REQUIRE(copy(0).ok() && copy(1).ok());
                {
                  const View view(*there, 1);
                  REQUIRE(view.holds(0, 0, 0, bytes) && view.holds(1, bytes, 0, bytes));
                }
                std::promise<void> gone;
                other->post([&] {
                  pinned.reset();
                  there.reset();
                  gone.set_value();
                });
                gone.get_future().get();
                REQUIRE(own_counts().registrations == 0);
                other.reset();
                devices.reset();
                REQUIRE(holds_nothing(own_counts()));
              }),
              Succeeds());
}

TEST_F(DeviceMemoryTest, WorkBesideACopyRunsOnTheDevicesThread) {
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices);
                std::thread::id beside, done;
                DeviceCopy copy = rig.copy_of(0);
                copy.beside = [&]() -> Status {
                  beside = std::this_thread::get_id();
                  return {};
                };
                std::promise<Status> over;
                rig.gpu->copy(std::move(copy), [&](const Status& status) {
                  done = std::this_thread::get_id();
                  over.set_value(status);
                });
                REQUIRE(over.get_future().get().ok());
                REQUIRE(beside == done && done != std::this_thread::get_id());
              }),
              Succeeds());
}

TEST_F(DeviceMemoryTest, CopyThatNobodyWantsIsNotMade) {
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices);
                const View view(*rig.to);
                const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
                REQUIRE(rig.copy(rig.copy_of(0)).ok());
                DeviceCopy unwanted = rig.copy_of(1);
                unwanted.parts[0].to = 0;  // over the one before
                unwanted.wanted = [] { return false; };
                bool done = false;
                rig.gpu->copy(std::move(unwanted), [&](const Status&) { done = true; });
                DeviceCopy wanted = rig.copy_of(2);
                wanted.wanted = [] { return true; };
                REQUIRE(rig.copy(std::move(wanted)).ok());
                REQUIRE(!done && view.holds(0, 0, 0, bytes));
              }),
              Succeeds());
}

TEST_F(DeviceMemoryTest, FailureOfWorkBesideIsTheCopys) {
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(kBudget);
                Rig rig(*devices);
                const View view(*rig.to);
                DeviceCopy copy = rig.copy_of(1);
                copy.beside = [] { return Status(Code::kResourceExhausted, "no pages"); };
                const Status failed = rig.copy(std::move(copy));
                REQUIRE(failed.code() == Code::kResourceExhausted && says(failed, {"no pages"}));
                // It was awaited all the same, and the next one is none the worse.
                const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
                REQUIRE(view.holds(1, bytes, 0, bytes));
                REQUIRE(rig.copy(rig.copy_of(2)).ok());
              }),
              Succeeds());
}

class Sharing : public DeviceMemoryTest {
 protected:
  // The daemon is a process of its own, which `let_go` tells to let go of the arena.
  Ended shared(bool let_go) const {
    const auto body = [=] {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
      OtherProcess daemon([&] {
        const auto devices = find_devices(kBudget);
        static Rig rig(*devices);
        for (std::uint32_t slot = 0; slot < 4; ++slot) REQUIRE(rig.copy(rig.copy_of(slot)).ok());
        REQUIRE(spdld::test::send_descriptor(ends[0], rig.to->client_fd()));
        if (let_go) rig.let_go();
      });
      const int descriptor = spdld::test::receive_descriptor(ends[1]);
      REQUIRE(descriptor >= 0);
      constexpr std::uint64_t kBytes = 256 << 10;
      {
        const View view(descriptor, 2 * kMiB);
        ::close(descriptor);
        for (unsigned slot = 0; slot < 4; ++slot)
          REQUIRE(view.holds(slot, slot * kBytes, 0, kBytes));
        daemon.kill();
        daemon.reap();
        for (unsigned slot = 0; slot < 4; ++slot)
          REQUIRE(view.holds(slot, slot * kBytes, 0, kBytes));
        REQUIRE(all_counts().shared_bytes == 2 * kMiB);
      }
      REQUIRE(all_counts().shared_bytes == 0);
    };
    return on_gpus(body, {"FAKE_CUDA_LEDGER=" + scratch_.path() + "/ledger"});
  }

 private:
  const spdld::test::ScratchDir scratch_;
};

TEST_F(Sharing, ArenaOutlivesTheDaemonThatMadeIt) { EXPECT_THAT(shared(false), Succeeds()); }
TEST_F(Sharing, ArenaOutlivesTheDaemonsUseOfIt) { EXPECT_THAT(shared(true), Succeeds()); }

TEST_F(DeviceMemoryTest, ArenaBeyondTheBudgetIsRefusedWithNumbers) {
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(8 * kMiB);
                const DeviceMemoryPtr gpu = must(devices->open(uuid_of()));
                const auto half = must(gpu->allocate(4 * kMiB - 5));
                const FakeCudaCounts before = own_counts();
                const auto refused = gpu->allocate(4 * kMiB + 1);
                REQUIRE(!refused && refused.error().code() == Code::kResourceExhausted);
                REQUIRE(says(refused.error(), {"6.0 MiB", "Fake GPU 0", "4.0 MiB of the 8.0 MiB",
                                               "cuda.budget", "delivery.prefetch"}));
                const FakeCudaCounts after = own_counts();
                REQUIRE(std::memcmp(&before, &after, sizeof before) == 0);
                const auto never = gpu->allocate(8 * kMiB + 1);
                REQUIRE(!never && never.error().code() == Code::kFailedPrecondition);
                REQUIRE(gpu->allocate(4 * kMiB).has_value());
                // The other GPU has a budget of its own.
                REQUIRE(must(devices->open(uuid_of(1)))->allocate(8 * kMiB).has_value());
                REQUIRE(devices->facts()[0].arena_bytes == 4 * kMiB);
                REQUIRE(devices->facts()[0].budget_bytes == 8 * kMiB);
              }),
              Succeeds());
}

TEST_F(DeviceMemoryTest, FullGpuIsToldWithNumbers) {
  EXPECT_THAT(
      on_gpus(
          [] {
            const auto devices = find_devices(kBudget);
            const DeviceMemoryPtr gpu = must(devices->open(uuid_of()));
            const auto most = must(gpu->allocate(24 * kMiB));
            const FakeCudaCounts before = own_counts();
            const auto refused = gpu->allocate(16 * kMiB);
            REQUIRE(!refused && refused.error().code() == Code::kResourceExhausted);
            REQUIRE(says(refused.error(), {"16.0 MiB", "8.0 MiB of its 32.0 MiB are free"}));
            const FakeCudaCounts after = own_counts();
            REQUIRE(std::memcmp(&before, &after, sizeof before) == 0);
            REQUIRE(devices->facts()[0].arena_bytes == 24 * kMiB);
            const auto never = gpu->allocate(34 * kMiB);
            REQUIRE(!never && never.error().code() == Code::kFailedPrecondition);
            REQUIRE(gpu->allocate(8 * kMiB).has_value());
          },
          {"FAKE_CUDA_MEMORY=33554432"}),
      Succeeds());
}

void copy_and_compare() {
  const auto devices = find_devices(kBudget);
  Rig rig(*devices);
  const View view(*rig.to);
  const std::uint64_t bytes = rig.source.arena().shape().slot_bytes;
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    REQUIRE(rig.copy(rig.copy_of(slot)).ok());
    REQUIRE(view.holds(slot, slot * bytes, 0, bytes));
  }
}

TEST_F(DeviceMemoryTest, SlotsThatCannotBeRegisteredAreCopiedToo) {
  EXPECT_THAT(on_gpus(
                  [] {
                    copy_and_compare();
                    REQUIRE(own_counts().registrations == 0);
                  },
                  {"FAKE_CUDA_ATTRIBUTES=99=0"}),
              Succeeds());
  EXPECT_THAT(
      on_gpus(copy_and_compare, {"FAKE_CUDA_FAIL=cuMemHostRegister:3:CUDA_ERROR_OUT_OF_MEMORY"}),
      Succeeds());
}

// The driver would read what these addresses held before.
TEST_F(DeviceMemoryTest, SlotThatTheDriverKnowsAlreadyIsNotCopiedFrom) {
  EXPECT_THAT(
      on_gpus([] {
        const auto devices = find_devices(kBudget);
        Rig rig(*devices);
        const std::span<std::byte> slot = rig.source.arena().slot(2);
        fake_cuda::use_device(0);
        REQUIRE(fake_cuda::cu().MemHostRegister(slot.data(), slot.size(), 0) == CUDA_SUCCESS);
        REQUIRE(says(rig.copy(rig.copy_of(2)), {"registering a slot", "ALREADY"}));
        REQUIRE(rig.copy(rig.copy_of(1)).ok());
        REQUIRE(fake_cuda::cu().MemHostUnregister(slot.data()) == CUDA_SUCCESS);
        REQUIRE(rig.copy(rig.copy_of(2)).ok());
      }),
      Succeeds());
}

TEST_F(DeviceMemoryTest, ProgramsThatAreStartedInheritNoMemory) {
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(kBudget);
                const Rig rig(*devices);
                REQUIRE((::fcntl(rig.to->client_fd(), F_GETFD) & FD_CLOEXEC) != 0);
              }),
              Succeeds());
}

TEST_F(DeviceMemoryTest, SlotsOnHugePagesAreRegistered) {
  ArenaBudget budget(64 * kMiB);
  if (!Arena::create({.kind = ArenaKind::kHugetlb, .slot_bytes = kMiB, .slot_count = 2}, 1, budget))
    GTEST_SKIP() << "this machine has no free huge pages";
  EXPECT_THAT(on_gpus([] {
                const auto devices = find_devices(kBudget);
                const DeviceMemoryPtr gpu = must(devices->open(uuid_of()));
                const auto to = must(gpu->allocate(2 * kMiB));
                Source source(kMiB, 2, ArenaKind::kHugetlb);
                auto pinned = gpu->pin(source.arena());
                std::promise<Status> over;
                gpu->copy({.pinned = pinned.get(),
                           .slot = 1,
                           .to = to.get(),
                           .parts = {{.from = source.at(1), .to = 0, .bytes = kMiB}},
                           .beside = {}},
                          [&](const Status& status) { over.set_value(status); });
                REQUIRE(over.get_future().get().ok());
                REQUIRE(View(*to).holds(1, 0, 0, kMiB));
                REQUIRE(own_counts().registrations == 1);
                std::promise<void> gone;
                gpu->post([&] {
                  pinned.reset();
                  gone.set_value();
                });
                gone.get_future().get();
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, LastUserTakesTheContextAlong) {
  EXPECT_THAT(on_gpus_drawn([] {
                const auto devices = find_devices(kBudget);
                REQUIRE(own_counts().contexts == 0);
                for (int i = 0; i < 5; ++i) {
                  Rig rig(*devices);
                  const DeviceMemoryPtr same = must(devices->open(uuid_of()));
                  REQUIRE(same == rig.gpu && own_counts().contexts == 1);
                  REQUIRE(devices->facts()[0].context && !devices->facts()[1].context);
                  for (std::uint32_t slot = 0; slot < 4; ++slot)
                    rig.gpu->copy(rig.copy_of(slot), [](const Status& s) { REQUIRE(s.ok()); });
                  REQUIRE(rig.copy(rig.copy_of(0)).ok());
                  // The next one comes while the thread of this one ends.
                }
                await_no_context();
                REQUIRE(holds_nothing(own_counts()));
                REQUIRE(!devices->facts()[0].context && devices->facts()[0].arena_bytes == 0);
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, LastUserMayBeItsOwnThread) {
  EXPECT_THAT(on_gpus_drawn([] {
                const auto devices = find_devices(kBudget);
                for (int i = 0; i < 5; ++i) {
                  auto rig = std::make_shared<Rig>(*devices);
                  std::promise<void> last;
                  DeviceMemory* const gpu = rig->gpu.get();
                  DeviceCopy copy = rig->copy_of(0);
                  gpu->copy(std::move(copy),
                            [&last, rig = std::move(rig)](const Status& s) mutable {
                              REQUIRE(s.ok());
                              rig->to.reset();
                              rig->pinned.reset();
                              rig->gpu.reset();
                              last.set_value();
                            });
                  last.get_future().get();
                }
                await_no_context();
                REQUIRE(holds_nothing(own_counts()));
              }),
              Succeeds());
}

TEST_P(DeviceMemoryTest, EndAwaitsAllThatWasGiven) {
  EXPECT_THAT(on_gpus_drawn([] {
                auto devices = find_devices(kBudget);
                Source source(100000, 4);
                std::atomic<int> ended{0};
                {
                  const DeviceMemoryPtr gpu = must(devices->open(uuid_of()));
                  const std::shared_ptr<DeviceArena> to = must(gpu->allocate(400000));
                  const std::shared_ptr<PinnedArena> pinned = gpu->pin(source.arena());
                  for (std::uint32_t slot = 0; slot < 4; ++slot)
                    gpu->copy({.pinned = pinned.get(),
                               .slot = slot,
                               .to = to.get(),
                               .parts = {{.from = source.at(slot), .to = 0, .bytes = 100000}},
                               .beside = {}},
                              [&ended, to, pinned](const Status& s) {
                                REQUIRE(s.ok());
                                ++ended;
                              });
                }
                devices.reset();
                REQUIRE(ended == 4);
                REQUIRE(holds_nothing(own_counts()));
              }),
              Succeeds());
}

}  // namespace
}  // namespace spdld::delivery::test
