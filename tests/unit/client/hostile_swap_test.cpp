// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/hostile_daemon.h"
#include "tests/unit/client/mapped_arenas.h"
#include "tests/unit/client/thrown.h"

// What an old or a broken daemon may say while a job changes.
namespace spdld {
namespace {

using delivery::Arena;
using std::chrono::milliseconds;
using test::Bytes;
using test::bytes_of;
using test::Conversation;
using test::dense;
using test::HostileDaemon;
using test::thrown;
using ::testing::AllOf;
using ::testing::HasSubstr;

class HostileDaemonSwapTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> arena(std::uint32_t id = 5, std::uint64_t slot_bytes = 300'000) {
    return std::move(*Arena::create(
        {.kind = delivery::ArenaKind::kMemfd, .slot_bytes = slot_bytes, .slot_count = 2}, id,
        budget_));
  }
  // What next() says of what follows an arena, its schema and an attach of version 1.
  std::string next_says(const std::function<void(Conversation&, Arena&)>& script) {
    const auto memory = arena();
    HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      consumer.open(*memory);
      consumer.schema({dense(16)});
      script(consumer, *memory);
      consumer.receive();
    });
    return daemon.next_says();
  }
  // What apply() throws when this is the answer, with the serial that is asked for.
  template <typename E>
  E apply_says(const std::function<Bytes(std::uint32_t)>& answer) {
    HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      wire::ApplyFrame apply{};
      if (consumer.receive(apply, wire::FrameType::kApply)) consumer.send(answer(apply.serial));
      consumer.receive();
    });
    Loader loader = daemon.loader(milliseconds(400));
    return thrown<E>([&] { loader.apply({{"a", "1"}}); });
  }

  delivery::ArenaBudget budget_{1 << 24, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
};

TEST_F(HostileDaemonSwapTest, RefusesAVersionWithoutItsSchema) {
  EXPECT_THAT(next_says([](Conversation& consumer, Arena& memory) {
                consumer.version(2);
                consumer.batch(memory);
              }),
              HasSubstr("is of version 1 of the pipeline, and the daemon announced version 2"));
}

TEST_F(HostileDaemonSwapTest, RefusesTheSchemaOfAVersionThatWasNeverAnnounced) {
  EXPECT_THAT(next_says([](Conversation& consumer, Arena& memory) {
                consumer.schema({dense(16)}, 2, 7);
                consumer.batch(memory, [](auto& frame) { frame.schema_id = 2; });
              }),
              HasSubstr("is of version 7 of the pipeline, and the daemon announced version 1"));
}

TEST_F(HostileDaemonSwapTest, RefusesAVersionThatEndsEarly) {
  EXPECT_THAT(next_says([](Conversation& consumer, Arena&) {
                wire::VersionFrame frame{};
                frame.text_count = 1;
                consumer.send(bytes_of(frame, wire::FrameType::kVersion));
              }),
              HasSubstr("not to its end"));
  EXPECT_THAT(next_says([](Conversation& consumer, Arena&) {
                consumer.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kVersion));
              }),
              HasSubstr("not to its end"));
}

TEST_F(HostileDaemonSwapTest, RefusesABatchOfARetiredArena) {
  EXPECT_THAT(next_says([](Conversation& consumer, Arena& memory) {
                consumer.retire(memory.id());
                consumer.batch(memory);
              }),
              HasSubstr("memory that the daemon did not announce"));
  EXPECT_EQ(test::mapped_arenas(), 0);
}

TEST_F(HostileDaemonSwapTest, IgnoresTheEndOfAnArenaThatWasNeverOpened) {
  const auto memory = arena();
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    consumer.open(*memory);
    consumer.retire(99);
    consumer.retire(99);
    consumer.schema({dense(16)});
    consumer.batch(*memory);
    consumer.receive();
  });
  Loader loader = daemon.loader();
  EXPECT_TRUE(loader.next()) << "there is nothing to forget";
}

TEST_F(HostileDaemonSwapTest, RefusesArenasWithoutEnd) {
  std::vector<std::unique_ptr<Arena>> many;
  for (std::uint32_t id = 1; id <= 65; ++id) many.push_back(arena(id, 4096));
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    for (const auto& memory : many) consumer.open(*memory);
    consumer.receive();
  });
  Loader loader = daemon.loader();
  EXPECT_THAT(thrown<ConnectionError>([&] { loader.next(); }).what(),
              HasSubstr("more than 64 arenas"));
  EXPECT_EQ(test::mapped_arenas(), 0) << "what was mapped is let go";
}

TEST_F(HostileDaemonSwapTest, GivesAfterANonsenseFrameWhatTheNextConnectionHas) {
  const auto memory = arena();
  std::atomic<int> connections{0};
  HostileDaemon daemon([&](Conversation& consumer) {
    const bool first = connections.fetch_add(1) == 0;
    consumer.attach();
    consumer.open(*memory);
    consumer.schema({dense(16)});
    if (first) consumer.batch(*memory, [](auto& frame) { frame.arena_id = 77; });
    consumer.batch(*memory);
    consumer.receive();
  });
  Loader loader = daemon.loader();
  thrown<ConnectionError>([&] { loader.next(); });
  EXPECT_EQ(loader.next()->step(), 0u) << "no step is passed over";
  EXPECT_EQ(connections, 2);
}

TEST_F(HostileDaemonSwapTest, KeepsItsOldFactsUntilABatchOfTheNewVersionCame) {
  const auto memory = arena();
  HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    consumer.open(*memory);
    consumer.version(2);
    consumer.schema({dense(16)}, 2, 2);
    consumer.send(bytes_of(wire::EpochEndFrame{}, wire::FrameType::kEpochEnd));
    consumer.batch(*memory, [](auto& frame) { frame.schema_id = 2; });
    consumer.receive();
  });
  Loader loader = daemon.loader();
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.batch_size(), 2u);
  EXPECT_EQ(loader.state().order_digest, "");
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(loader.batch_size(), 20u);
  EXPECT_EQ(loader.items(), 80u);
  EXPECT_EQ(loader.steps_per_epoch(), 90u);
  EXPECT_EQ(loader.pipeline_version(), 2u);
  EXPECT_EQ(loader.state().order_digest, "new");
}

TEST_F(HostileDaemonSwapTest, RefusesAnAnswerThatEndsEarly) {
  for (const bool refused : {false, true}) {
    const Bytes whole = refused ? delivery::refused_frame(1, Status(Code::kAborted, ""))
                                : delivery::applied_frame(1, {.version = 4});
    for (std::size_t length = sizeof(wire::FrameHeader); length < whole.size(); length += 4) {
      EXPECT_THAT(apply_says<ConnectionError>([&](std::uint32_t) {
                    Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
                    test::set_length(part);
                    return part;
                  }).what(),
                  HasSubstr("the daemon sent an answer that ends early"))
          << refused << " " << length;
    }
  }
}

TEST_F(HostileDaemonSwapTest, TakesACodeThatThereIsNotForAnUnknownError) {
  const auto refused = [&](std::uint32_t code) {
    return apply_says<PipelineError>([&](std::uint32_t serial) {
      return delivery::refused_frame(serial, Status(static_cast<Code>(code), "no"));
    });
  };
  for (const std::uint32_t code : {0U, 17U, 4294967295U}) {
    const auto error = refused(code);
    EXPECT_STREQ(error.what(), "no");
    EXPECT_EQ(error.code(), 2) << code;
  }
  EXPECT_EQ(refused(3).code(), 3);
}

TEST_F(HostileDaemonSwapTest, PassesOnWhatARefusalSaysByteByByte) {
  const std::string text = "a \"b\"\\/\n\x01 \xc3\xa4 {\"code\": 9} \xff";
  EXPECT_EQ(apply_says<PipelineError>([&](std::uint32_t serial) {
              return delivery::refused_frame(serial, Status(Code::kAborted, text));
            }).what(),
            text);
}

TEST_F(HostileDaemonSwapTest, ReadsNoFurtherThanARefusalGoes) {
  EXPECT_STREQ(apply_says<PipelineError>([&](std::uint32_t serial) {
                 Bytes bytes = delivery::refused_frame(serial, Status(Code::kAborted, "no"));
                 wire::RefusedFrame frame;
                 std::memcpy(&frame, bytes.data(), sizeof frame);
                 frame.text_bytes = 4294967295U;
                 std::memcpy(bytes.data(), &frame, sizeof frame);
                 return bytes;
               }).what(),
               "no");
}

TEST_F(HostileDaemonSwapTest, HearsNoAnswerToAnApplyThatNobodyMade) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.attach();
    wire::ApplyFrame apply{};
    while (consumer.receive(apply, wire::FrameType::kApply)) {
      consumer.applied(apply.serial + 1, {.version = 4, .epoch = 1});
    }
  });
  Loader loader = daemon.loader(milliseconds(100));
  EXPECT_THAT(thrown<TimeoutError>([&] {
                loader.apply({{"a", "1"}});
              }).what(),
              AllOf(HasSubstr("no sign of life from the daemon for 100 ms"),
                    HasSubstr("'p' with other variables to be ready")));
}

TEST_F(HostileDaemonSwapTest, EndsWithADaemonThatSendsWithoutEndInsteadOfAnAnswer) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.attach();
    wire::ApplyFrame apply{};
    if (!consumer.receive(apply, wire::FrameType::kApply)) return;
    for (int i = 0; i < 5000; ++i) {
      consumer.send(bytes_of(wire::ResetFrame{}, wire::FrameType::kReset));
    }
  });
  Loader loader = daemon.loader(milliseconds(5000));
  EXPECT_THAT(thrown<ConnectionError>([&] {
                loader.apply({{"a", "1"}});
              }).what(),
              HasSubstr("does not answer, and goes on sending"));
}

TEST_F(HostileDaemonSwapTest, SaysAnApplyAgainWhenTheDaemonDiedInTheMiddle) {
  std::atomic<int> connections{0};
  HostileDaemon daemon([&](Conversation& consumer) {
    const bool first = connections.fetch_add(1) == 0;
    consumer.attach();
    wire::ApplyFrame apply{};
    if (!consumer.receive(apply, wire::FrameType::kApply) || first) return;
    consumer.applied(apply.serial, {.version = 9, .epoch = 1, .tuned = true});
    consumer.receive();
  });
  Loader loader = daemon.loader();
  EXPECT_EQ(loader.apply({{"a", "1"}}),
            (Applied{.version = 9, .epoch = 1, .step = 0, .tuned = true}));
  EXPECT_EQ(connections, 2);
}

TEST_F(HostileDaemonSwapTest, LeavesAnApplyThatTheCallerInterrupts) {
  HostileDaemon daemon([](Conversation& consumer) {
    consumer.attach();
    while (consumer.receive()) {
    }
  });
  struct Interrupted {};
  LoaderOptions options = daemon.options();
  bool interrupts = false;
  options.on_wait = [&] {
    if (interrupts) throw Interrupted();
  };
  Loader loader = Loader::open(options);
  EXPECT_EQ(loader.items(), 8u);
  interrupts = true;
  EXPECT_THROW(loader.apply({{"a", "1"}}), Interrupted);
  EXPECT_THROW(loader.skip_steps(1), Interrupted);
  EXPECT_EQ(loader.state().step, 0u) << "it may yet come to it";
}

TEST_F(HostileDaemonSwapTest, RefusesADaemonOfAnotherBuildByName) {
  struct Told {
    std::uint32_t protocol, min, max;
    const char* shown;
  };
  // As the builds before protocols were counted anew told it; as later ones will.
  for (const Told& told :
       {Told{1, 1, 5, "data protocols 1 to 5"}, Told{1, 1, 1, "data protocol 1"},
        Told{6, 6, 6, "data protocol 6"}, Told{5, 5, 6, "data protocols 5 to 6"}}) {
    HostileDaemon daemon([&](Conversation& consumer) {
      const std::uint8_t generation[16] = {};
      consumer.receive();
      Bytes bytes = delivery::welcome_frame(generation, "spdld 9.9");
      wire::WelcomeFrame frame;
      std::memcpy(&frame, bytes.data(), sizeof frame);
      frame.protocol = told.protocol;
      frame.protocol_min = told.min;
      frame.protocol_max = told.max;
      std::memcpy(bytes.data(), &frame, sizeof frame);
      consumer.send(bytes);
      consumer.receive();
    });
    LoaderOptions options = daemon.options();
    options.client_name = "rank 9.9";
    Loader loader = Loader::open(options);
    const auto refused = thrown<ConnectionError>([&] { loader.next(); });
    EXPECT_EQ(refused.code(), 9);
    EXPECT_STREQ(refused.what(), (std::string("the daemon spdld 9.9 speaks ") + told.shown +
                                  ", and rank 9.9 speaks data protocol 5: install the same build "
                                  "of spdld for both")
                                     .c_str());
  }
}

}  // namespace
}  // namespace spdld
