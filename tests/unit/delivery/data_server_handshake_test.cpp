// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/delivery/data_server_fixture.h"
#include "tests/unit/delivery/raw_client.h"

namespace spdld::delivery {
namespace {

using test::bytes_of;
using test::RawClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(DataServerTest, RefusesAConsumerOfAnotherBuildByName) {
  start();
  const auto answer_to = [&](std::uint32_t min, std::uint32_t max) {
    RawClient client(path_);
    client.send(test::hello_bytes(min, max));
    return client.last_words();
  };
  const std::string daemon =
      ", and the daemon spdld 0.1.0 speaks data protocol 5: install the same build of spdld for "
      "both";
  EXPECT_EQ(answer_to(1, 1), "raw 1.0 speaks data protocol 1" + daemon);
  EXPECT_EQ(answer_to(6, 6), "raw 1.0 speaks data protocol 6" + daemon);
  EXPECT_EQ(answer_to(0, 0), "raw 1.0 speaks data protocol 0" + daemon);
  // As the builds before protocols were counted anew told it; as later ones will.
  EXPECT_EQ(answer_to(1, 5), "raw 1.0 speaks data protocols 1 to 5" + daemon);
  EXPECT_EQ(answer_to(5, 6), "raw 1.0 speaks data protocols 5 to 6" + daemon);
  EXPECT_EQ(server_->stats().protocol_errors, 0u);
}

TEST_F(DataServerTest, PutsTheYamlOfAnAttachTogether) {
  start();
  RawClient client(path_);
  client.greet();
  const std::string yaml = "pipeline: p\n";
  for (std::size_t offset = 0; offset < yaml.size(); offset += 4) {
    wire::BlobFrame blob{};
    blob.kind = wire::BlobKind::kPipelineYaml;
    blob.offset = static_cast<std::uint32_t>(offset);
    blob.total_bytes = static_cast<std::uint32_t>(yaml.size());
    test::Bytes frame = bytes_of(blob, wire::FrameType::kBlob);
    for (std::size_t i = offset; i < offset + 4; ++i) frame.push_back(std::byte(yaml[i]));
    test::set_length(frame);
    client.send(frame);
  }
  wire::AttachFrame attach = test::attach_fixed();
  attach.blob_bytes = static_cast<std::uint32_t>(yaml.size());
  client.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_EQ(service_.request().pipeline_yaml, yaml);
}

TEST_F(DataServerTest, RefusesAYamlThatDidNotComeWhole) {
  start();
  RawClient client(path_);
  client.greet();
  wire::AttachFrame attach = test::attach_fixed();
  attach.blob_bytes = 100;
  client.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_THAT(client.last_words(), HasSubstr("100 bytes of YAML were announced, and 0 came"));

  RawClient gap(path_);
  gap.greet();
  wire::BlobFrame blob{};
  blob.kind = wire::BlobKind::kPipelineYaml;
  blob.offset = 4;
  blob.total_bytes = 8;
  test::Bytes frame = bytes_of(blob, wire::FrameType::kBlob);
  frame.resize(frame.size() + 4);
  test::set_length(frame);
  gap.send(frame);
  EXPECT_THAT(gap.last_words(), HasSubstr("do not follow each other"));
}

TEST_F(DataServerTest, RefusesMoreThanItsLimits) {
  start(liveness_, {.connections = {.in_all = 8, .reserved = 0, .per_user = 2}});
  RawClient first(path_);
  RawClient second(path_);
  first.greet();
  second.greet();
  RawClient third(path_);
  EXPECT_THAT(third.last_words(), HasSubstr("has 2 consumers already"));
  EXPECT_EQ(server_->stats().refused, 1u);
  first.hang_up();
  // The place is free once the hang-up was seen.
  for (;;) {
    RawClient again(path_);
    again.send(test::hello_bytes(wire::kProtocol, wire::kProtocol));
    const auto answer = again.receive();
    ASSERT_TRUE(answer);
    if (answer->type() == wire::FrameType::kWelcome) break;
  }
}

TEST_F(DataServerTest, CountsAClosedConnectionWhileItsProcessMayReadWhatItWasLent) {
  start(liveness_, {.connections = {.in_all = 8, .reserved = 0, .per_user = 1}});
  RawClient client(path_);
  client.attach();
  ASSERT_TRUE(service_.connection());
  lend();
  client.hang_up();
  service_.events(2);  // attach, closed: the process lives
  RawClient refused(path_);
  EXPECT_THAT(refused.last_words(), HasSubstr("has 1 consumers already"));
  EXPECT_EQ(server_->users().at(::getuid()).connections, 1u);
  liveness_.end_process();
  service_.events(3);
  for (;;) {
    RawClient again(path_);
    again.send(test::hello_bytes(wire::kProtocol, wire::kProtocol));
    const auto answer = again.receive();
    ASSERT_TRUE(answer);
    if (answer->type() == wire::FrameType::kWelcome) break;
  }
}

namespace {

// A part of a pipeline's text, or all of it.
test::Bytes blob_bytes(std::size_t bytes, std::uint32_t total_bytes) {
  wire::BlobFrame blob{};
  blob.kind = wire::BlobKind::kPipelineYaml;
  blob.total_bytes = total_bytes;
  test::Bytes frame = bytes_of(blob, wire::FrameType::kBlob);
  frame.resize(frame.size() + bytes);
  test::set_length(frame);
  return frame;
}

}  // namespace

TEST_F(DataServerTest, RefusesAPipelineLongerThanOneMayBeByItsFirstPart) {
  start();
  RawClient client(path_);
  client.greet();
  client.send(blob_bytes(100, wire::kMaxYamlBytes + 1));
  EXPECT_THAT(client.last_words(), HasSubstr("a pipeline of 1048577 bytes; 1048576 are allowed"));
}

TEST_F(DataServerTest, BoundsWhatAUsersUnansweredAttachesTakeAndSaysToTryAgain) {
  start(liveness_, {.max_unattached_bytes_per_uid = 1000});
  RawClient attached(path_);
  attached.greet();
  attached.send(blob_bytes(600, 600));
  wire::AttachFrame attach = test::attach_fixed();
  attach.blob_bytes = 600;
  attached.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_EQ(service_.request().pipeline_yaml.size(), 600u);
  EXPECT_EQ(server_->users().at(::getuid()).unattached_bytes, 600u) << "it waits for its answer";

  RawClient second(path_);
  second.greet();
  second.send(blob_bytes(1, 401));
  const auto error = second.expect<wire::ErrorFrame>(wire::FrameType::kError);
  EXPECT_EQ(error.code, static_cast<std::uint32_t>(Code::kUnavailable));
  EXPECT_THAT(second.rest(), HasSubstr("limits.unattached"));
  EXPECT_FALSE(second.receive());

  service_.forget_requests();
  RawClient third(path_);
  third.greet();
  third.send(blob_bytes(401, 401));
  third.send(blob_bytes(1000, 1000));  // another text in the place of the first
  attach.blob_bytes = 1000;
  third.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_EQ(service_.request().pipeline_yaml.size(), 1000u);
}

TEST_F(DataServerTest, EndsWhoConnectsAndNeverAttaches) {
  start(liveness_, {.hello_timeout = std::chrono::milliseconds(20)});
  RawClient silent(path_);
  EXPECT_THAT(silent.last_words(), HasSubstr("did not attach within 0.02 s"));
  RawClient half(path_);
  half.greet();
  EXPECT_THAT(half.last_words(), HasSubstr("did not attach"));
  EXPECT_EQ(server_->stats().hello_timeouts, 2u);
}

TEST_F(DataServerTest, LetsConsumersInOnceThereAreFileDescriptorsAgain) {
  start();
  RawClient client;  // has its socket
  rlimit saved{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  const UniqueFd next(::dup(client.fd()));  // the lowest free number is below this one or just it
  rlimit none = saved;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  std::vector<UniqueFd> filler;
  for (;;) {
    UniqueFd fd(::dup(client.fd()));
    if (!fd || fd.get() >= next.get()) break;
    filler.push_back(std::move(fd));
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  client.connect(path_);
  while (server_->stats().accept_failures == 0) std::this_thread::yield();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);
  client.attach();
  EXPECT_EQ(service_.events(1).front(), "attach");
}

}  // namespace
}  // namespace spdld::delivery
