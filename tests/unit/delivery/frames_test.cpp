// SPDX-License-Identifier: Apache-2.0
#include "delivery/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/delivery/raw_frames.h"

namespace spdld::delivery {
namespace {

using test::attach_bytes;
using test::bytes_of;
using test::hello_bytes;
using ::testing::HasSubstr;

std::string refusal(const Frame& frame) {
  const auto request = parse_request(frame);
  EXPECT_FALSE(request);
  if (request) return "";
  EXPECT_EQ(request.error().code(), Code::kInvalidArgument);
  return request.error().message();
}

TEST(ParseRequest, ReadsWhatAConsumerAsksFor) {
  wire::AttachFrame fixed = test::attach_fixed();
  fixed.shard = 2;
  fixed.num_shards = 8;
  fixed.credits = 6;
  fixed.batch_size = 32;
  fixed.has_seed = 1;
  fixed.seed = -5;
  fixed.start = wire::StartMode::kCursor;
  fixed.epoch = 3;
  fixed.position = 4096;
  fixed.step = 16;
  fixed.run = 1ull << 40;
  fixed.branch = 3;
  fixed.turn = 900;
  const auto request = parse_request(attach_bytes(fixed, {{wire::TextKey::kPipeline, "imagenet"},
                                                          {wire::TextKey::kJob, "run-7"},
                                                          {wire::TextKey::kVar, "size=224"},
                                                          {wire::TextKey::kVar, "root=/d=1"},
                                                          {wire::TextKey::kEnv, "HOME=/root"},
                                                          {wire::TextKey::kPipelineFile, "/a.yaml"},
                                                          {wire::TextKey::kOrderDigest, "abc"},
                                                          {wire::TextKey{99}, "of tomorrow"}}));
  ASSERT_TRUE(request) << request.error().message();
  const auto& attach = std::get<AttachRequest>(*request);
  EXPECT_EQ(attach.pipeline, "imagenet");
  EXPECT_EQ(attach.job, "run-7");
  EXPECT_EQ(attach.vars, (std::map<std::string, std::string>{{"root", "/d=1"}, {"size", "224"}}));
  EXPECT_EQ(attach.env, (std::map<std::string, std::string>{{"HOME", "/root"}}));
  EXPECT_EQ(attach.pipeline_file, "/a.yaml");
  EXPECT_EQ(attach.shard, 2u);
  EXPECT_EQ(attach.num_shards, 8u);
  EXPECT_EQ(attach.credits, 6u);
  EXPECT_EQ(attach.batch_size, 32u);
  EXPECT_EQ(attach.seed, -5);
  EXPECT_EQ(attach.cursor, (StreamPosition{.epoch = 3, .position = 4096, .step = 16}));
  EXPECT_EQ(attach.in_run, (RunTurn{.run = 1ull << 40, .branch = 3, .turn = 900}));
  EXPECT_EQ(attach.order_digest, "abc");
}

TEST(ParseRequest, TakesMinusOneForNotGiven) {
  const auto request =
      parse_request(attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}}));
  ASSERT_TRUE(request) << request.error().message();
  const auto& attach = std::get<AttachRequest>(*request);
  EXPECT_FALSE(attach.shard || attach.num_shards || attach.batch_size || attach.seed);
  EXPECT_FALSE(attach.credits);
  EXPECT_EQ(attach.in_run, RunTurn{});
}

TEST(ParseRequest, RefusesImpossibleValuesByName) {
  const auto with = [](auto change) {
    wire::AttachFrame fixed = test::attach_fixed();
    change(fixed);
    return refusal(attach_bytes(fixed, {{wire::TextKey::kPipeline, "p"}}));
  };
  EXPECT_THAT(with([](auto& f) { f.shard = -2; }), HasSubstr("shard is -2"));
  EXPECT_THAT(with([](auto& f) { f.num_shards = 0; }), HasSubstr("num_shards is 0"));
  EXPECT_THAT(with([](auto& f) { f.shard = f.num_shards = 4; }), HasSubstr("shard 4 of 4"));
  EXPECT_THAT(with([](auto& f) { f.batch_size = 0; }), HasSubstr("batch_size is 0"));
  EXPECT_THAT(with([](auto& f) { f.replicas = 0; }), HasSubstr("replicas is 0"));
  EXPECT_THAT(with([](auto& f) { f.replicas = 65; }), HasSubstr("replicas is 65"));
  EXPECT_THAT(with([](auto& f) { f.credits = 1; }), HasSubstr("prefetch is 1; it is 2 to 64"));
  EXPECT_THAT(with([](auto& f) { f.credits = 65; }), HasSubstr("prefetch is 65"));
  EXPECT_THAT(with([](auto& f) { f.start = wire::StartMode{7}; }), HasSubstr("start mode 7"));
  EXPECT_THAT(with([](auto& f) { f.turn = 3; }), HasSubstr("turn 3 of branch 0, and of no run"));
  EXPECT_THAT(with([](auto& f) { f.branch = 2; }), HasSubstr("turn 0 of branch 2, and of no run"));
  EXPECT_THAT(with([](auto& f) { f.text_count = 100'000; }), HasSubstr("100000 texts"));
  EXPECT_THAT(with([](auto& f) { f.text_count = 2; }), HasSubstr("ends inside its texts"));
}

TEST(ParseRequest, LeavesItToTheJobWhetherWhoComesBackHasAShardStill) {
  wire::AttachFrame fixed = test::attach_fixed();
  fixed.shard = fixed.num_shards = 1;
  fixed.reconnect = 1;
  const auto request = parse_request(attach_bytes(fixed, {{wire::TextKey::kPipeline, "p"}}));
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(std::get<AttachRequest>(*request).shard, 1u);
}

TEST(ParseRequest, RefusesTextsThatMakeNoSense) {
  const auto with = [](wire::TextKey key, std::string text) {
    return refusal(attach_bytes(test::attach_fixed(),
                                {{wire::TextKey::kPipeline, "p"}, {key, std::move(text)}}));
  };
  EXPECT_THAT(refusal(attach_bytes(test::attach_fixed(), {})), HasSubstr("names no pipeline"));
  EXPECT_THAT(with(wire::TextKey::kVar, "novalue"), HasSubstr("'novalue' is not NAME=VALUE"));
  EXPECT_THAT(with(wire::TextKey::kVar, "=x"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(with(wire::TextKey::kJob, std::string("a\0b", 3)), HasSubstr("NUL"));

  Frame lying = attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}});
  const std::uint32_t huge = 0xfffffff0;
  std::memcpy(lying.data() + sizeof(wire::AttachFrame) + 4, &huge, 4);
  EXPECT_THAT(refusal(lying), HasSubstr("ends inside a text"));
}

Frame apply_bytes(wire::ApplyFrame fixed,
                  const std::vector<std::pair<wire::TextKey, std::string>>& texts) {
  fixed.text_count += static_cast<std::uint32_t>(texts.size());
  Frame frame = bytes_of(fixed, wire::FrameType::kApply);
  for (const auto& [key, text] : texts) test::append_text(frame, key, text);
  test::set_length(frame);
  return frame;
}

wire::ApplyFrame apply_fixed() {
  wire::ApplyFrame fixed{};
  fixed.serial = 7;
  fixed.at = wire::ApplyAt::kStep;
  fixed.epoch = 3;
  fixed.step = 500;
  return fixed;
}

Frame uris_bytes(std::uint32_t count, const std::vector<std::int64_t>& items,
                 const std::string& digest) {
  wire::QueryFrame query{};
  query.kind = wire::QueryKind::kUris;
  query.serial = 7;
  Frame frame = bytes_of(query, wire::FrameType::kQuery);
  const wire::UrisPart part{.count = count,
                            .digest_bytes = static_cast<std::uint32_t>(digest.size())};
  const auto add = [&](const void* data, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    frame.insert(frame.end(), first, first + bytes);
  };
  add(&part, sizeof part);
  add(items.data(), items.size() * sizeof(std::int64_t));
  add(digest.data(), digest.size());
  test::set_length(frame);
  return frame;
}

TEST(ParseRequest, ReadsWhichItemsUrisAreAskedFor) {
  const auto request = parse_request(uris_bytes(3, {5, -1, 12}, "order-1"));
  ASSERT_TRUE(request) << request.error().message();
  const auto& query = std::get<QueryRequest>(*request);
  EXPECT_EQ(query.kind, wire::QueryKind::kUris);
  EXPECT_EQ(query.serial, 7u);
  EXPECT_EQ(query.items, (std::vector<std::int64_t>{5, -1, 12}));
  EXPECT_EQ(query.order_digest, "order-1");
}

TEST(ParseRequest, RefusesAQueryForUrisThatMakesNoSense) {
  EXPECT_THAT(refusal(uris_bytes(0, {}, "d")), HasSubstr("asks for 0 uris; 1 to 2048 are allowed"));
  EXPECT_THAT(refusal(uris_bytes(2049, std::vector<std::int64_t>(2049), "d")),
              HasSubstr("asks for 2049 uris"));
  EXPECT_THAT(refusal(uris_bytes(3, {1, 2}, "")), HasSubstr("ends inside its indices"));
  wire::QueryFrame query{};
  query.kind = wire::QueryKind{9};
  EXPECT_THAT(refusal(bytes_of(query, wire::FrameType::kQuery)), HasSubstr("kind 9"));
}

TEST(ParseRequest, ReadsHowAConsumersLoopFares) {
  wire::WaitedFrame frame{};
  frame.waited_ms = 1500;
  frame.waits = 3;
  frame.steps = 40;
  frame.between_ms = 2500;
  frame.map_ms = 700;
  std::iota(std::begin(frame.waits_by_length), std::end(frame.waits_by_length), 1);
  const auto request = parse_request(bytes_of(frame, wire::FrameType::kWaited));
  ASSERT_TRUE(request);
  EXPECT_EQ(std::get<WaitedNotice>(*request),
            (WaitedNotice{.waited = std::chrono::milliseconds(1500),
                          .waits = 3,
                          .core_waited = std::chrono::milliseconds(0),
                          .steps = 40,
                          .between = std::chrono::milliseconds(2500),
                          .mapped = std::chrono::milliseconds(700),
                          .waits_by_length = {1, 2, 3, 4, 5, 6}}));
  frame.core_waited_ms = wire::kNotKnown;
  EXPECT_EQ(
      std::get<WaitedNotice>(*parse_request(bytes_of(frame, wire::FrameType::kWaited))).core_waited,
      std::nullopt);
}

// Of ten thousand consumers that say the most that a frame can hold.
TEST(ParseRequest, TakesOfALoopNoTimeAndNoCountWhoseSumsWouldOverflow) {
  wire::WaitedFrame frame{};
  std::memset(&frame, 0xff, sizeof frame);
  frame.core_waited_ms = wire::kNotKnown - 1;
  const auto request = parse_request(bytes_of(frame, wire::FrameType::kWaited));
  ASSERT_TRUE(request);
  const WaitedNotice& notice = std::get<WaitedNotice>(*request);
  for (const std::chrono::milliseconds time :
       {notice.waited, notice.core_waited.value(), notice.between, notice.mapped}) {
    EXPECT_GT(time, std::chrono::hours(24 * 365));
    EXPECT_LT(time, std::chrono::nanoseconds::max());
  }
  std::uint64_t most = std::max(notice.waits, notice.steps);
  for (const std::uint64_t waits : notice.waits_by_length) {
    EXPECT_GT(waits, 1'000'000'000'000U);
    most = std::max(most, waits);
  }
  EXPECT_LT(most, ~std::uint64_t{0} / wire::kWaitLengths / 10'000);
}

TEST(ParseRequest, ReadsWhatAConsumerSaysOfItself) {
  const auto request =
      parse_request(attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"},
                                                        {wire::TextKey::kCommand, "python a.py"},
                                                        {wire::TextKey::kHost, "pod-7"},
                                                        {wire::TextKey::kPid, "17"}}));
  ASSERT_TRUE(request) << request.error().message();
  const auto& attach = std::get<AttachRequest>(*request);
  EXPECT_EQ(attach.command, "python a.py");
  EXPECT_EQ(attach.host, "pod-7");
  EXPECT_EQ(attach.host_pid, 17u);
  EXPECT_THAT(refusal(attach_bytes(test::attach_fixed(),
                                   {{wire::TextKey::kPipeline, "p"}, {wire::TextKey::kPid, "-1"}})),
              HasSubstr("the pid is '-1'"));
}

TEST(ParseRequest, ReadsWhatIsToBeApplied) {
  wire::ApplyFrame fixed = apply_fixed();
  fixed.allow_schema_change = 1;
  const auto request = parse_request(apply_bytes(fixed, {{wire::TextKey::kVar, "size=192"},
                                                         {wire::TextKey::kVar, "size=256"},
                                                         {wire::TextKey::kVar, "root="},
                                                         {wire::TextKey{99}, "of tomorrow"}}));
  ASSERT_TRUE(request) << request.error().message();
  const auto& wish = std::get<ApplyWish>(*request);
  EXPECT_EQ(wish.serial, 7u);
  EXPECT_EQ(wish.at, wire::ApplyAt::kStep);
  EXPECT_EQ(wish.epoch, 3u);
  EXPECT_EQ(wish.step, 500u);
  EXPECT_TRUE(wish.allow_schema_change);
  EXPECT_EQ(wish.vars, (std::map<std::string, std::string>{{"root", ""}, {"size", "256"}}));
}

TEST(ParseRequest, RefusesToApplyWhatMakesNoSense) {
  const auto with = [](auto change, std::string var) {
    wire::ApplyFrame fixed = apply_fixed();
    change(fixed);
    return refusal(apply_bytes(fixed, {{wire::TextKey::kVar, std::move(var)}}));
  };
  const auto as_it_is = [](wire::ApplyFrame&) {};
  EXPECT_THAT(with([](auto& f) { f.at = wire::ApplyAt{0}; }, "a=1"), HasSubstr("at 0"));
  EXPECT_THAT(with([](auto& f) { f.at = wire::ApplyAt{4}; }, "a=1"), HasSubstr("at 4"));
  EXPECT_THAT(with([](auto& f) { f.text_count = 1; }, "a=1"),
              HasSubstr("Apply frame: ends inside its texts"));
  EXPECT_THAT(with([](auto& f) { f.text_count = 1000; }, "a=1"), HasSubstr("1001 texts"));
  EXPECT_THAT(with(as_it_is, "a"), HasSubstr("Apply frame: the variable 'a' is not NAME=VALUE"));
  EXPECT_THAT(with(as_it_is, "=1"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(with(as_it_is, std::string("a=\0", 3)), HasSubstr("NUL"));
}

TEST(ParseRequest, ReadsWhereASeekGoesAndAtWhichTurn) {
  wire::SeekFrame frame{};
  frame.turn = 1ull << 33;
  frame.epoch = 2;
  frame.seek = 4;
  frame.skip = 9;
  const auto request = parse_request(bytes_of(frame, wire::FrameType::kSeek));
  ASSERT_TRUE(request);
  const auto& seek = std::get<SeekRequest>(*request);
  EXPECT_EQ(seek.turn, 1ull << 33);
  EXPECT_EQ(seek.epoch, 2u);
  EXPECT_EQ(seek.serial, 4u);
  EXPECT_EQ(seek.skip, 9u);
}

TEST(ParseRequest, ReadsHowManyBatchesACallerHasBeenHanded) {
  wire::HandedFrame frame{};
  frame.turn = 1ull << 33;
  const auto request = parse_request(bytes_of(frame, wire::FrameType::kHanded));
  ASSERT_TRUE(request);
  EXPECT_EQ(std::get<HandedNotice>(*request).turn, 1ull << 33);
}

TEST(Frames, TellTheTurnOfABatch) {
  const wire::BatchFrame frame =
      batch_frame({.next_position = 8, .turn = 1ull << 33, .seek = 4, .branch = 2, .tell = true});
  EXPECT_EQ(frame.next_position, 8u);
  EXPECT_EQ(frame.turn, 1ull << 33);
  EXPECT_EQ(frame.seek, 4u);
  EXPECT_EQ(frame.branch, 2u);
  EXPECT_EQ(frame.tell, 1u);
  EXPECT_EQ(batch_frame({}).tell, 0u);
}

TEST(Frames, TellTheRunAndTheTurnOfAnAttach) {
  const Frame bytes =
      attached_frame({.start = {.epoch = 3, .position = 40, .step = 10},
                      .in_run = {.run = 1ull << 40, .branch = 2, .turn = 1ull << 33}});
  wire::AttachedFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  EXPECT_EQ(frame.header.bytes, bytes.size());
  EXPECT_EQ(frame.step, 10u);
  EXPECT_EQ(frame.run, 1ull << 40);
  EXPECT_EQ(frame.branch, 2u);
  EXPECT_EQ(frame.turn, 1ull << 33);
}

TEST(Frames, TellOfAnotherVersion) {
  const Frame frame = version_frame({.items = 100,
                                     .steps_per_epoch = 10,
                                     .batch_size = 5,
                                     .pipeline_version = 4,
                                     .credits = 6,
                                     .order_digest = "abcde"});
  wire::VersionFrame fixed;
  std::memcpy(&fixed, frame.data(), sizeof fixed);
  EXPECT_EQ(fixed.header.type, wire::FrameType::kVersion);
  EXPECT_EQ(fixed.header.bytes, frame.size());
  EXPECT_EQ(fixed.items, 100u);
  EXPECT_EQ(fixed.steps_per_epoch, 10u);
  EXPECT_EQ(fixed.batch_size, 5u);
  EXPECT_EQ(fixed.pipeline_version, 4u);
  EXPECT_EQ(fixed.credits, 6u);
  ASSERT_EQ(fixed.text_count, 1u);
  wire::TextHeader text;
  std::memcpy(&text, frame.data() + sizeof fixed, sizeof text);
  EXPECT_EQ(text.key, wire::TextKey::kOrderDigest);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()) + sizeof fixed + sizeof text,
                        text.bytes),
            "abcde");
}

TEST(ParseRequest, RefusesEveryTruncation) {
  wire::BlobFrame blob{};
  blob.kind = wire::BlobKind::kPipelineYaml;
  blob.total_bytes = 4;
  Frame blob_frame = bytes_of(blob, wire::FrameType::kBlob);
  blob_frame.resize(blob_frame.size() + 4);
  for (Frame whole :
       {hello_bytes(1, 1), attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "four"}}),
        bytes_of(wire::ReleaseFrame{}, wire::FrameType::kRelease),
        bytes_of(wire::SeekFrame{}, wire::FrameType::kSeek), uris_bytes(2, {1, 2}, "d"),
        bytes_of(wire::WaitedFrame{}, wire::FrameType::kWaited),
        bytes_of(wire::HandedFrame{}, wire::FrameType::kHanded),
        apply_bytes(apply_fixed(), {{wire::TextKey::kVar, "a=12"}}), blob_frame}) {
    test::set_length(whole);
    ASSERT_TRUE(parse_request(whole));
    for (std::size_t length = 0; length < whole.size(); ++length) {
      Frame cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_FALSE(parse_request(cut)) << "the length in its header is another";
      if (length < sizeof(wire::FrameHeader)) continue;
      test::set_length(cut);
      const bool only_data_missing =
          length > sizeof(wire::BlobFrame) && whole.size() == blob_frame.size();
      EXPECT_EQ(parse_request(cut).has_value(), only_data_missing) << length;
    }
  }
}

TEST(ParseRequest, SurvivesAnyBytes) {
  std::mt19937 random(42);
  std::uniform_int_distribution<int> byte(0, 255);
  const std::uint32_t types[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 128, 0, 0xffffffff};
  for (int i = 0; i < 20'000; ++i) {
    Frame frame(random() % 400);
    for (std::byte& b : frame) b = static_cast<std::byte>(byte(random));
    if (frame.size() >= sizeof(wire::FrameHeader)) {
      std::memcpy(frame.data(), &types[random() % std::size(types)], 4);
      test::set_length(frame);
    }
    (void)parse_request(frame);  // the sanitizers look on
  }
}

TEST(ParseRequest, SurvivesAFrameWithAnyBitFlipped) {
  const Frame whole = attach_bytes(
      test::attach_fixed(), {{wire::TextKey::kPipeline, "imagenet"}, {wire::TextKey::kVar, "a=b"}});
  for (std::size_t bit = 64; bit < whole.size() * 8; ++bit) {
    Frame flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    (void)parse_request(flipped);
  }
  const Frame apply = apply_bytes(apply_fixed(), {{wire::TextKey::kVar, "size=192"}});
  for (std::size_t bit = 64; bit < apply.size() * 8; ++bit) {
    Frame flipped = apply;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    (void)parse_request(flipped);
  }
}

TEST(ParseRequest, RefusesBlobsThatReachBeyondTheirText) {
  const auto with = [](std::uint32_t offset, std::uint32_t total, std::size_t bytes) {
    wire::BlobFrame blob{};
    blob.kind = wire::BlobKind::kPipelineYaml;
    blob.offset = offset;
    blob.total_bytes = total;
    Frame frame = bytes_of(blob, wire::FrameType::kBlob);
    frame.resize(frame.size() + bytes);
    test::set_length(frame);
    return refusal(frame);
  };
  EXPECT_THAT(with(0, 0xffffffff, 8), HasSubstr("1048576 are allowed"));
  EXPECT_THAT(with(0, 7, 8), HasSubstr("not inside"));
  EXPECT_THAT(with(0xfffffffe, 8, 8), HasSubstr("not inside"));
  EXPECT_THAT(with(8, 8, 0), HasSubstr("not inside"));
}

TEST(Frames, CutLongTextsAtACharacter) {
  std::string text(20'000, 'a');
  text.replace(8190, 6, "\u20ac\u20ac");  // the 8192nd byte is inside the first one
  const Frame frame = error_frame(Status(Code::kInternal, text), true);
  wire::ErrorFrame fixed;
  std::memcpy(&fixed, frame.data(), sizeof fixed);
  EXPECT_EQ(fixed.text_bytes, 8190u);
  EXPECT_EQ(frame.size(), sizeof fixed + 8190);
  EXPECT_LE(frame.size(), wire::kMaxFrameBytes);
}

}  // namespace
}  // namespace spdld::delivery
