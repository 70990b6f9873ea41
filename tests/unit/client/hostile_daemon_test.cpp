// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/hostile_daemon.h"

// What a daemon of another version, or a broken one, may send: the client says what is wrong, and
// never crashes or reads beyond what it was given.
namespace spdld {
namespace {

using delivery::Arena;
using test::Bytes;
using test::bytes_of;
using test::Conversation;
using test::dense;
using test::HostileDaemon;
using ::testing::HasSubstr;

class HostileDaemonLoaderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> arena(delivery::ArenaKind kind = delivery::ArenaKind::kMemfd) {
    return std::move(
        *Arena::create({.kind = kind, .slot_bytes = 300'000, .slot_count = 2}, 5, budget_));
  }
  // What next() says about a batch of this layout and frame.
  std::string batch_says(const std::vector<wire::FieldLayout>& fields,
                         const std::function<void(wire::BatchFrame&)>& change = {}) {
    const auto memory = arena();
    HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      consumer.open(*memory);
      consumer.schema(fields);
      consumer.batch(*memory, change);
      consumer.receive();
    });
    return daemon.next_says();
  }
  std::string arena_says(delivery::ArenaKind kind,
                         const std::function<void(wire::ArenaOpenFrame&)>& change) {
    const auto memory = arena(kind);
    HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      consumer.open(*memory, change);
      consumer.receive();
    });
    return daemon.next_says();
  }

  delivery::ArenaBudget budget_{1 << 24, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
};

TEST_F(HostileDaemonLoaderTest, TakesADaemonThatHangsUpAtOnceForNone) {
  HostileDaemon daemon([](Conversation&) {});
  EXPECT_THAT(daemon.next_says(), HasSubstr("no spdld daemon answers"));
}

TEST_F(HostileDaemonLoaderTest, KnowsASocketThatIsNoDaemons) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.receive();
    consumer.send(bytes_of(wire::ResetFrame{}, wire::FrameType::kReset));
    consumer.receive();
  });
  EXPECT_THAT(daemon.next_says(), HasSubstr("is no spdld daemon's socket"));
}

TEST_F(HostileDaemonLoaderTest, PassesOnThatItSpeaksAnotherVersion) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.receive();
    consumer.send(delivery::error_frame(Status(Code::kFailedPrecondition, "upgrade the client"),
                                        /*fatal=*/true));
  });
  Loader loader = daemon.loader();
  EXPECT_THROW(loader.next(), ConnectionError);
}

TEST_F(HostileDaemonLoaderTest, GivesUpOnADaemonThatSaysNothing) {
  HostileDaemon daemon([](Conversation& consumer) {
    while (consumer.receive()) {
    }
  });
  EXPECT_THAT(daemon.next_says(std::chrono::milliseconds(20)), HasSubstr("no sign of life"));
}

TEST_F(HostileDaemonLoaderTest, RefusesMemoryThatIsNotSealed) {
  const auto memory = arena();
  const UniqueFd open_memory(::memfd_create("open", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(open_memory.get(), static_cast<off_t>(memory->total_bytes())), 0);
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    wire::ArenaOpenFrame frame{};
    frame.kind = static_cast<std::uint32_t>(wire::ArenaKind::kMemfd);
    frame.total_bytes = memory->total_bytes();
    consumer.send(bytes_of(frame, wire::FrameType::kArenaOpen), open_memory.get());
    consumer.receive();
  });
  EXPECT_THAT(daemon.next_says(), HasSubstr("it is not sealed"));
}

TEST_F(HostileDaemonLoaderTest, RefusesPosixMemoryThatOthersCanOpen) {
  const auto says = [&](const std::string& path) {
    const UniqueFd named(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const UniqueFd readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::ftruncate(named.get(), 1 << 20), 0);
    HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      wire::ArenaOpenFrame frame{};
      frame.kind = static_cast<std::uint32_t>(wire::ArenaKind::kPosix);
      frame.total_bytes = 1 << 20;
      consumer.send(bytes_of(frame, wire::FrameType::kArenaOpen), readable.get());
      consumer.receive();
    });
    const std::string said = daemon.next_says();
    ::unlink(path.c_str());
    return said;
  };
  EXPECT_THAT(says("/dev/shm/spdld-test-" + std::to_string(::getpid())),
              HasSubstr("others can open it by its name"));
  EXPECT_THAT(says("/proc/self/cwd/spdld-test-" + std::to_string(::getpid())),
              ::testing::AnyOf(HasSubstr("it is not on /dev/shm"), HasSubstr("by its name")));
}

TEST_F(HostileDaemonLoaderTest, RefusesADaemonOfAUserWhoOwnsNothingHere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kStranger = 12345;
  HostileDaemon daemon([](Conversation& consumer) { consumer.attach(); });
  daemon.listen_as(kStranger);
  EXPECT_THAT(daemon.next_says(),
              ::testing::AllOf(HasSubstr("user 12345 listens at " + daemon.directory()),
                               HasSubstr("nor the owner of " + daemon.directory())));
  ASSERT_EQ(::chown(daemon.directory().c_str(), kStranger, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(daemon.next_says(), ::testing::Not(HasSubstr("listens at")));
}

TEST_F(HostileDaemonLoaderTest, ReadsTextsByTheOffsetsThatItChecked) {
  const auto memory = arena();
  wire::FieldLayout field = dense(0);
  field.kind = wire::FieldKind::kBytes;
  field.ndim = 0;
  field.offset = 2048;
  field.offsets_offset = 1024;
  const auto write = [&](std::int64_t second, std::int64_t third) {
    const std::int64_t offsets[] = {0, second, third};
    std::memcpy(memory->slot(0).data() + 1024, offsets, sizeof offsets);
  };
  write(100'000, 200'000);  // too large to be copied when the batch is handed out
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    consumer.open(*memory);
    consumer.schema({field});
    consumer.batch(*memory);
    consumer.receive();
  });
  Loader loader = daemon.loader();
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  write(std::int64_t{1} << 40, std::int64_t{1} << 41);
  EXPECT_EQ(batch->text("image", 1).size(), 100'000U);
  EXPECT_EQ(batch->text("image", 1).data() - batch->text("image", 0).data(), 100'000);
}

TEST_F(HostileDaemonLoaderTest, RefusesAnotherArenaThanWasAnnounced) {
  using delivery::ArenaKind;
  EXPECT_THAT(arena_says(ArenaKind::kMemfd, [](auto& f) { f.total_bytes += 4096; }),
              HasSubstr("bytes instead of"));
  EXPECT_THAT(arena_says(ArenaKind::kMemfd, [](auto& f) { f.total_bytes = 8; }),
              HasSubstr("smaller than its header"));
  EXPECT_THAT(arena_says(ArenaKind::kMemfd, [](auto& f) { f.generation[3] ^= 1; }),
              HasSubstr("another arena"));
  EXPECT_THAT(arena_says(ArenaKind::kMemfd, [](auto& f) { f.kind = 77; }),
              HasSubstr("its kind is 77"));
  EXPECT_THAT(arena_says(ArenaKind::kMemfd, [](auto& f) { f.kind = 2; }),
              HasSubstr("open for writing"));
  EXPECT_THAT(arena_says(ArenaKind::kPosix, [](auto& f) { f.kind = 1; }), HasSubstr("not sealed"));
}

TEST_F(HostileDaemonLoaderTest, RefusesAnArenaWithoutItsMemory) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.attach();
    wire::ArenaOpenFrame frame{};
    frame.kind = 1;
    frame.total_bytes = 1 << 20;
    consumer.send(bytes_of(frame, wire::FrameType::kArenaOpen));
  });
  EXPECT_THAT(daemon.next_says(), HasSubstr("without its memory"));
}

TEST_F(HostileDaemonLoaderTest, SaysThatItsProcessHasNoDescriptorLeftForMemory) {
  const auto memory = arena();
  std::atomic<bool> attached{false};
  std::atomic<bool> full{false};
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    attached.store(true);
    while (!full.load()) std::this_thread::yield();
    consumer.open(*memory);
    consumer.receive();
  });
  Loader loader = daemon.loader();
  EXPECT_EQ(loader.items(), 8u);
  rlimit saved{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  rlimit none = saved;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  full.store(true);
  std::string said;
  try {
    loader.next();
  } catch (const ConnectionError& error) {
    said = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);
  EXPECT_THAT(said, HasSubstr("no file descriptors left (ulimit -n)"));
}

TEST_F(HostileDaemonLoaderTest, RefusesBatchesBeyondTheirMemory) {
  const std::vector<wire::FieldLayout> good{dense(100'000)};
  const char* const unannounced = "memory that the daemon did not announce";
  EXPECT_THAT(batch_says(good, [](auto& f) { f.arena_id = 9; }), HasSubstr(unannounced));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.schema_id = 9; }),
              HasSubstr("fields that the daemon did not announce"));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.slot_offset = 1ull << 40; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.slot_bytes = ~0ull; }), HasSubstr(unannounced));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.slot_offset += 1; }), HasSubstr(unannounced));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.rows = 4; }), HasSubstr("reaches beyond its slot"));
  EXPECT_THAT(batch_says(good, [](auto& f) { f.rows = ~0u; }), HasSubstr("reaches beyond"));
}

TEST_F(HostileDaemonLoaderTest, RefusesSchemasThatMakeNoSense) {
  const auto with = [&](const std::function<void(wire::FieldLayout&)>& change) {
    wire::FieldLayout field = dense(16);
    change(field);
    return batch_says({field});
  };
  EXPECT_THAT(with([](auto& f) { std::memset(f.name, 'x', sizeof f.name); }),
              HasSubstr("its name has no end"));
  EXPECT_THAT(with([](auto& f) { f.name[0] = '\0'; }), HasSubstr("it has no name"));
  EXPECT_THAT(with([](auto& f) { f.dtype = wire::DType{99}; }), HasSubstr("dtype"));
  EXPECT_THAT(with([](auto& f) { f.kind = wire::FieldKind{99}; }), HasSubstr("kind"));
  EXPECT_THAT(with([](auto& f) { f.ndim = 9; }), HasSubstr("too many dimensions"));
  EXPECT_THAT(with([](auto& f) { f.shape[0] = -1; }), HasSubstr("shape is negative"));
  EXPECT_THAT(with([](auto& f) { f.offset = 3; }), HasSubstr("not aligned"));
  EXPECT_THAT(with([](auto& f) { f.offset = ~0ull - 7; }), HasSubstr("reaches beyond its slot"));
  EXPECT_THAT(with([](auto& f) {
                f.ndim = 2;
                f.shape[0] = f.shape[1] = std::int64_t{1} << 40;
              }),
              HasSubstr("too large"));
  const auto as_bytes = [](wire::FieldLayout& f) {
    f.kind = wire::FieldKind::kBytes;
    f.ndim = 0;
  };
  EXPECT_THAT(with([&](auto& f) {
                as_bytes(f);
                f.offsets_offset = 1ull << 40;
              }),
              HasSubstr("offsets reach beyond its slot"));
}

TEST_F(HostileDaemonLoaderTest, RefusesOffsetsThatMakeNoSense) {
  const auto memory = arena();
  wire::FieldLayout field = dense(0);
  field.kind = wire::FieldKind::kBytes;
  field.ndim = 0;
  field.offsets_offset = 1024;
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    consumer.open(*memory);
    consumer.schema({field});
    consumer.batch(*memory);
    consumer.receive();
  });
  const auto with = [&](std::int64_t first, std::int64_t second, std::int64_t third) {
    const std::int64_t offsets[] = {first, second, third};
    std::memcpy(memory->slot(0).data() + 1024, offsets, sizeof offsets);
    return daemon.next_says();
  };
  EXPECT_THAT(with(1, 2, 3), HasSubstr("do not begin at 0"));
  EXPECT_THAT(with(0, 5, 3), HasSubstr("go backwards"));
  EXPECT_THAT(with(0, -5, 3), HasSubstr("go backwards"));
  EXPECT_THAT(with(0, 5, 1 << 30), HasSubstr("reaches beyond its slot"));
}

TEST_F(HostileDaemonLoaderTest, RefusesAnyBytesAsAnErrorOfItsOwn) {
  const auto memory = arena();
  std::mt19937 random(3);  // the daemon's thread alone
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    if (random() % 2 == 0) consumer.open(*memory);
    if (random() % 2 == 0) consumer.schema({dense(16)});
    for (int i = 0; i < 20; ++i) {
      Bytes frame(8 + random() % 300);
      for (std::byte& b : frame) b = static_cast<std::byte>(random());
      const std::uint32_t type = random() % 3 == 0 ? random() : 64 + random() % 12;
      std::memcpy(frame.data(), &type, 4);
      if (random() % 8 != 0) test::set_length(frame);
      consumer.send(frame);
    }
  });
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    Loader loader = daemon.loader(std::chrono::milliseconds(1));
    try {
      for (int n = 0; n < 30; ++n) loader.next();
    } catch (const Error&) {
      ++refused;  // whatever it says, it says it as one of ours
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace spdld
