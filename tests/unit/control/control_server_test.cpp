// SPDX-License-Identifier: Apache-2.0
#include "control/control_server.h"

#include <dirent.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <future>
#include <set>
#include <thread>

#include "control/messages.h"
#include "spdld/v1/control.grpc.pb.h"
#include "tests/unit/control/channel.h"
#include "tests/unit/control/fake_service.h"
#include "tests/unit/control/temp_socket.h"

namespace spdld::control {
namespace {

using session::Service;
using std::chrono::milliseconds;

// Something that happens once, on one thread, and is waited for on another.
class Event {
 public:
  void set() { promise_.set_value(); }
  void wait() const { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

// Descriptors of this process that the listener at `path` accepted.
std::set<int> accepted_at(const std::string& path) {
  std::set<int> found;
  DIR* listing = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    sockaddr_un address{};
    socklen_t bytes = sizeof(address);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) continue;
    int listening = 0;
    socklen_t size = sizeof(listening);
    ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size);
    if (listening == 0 && address.sun_family == AF_UNIX && path == address.sun_path)
      found.insert(fd);
  }
  ::closedir(listing);
  return found;
}

class ControlServerTest : public ::testing::Test {
 protected:
  void start(const ControlOptions& options = {}) {
    auto started = ControlServer::start(listen_at(dir_.socket()), service_, options);
    ASSERT_TRUE(started) << started.error().message();
    server_ = std::move(*started);
    channel_ = channel_to(dir_.socket());
  }

  // Applies a valid text; `progress` counts the messages before the last.
  grpc::Status apply(v1::ApplyResponse* last, int* progress = nullptr,
                     grpc::ClientContext* given = nullptr) {
    grpc::ClientContext own;
    v1::ApplyRequest request;
    request.mutable_text()->set_yaml("pipeline: p");
    const auto stub = v1::Pipelines::NewStub(channel_);
    const auto reader = stub->Apply(given != nullptr ? given : &own, request);
    v1::ApplyResponse response;
    while (reader->Read(&response)) {
      if (progress != nullptr && response.has_progress()) ++*progress;
      *last = response;
    }
    return reader->Finish();
  }

  grpc::Status list_pipelines(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::ListPipelinesResponse response;
    return v1::Pipelines::NewStub(channel)->List(&context, {}, &response);
  }

  TempDir dir_;
  FakeService service_;
  std::unique_ptr<ControlServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ControlServerTest, TellsTheServiceWhoAsksByTheKernelsWord) {
  start();
  ASSERT_TRUE(list_pipelines(channel_).ok());
  EXPECT_EQ(service_.last_caller().uid, ::geteuid());
  EXPECT_EQ(service_.last_caller().pid, ::getpid());
}

TEST_F(ControlServerTest, TellsMetricsAsTheCallerMaySeeThem) {
  start({.metrics = [](const job::Caller& caller) { return std::to_string(caller.uid); }});
  grpc::ClientContext context;
  v1::MetricsResponse response;
  const grpc::Status status = v1::Stats::NewStub(channel_)->Metrics(&context, {}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.text(), std::to_string(::geteuid()));
}

TEST_F(ControlServerTest, PassesCodesAndMessagesOnAsTheyAre) {
  service_.answer = Status(Code::kFailedPrecondition, "pipeline 'p' is run by 2 jobs");
  start();
  grpc::ClientContext context;
  v1::DeletePipelineRequest request;
  request.set_name("p");
  v1::DeletePipelineResponse response;
  const grpc::Status status =
      v1::Pipelines::NewStub(channel_)->Delete(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "pipeline 'p' is run by 2 jobs");
  EXPECT_EQ(service_.calls(), std::vector<std::string>{"delete_pipeline p"});
}

TEST_F(ControlServerTest, DeliversMessagesThatAreLongOrNoUtf8) {
  service_.answer = Status(Code::kDataLoss, "bad \xff " + std::string(100'000, 'x'));
  start();
  v1::ApplyResponse last;
  const grpc::Status status = apply(&last);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message().substr(0, 10), "bad \\xff x");
}

TEST_F(ControlServerTest, StreamsProgressAndThenTheResult) {
  service_.work = [](const Service::Progress& progress) {
    return progress(1, 4, "listing /data", {}) ? Status() : Status(Code::kCancelled, "told to end");
  };
  service_.pipeline_view.name = "p";
  service_.pipeline_view.items = 4;
  start();
  v1::ApplyResponse last;
  int progress = 0;
  const grpc::Status status = apply(&last, &progress);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(progress, 1);
  ASSERT_TRUE(last.has_pipeline());
  EXPECT_EQ(last.pipeline().items(), 4u);
}

TEST_F(ControlServerTest, SendsPreviewsInChunks) {
  service_.preview_view.tensors = {{"image", FieldKind::kDense, DType::kUInt8, {3, 1024, 1024}},
                                   {"label", FieldKind::kDense, DType::kInt64, {}}};
  std::vector<std::byte> image(3 << 20);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::byte>(i * 31 >> 8);
  service_.preview_view.data = {image, std::vector<std::byte>(8, std::byte{7})};
  service_.preview_view.packed = {{}, {.begins = {0, 8}, .shapes = {1}}};
  service_.preview_view.uris = {"caf\xe9.jpg"};
  start();
  grpc::ClientContext context;
  v1::PreviewRequest request;
  request.mutable_text()->set_yaml("pipeline: p");
  request.set_rows(1);
  const auto reader = v1::Pipelines::NewStub(channel_)->Preview(&context, request);
  v1::PreviewResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(response.has_header());
  EXPECT_EQ(response.header().tensor_bytes(0), image.size());
  EXPECT_EQ(response.header().uris(0), "caf\\xe9.jpg");
  ASSERT_EQ(response.header().packed_size(), 2);
  EXPECT_EQ(response.header().packed(1).begins(1), 8u);
  EXPECT_EQ(response.header().packed(1).shapes(0), 1);
  std::string data[2];
  while (reader->Read(&response)) {
    ASSERT_LT(response.chunk().tensor(), 2u);
    data[response.chunk().tensor()] += response.chunk().data();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(data[0], std::string(reinterpret_cast<const char*>(image.data()), image.size()));
  EXPECT_EQ(data[1], std::string(8, '\7'));
}

TEST_F(ControlServerTest, SendsAStepOfAJobWithItsRows) {
  service_.step_view = {.job = "run",
                        .pipeline = "p",
                        .version = 3,
                        .at = {2, 7},
                        .shard = 1,
                        .num_shards = 4,
                        .turn = 30,
                        .sent = true,
                        .batch = {.tensors = {{"label", FieldKind::kDense, DType::kInt64, {}}},
                                  .data = {std::vector<std::byte>(16)},
                                  .packed = {{}},
                                  .indices = {4, 5},
                                  .valid = {true, false},
                                  .uris = {"a", "b"},
                                  .classes = {}}};
  start();
  grpc::ClientContext context;
  v1::ShowRequest request;
  request.mutable_key()->set_job("run");
  request.set_epoch(2);
  request.set_step(7);
  request.set_shard(1);
  const auto reader = v1::Jobs::NewStub(channel_)->Show(&context, request);
  v1::ShowResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(response.has_step());
  EXPECT_EQ(response.step().ShortDebugString(),
            R"(job: "run" pipeline: "p" version: 3 at { epoch: 2 step: 7 } shard: 1 )"
            "num_shards: 4 turn: 30 sent: true");
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(response.has_header());
  EXPECT_TRUE(response.header().valid(0));
  EXPECT_FALSE(response.header().valid(1));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.chunk().data().size(), 16U);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"show 2/7 shard 1 run "}));
}

TEST_F(ControlServerTest, TellsEachPhaseOfAMeasurementOnceAndThenWhatCameOfIt) {
  service_.work = [](const Service::Progress& progress) {
    for (const char* const what : {"times", "times", "holds", "times"}) {
      EXPECT_TRUE(progress(1, 8, what, {}));
    }
    return Status();
  };
  service_.headspace_view = {.job = "run",
                             .pipeline = "p",
                             .ranks = 2,
                             .prefetch = 64,
                             .steps_now = 8,
                             .steps_ready = 9,
                             .rounds = 1,
                             .longest_hold_s = 1.5,
                             .steps_per_epoch = 100,
                             .now_s = 0.5,
                             .ready_s = 0.25};
  start();
  grpc::ClientContext context;
  v1::HeadspaceRequest request;
  request.mutable_key()->set_job("run");
  request.set_steps(8);
  const auto reader = v1::Jobs::NewStub(channel_)->Headspace(&context, request);
  v1::HeadspaceResponse response;
  std::vector<std::string> phases;
  while (reader->Read(&response) && response.has_progress())
    phases.push_back(response.progress().what());
  EXPECT_EQ(phases, (std::vector<std::string>{"times", "holds", "times"}));
  EXPECT_EQ(response.headspace().ShortDebugString(),
            R"(job: "run" pipeline: "p" ranks: 2 prefetch: 64 steps_now: 8 steps_ready: 9 )"
            "rounds: 1 longest_hold_s: 1.5 steps_per_epoch: 100 now_s: 0.5 ready_s: 0.25 "
            "gain: 0.5 saved_epoch_s: 25");
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"headspace 8 run "}));
}

TEST_F(ControlServerTest, EndsTheMakingOfAStepWhenItsCallerIsGone) {
  Event begun;
  std::promise<void> ended;
  service_.work = [&](const Service::Progress& progress) {
    begun.set();
    while (progress(0, 0, "rows of a batch", {})) std::this_thread::yield();
    ended.set_value();
    return Status(Code::kCancelled, "nobody waits");
  };
  start();
  grpc::ClientContext context;
  const auto reader = v1::Jobs::NewStub(channel_)->Show(&context, {});
  begun.wait();
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ended.get_future().wait();
}

TEST_F(ControlServerTest, PassesJobRequestsOn) {
  service_.job_view.job = "run-7";
  start();
  const auto stub = v1::Jobs::NewStub(channel_);
  v1::Job job;
  {
    grpc::ClientContext context;
    v1::AdvanceEpochRequest request;
    request.mutable_key()->set_job("run-7");
    request.mutable_key()->set_pipeline("p");
    request.set_to(0);
    ASSERT_TRUE(stub->AdvanceEpoch(&context, request, &job).ok());
  }
  {
    grpc::ClientContext context;
    v1::AdvanceEpochRequest request;
    request.mutable_key()->set_job("run-7");
    ASSERT_TRUE(stub->AdvanceEpoch(&context, request, &job).ok());
  }
  {
    grpc::ClientContext context;
    v1::SeekRequest request;
    request.mutable_key()->set_job("run-7");
    request.set_epoch(3);
    request.set_step(40);
    ASSERT_TRUE(stub->Seek(&context, request, &job).ok());
  }
  {
    grpc::ClientContext context;
    v1::ResizeRequest request;
    request.mutable_key()->set_job("run-7");
    request.set_num_shards(4);
    ASSERT_TRUE(stub->Resize(&context, request, &job).ok());
  }
  EXPECT_EQ(job.job(), "run-7");
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"advance 0 run-7 p", "advance next run-7 ",
                                                        "seek 3/40 run-7 ", "resize 4 run-7 "}));
}

TEST_F(ControlServerTest, RefusesRequestsThatMeanNothingBeforeTheServiceSeesThem) {
  start();
  const auto pipelines = v1::Pipelines::NewStub(channel_);
  const auto expect_invalid = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  };
  {
    grpc::ClientContext context;
    v1::ValidateResponse response;
    expect_invalid(pipelines->Validate(&context, {}, &response));
  }
  {
    grpc::ClientContext context;
    v1::PreviewRequest request;
    request.mutable_text()->set_yaml("pipeline: p");
    request.set_rows(kMaxPreviewRows + 1);
    expect_invalid(pipelines->Preview(&context, request)->Finish());
  }
  {
    grpc::ClientContext context;
    v1::Job response;
    v1::ResizeRequest request;
    expect_invalid(v1::Jobs::NewStub(channel_)->Resize(&context, request, &response));
  }
  {
    grpc::ClientContext context;
    v1::EvictRequest request;
    request.set_reason(std::string(kMaxReasonBytes + 1, 'x'));
    v1::EvictResponse response;
    expect_invalid(v1::Sessions::NewStub(channel_)->Evict(&context, request, &response));
  }
  for (const std::uint32_t interval_ms : {1u, 99u, 60'001u}) {
    grpc::ClientContext context;
    v1::WatchStatsRequest request;
    request.set_interval_ms(interval_ms);
    expect_invalid(v1::Stats::NewStub(channel_)->Watch(&context, request)->Finish());
  }
  EXPECT_EQ(service_.calls(), std::vector<std::string>{});
}

TEST_F(ControlServerTest, RefusesAMessageBeyondTheSizeOfAnyPipeline) {
  start();
  grpc::ClientContext context;
  v1::ValidateRequest request;
  request.mutable_text()->set_yaml(std::string(3 << 20, 'x'));
  v1::ValidateResponse response;
  EXPECT_EQ(v1::Pipelines::NewStub(channel_)->Validate(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(service_.calls(), std::vector<std::string>{});
}

TEST_F(ControlServerTest, OutlivesWhatTheServiceThrows) {
  service_.throws = true;
  start();
  for (int i = 0; i < 3; ++i) {
    const grpc::Status status = list_pipelines(channel_);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(status.error_message(), "the daemon failed: the fake was told to throw");
  }
}

TEST_F(ControlServerTest, OutlivesGarbageAndHangUps) {
  start();
  { connect_to(dir_.socket()); }
  const UniqueFd garbage = connect_to(dir_.socket());
  const std::string bytes(4096, '\x5a');
  ASSERT_EQ(::send(garbage.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  char byte = 0;
  while (::recv(garbage.get(), &byte, 1, 0) > 0) {
  }
  EXPECT_TRUE(list_pipelines(channel_).ok());
}

TEST_F(ControlServerTest, EndsWorkWhoseDeadlineHasPassed) {
  service_.work = [](const Service::Progress& progress) {
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
  v1::ApplyResponse last;
  EXPECT_EQ(apply(&last, nullptr, &context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server_->stop(milliseconds(0));
}

TEST_F(ControlServerTest, WatchersSeeSnapshotsUntilTheDaemonStops) {
  service_.daemon_view.batches = 12;
  service_.stage_views.resize(2);
  service_.failure_views.resize(3);
  start();
  grpc::ClientContext context;
  v1::WatchStatsRequest request;
  request.set_interval_ms(100);
  request.set_stages(true);
  const auto reader = v1::Stats::NewStub(channel_)->Watch(&context, request);
  v1::StatsSnapshot snapshot;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reader->Read(&snapshot));
    EXPECT_EQ(snapshot.daemon().batches(), 12u);
    EXPECT_EQ(snapshot.stages_size(), 2);
    EXPECT_EQ(snapshot.failures_size(), 0) << "not asked for";
  }
  std::thread stopping([&] { server_->stop(std::chrono::seconds(30)); });
  while (reader->Read(&snapshot)) {
  }
  const grpc::Status status = reader->Finish();
  stopping.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is stopping");
}

TEST_F(ControlServerTest, StoppingTellsLongWorkToEnd) {
  Event begun;
  service_.work = [&](const Service::Progress& progress) {
    begun.set();
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    return Status(Code::kUnavailable, "stopped while listing");
  };
  start();
  auto applied = std::async(std::launch::async, [&] {
    v1::ApplyResponse last;
    return apply(&last);
  });
  begun.wait();
  server_->stop(std::chrono::seconds(30));
  server_->stop(std::chrono::seconds(30));
  EXPECT_EQ(applied.get().error_message(), "stopped while listing");
}

TEST_F(ControlServerTest, RefusesLongCallsBeyondAUsersLimitAndTakesOthers) {
  Event begun;
  Event may_end;
  std::atomic<int> entered = 0;
  service_.work = [&](const Service::Progress&) {
    if (entered.fetch_add(1) == 0) {
      begun.set();
      may_end.wait();
    }
    return Status();
  };
  ControlOptions options;
  options.max_long_calls_per_uid = 1;
  start(options);
  auto first = std::async(std::launch::async, [&] {
    v1::ApplyResponse last;
    return apply(&last);
  });
  begun.wait();
  v1::ApplyResponse last;
  const grpc::Status refused = apply(&last);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error_message().find("at most 32 and 1 may"), std::string::npos)
      << refused.error_message();
  EXPECT_TRUE(list_pipelines(channel_).ok()) << "short calls are not counted";
  may_end.set();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(apply(&last).ok()) << "the place is free again";
}

TEST_F(ControlServerTest, CountsCallsThatListWithoutAStreamAsLongOnes) {
  Event begun;
  Event may_end;
  service_.work = [&](const Service::Progress&) {
    begun.set();
    may_end.wait();
    return Status();
  };
  service_.user_views = {{.uid = ::geteuid()}};
  ControlOptions options;
  options.max_long_calls_per_uid = 1;
  start(options);
  const auto create = [&] {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    request.set_job("run");
    request.set_pipeline("p");
    request.set_num_shards(1);
    v1::Job job;
    return v1::Jobs::NewStub(channel_)->Create(&context, request, &job);
  };
  auto first = std::async(std::launch::async, create);
  begun.wait();
  const grpc::Status refused = create();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error_message().find("too many long calls"), std::string::npos)
      << refused.error_message();
  grpc::ClientContext context;
  v1::ValidateRequest request;
  request.mutable_text()->set_yaml("pipeline: p");
  v1::ValidateResponse response;
  EXPECT_EQ(v1::Pipelines::NewStub(channel_)->Validate(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);

  grpc::ClientContext asking;
  v1::ListUsersResponse users;
  ASSERT_TRUE(v1::Stats::NewStub(channel_)->Users(&asking, {}, &users).ok());
  ASSERT_EQ(users.users_size(), 1);
  EXPECT_EQ(users.users(0).long_calls().used(), 1u);
  EXPECT_EQ(users.users(0).long_calls().limit(), 1u);
  EXPECT_EQ(users.users(0).control_connections().used(), 1u);
  EXPECT_EQ(users.users(0).control_connections().limit(), 64u);
  EXPECT_FALSE(users.users(0).jobs().has_limit());
  may_end.set();
  EXPECT_TRUE(first.get().ok());
}

TEST_F(ControlServerTest, EndsTheWorkOfACallWithOneAnswerWhenItsCallerIsGone) {
  Event begun;
  std::promise<void> ended;
  service_.work = [&](const Service::Progress& progress) {
    begun.set();
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    ended.set_value();
    return Status(Code::kCancelled, "nobody waits");
  };
  start();
  grpc::ClientContext context;
  auto created = std::async(std::launch::async, [&] {
    v1::CreateJobRequest request;
    request.set_job("run");
    request.set_pipeline("p");
    request.set_num_shards(1);
    v1::Job job;
    return v1::Jobs::NewStub(channel_)->Create(&context, request, &job);
  });
  begun.wait();
  context.TryCancel();
  EXPECT_EQ(created.get().error_code(), grpc::StatusCode::CANCELLED);
  ended.get_future().wait();
}

TEST_F(ControlServerTest, TakesLongCallsOfTrustedUsersBeyondTheLimitOfAll) {
  ControlOptions options;
  options.max_long_calls = 0;
  start(options);
  v1::ApplyResponse last;
  EXPECT_TRUE(apply(&last).ok()) << "the daemon's own user is trusted";
}

TEST_F(ControlServerTest, ClosesConnectionsBeyondAUsersLimit) {
  ControlOptions options;
  options.max_connections_per_uid = 2;
  start(options);
  ASSERT_TRUE(list_pipelines(channel_).ok());
  const UniqueFd second = connect_to(dir_.socket());
  const UniqueFd third = connect_to(dir_.socket());
  char byte = 0;
  EXPECT_EQ(::recv(third.get(), &byte, 1, 0), 0) << "closed without a word of HTTP/2";
  EXPECT_TRUE(list_pipelines(channel_).ok());
}

// The argument in control/peers.h rests on this.
TEST_F(ControlServerTest, AConnectionsNumberStaysTakenWhileACallOfItRuns) {
  Event begun;
  Event gone;
  Event may_end;
  service_.work = [&](const Service::Progress& progress) {
    begun.set();
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    gone.set();
    may_end.wait();
    return Status();
  };
  start();
  auto applied = std::async(std::launch::async, [&] {
    v1::ApplyResponse last;
    return apply(&last);
  });
  begun.wait();
  const std::set<int> accepted = accepted_at(dir_.socket());
  ASSERT_EQ(accepted.size(), 1u);
  const int number = *accepted.begin();
  struct stat before {};
  ASSERT_EQ(::fstat(number, &before), 0);

  // The client's end vanishes without a word.
  ASSERT_EQ(::shutdown(number, SHUT_RDWR), 0);
  gone.wait();
  EXPECT_FALSE(applied.get().ok());
  channel_.reset();
  for (int i = 0; i < 20; ++i) {
    const auto other = channel_to(dir_.socket());
    EXPECT_TRUE(list_pipelines(other).ok());
    struct stat now {};
    ASSERT_EQ(::fstat(number, &now), 0) << "closed under a running call";
    ASSERT_EQ(now.st_ino, before.st_ino) << "taken over under a running call";
  }
  may_end.set();
  server_->stop(std::chrono::seconds(30));
  // Nothing is left open; gRPC may close a connection on a thread of its own after the stop.
  while (!accepted_at(dir_.socket()).empty()) std::this_thread::yield();
}

TEST_F(ControlServerTest, SaysThatItIsHealthyAndWhatItServes) {
  start();
  const auto ask = [&](const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer sent(&slice, 1);
    const auto call = stub.PrepareUnaryCall(&context, method, sent, &queue);
    call->StartCall();
    grpc::ByteBuffer received;
    grpc::Status status;
    call->Finish(&received, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (received.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices)
        bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return bytes;
  };
  EXPECT_EQ(ask("/grpc.health.v1.Health/Check", ""), "\x08\x01") << "status: SERVING";
  // ServerReflectionRequest.list_services (7) = "*"
  EXPECT_NE(ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                std::string("\x3a\x01*", 3))
                .find("spdld.v1.Pipelines"),
            std::string::npos);
}

TEST(ControlServer, RefusesWhatIsNoListeningUnixSocket) {
  FakeService service;
  const auto refusal = [&](UniqueFd fd) {
    const auto started = ControlServer::start(std::move(fd), service);
    return started ? std::string("started") : started.error().message();
  };
  EXPECT_EQ(refusal(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))),
            "the control socket that was passed does not listen");
  UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(tcp.get(), 1), 0);
  EXPECT_EQ(refusal(std::move(tcp)), "the control socket that was passed is no Unix stream socket");
  EXPECT_EQ(refusal(UniqueFd()), "the control socket's listener: Bad file descriptor");
}

}  // namespace
}  // namespace spdld::control
