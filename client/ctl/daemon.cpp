// SPDX-License-Identifier: Apache-2.0
#include "ctl/daemon.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/text/utf8.h"
#include "ctl/address.h"
#include "ctl/failure.h"
#include "ctl/table.h"
#include "spdld/v1/control.grpc.pb.h"

namespace spdld::ctl {
namespace {

constexpr int kMaxResponseBytes = 64 << 20;
constexpr std::uint64_t kMaxPreviewBytes = 2ull << 30;

std::shared_ptr<grpc::Channel> open_channel(const std::string& directory,
                                            std::chrono::milliseconds patience) {
  UniqueFd socket = connect_control(directory, patience);
  // Kept for the life of the process: gRPC's own shutdown can wait for ever for its backup poller
  // when the daemon went away under unsent bytes.
  grpc_init();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
  return grpc::CreateCustomInsecureChannelFromFd("spdld", socket.release(), arguments);
}

}  // namespace

struct Daemon::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : pipelines(v1::Pipelines::NewStub(channel)),
        jobs(v1::Jobs::NewStub(channel)),
        sessions(v1::Sessions::NewStub(channel)),
        stats(v1::Stats::NewStub(channel)) {}

  std::unique_ptr<v1::Pipelines::Stub> pipelines;
  std::unique_ptr<v1::Jobs::Stub> jobs;
  std::unique_ptr<v1::Sessions::Stub> sessions;
  std::unique_ptr<v1::Stats::Stub> stats;

  Mutex mutex;
  bool cancelled SPDLD_GUARDED_BY(mutex) = false;
  grpc::ClientContext* running SPDLD_GUARDED_BY(mutex) = nullptr;
};

// While it lives, Daemon::cancel() ends the call of this context.
class Daemon::Cancellable {
 public:
  Cancellable(Stubs& stubs, grpc::ClientContext& context) : stubs_(stubs) {
    MutexLock lock(stubs.mutex);
    stubs.running = &context;
    stubs.cancelled = false;
  }
  ~Cancellable() {
    MutexLock lock(stubs_.mutex);
    stubs_.running = nullptr;
  }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;

  // Calls `call`, whose failure is Cancelled if it was.
  template <typename Call>
  void run(const Call& call) {
    try {
      call();
    } catch (const Failure&) {
      MutexLock lock(stubs_.mutex);
      if (stubs_.cancelled) throw Cancelled{};
      throw;
    }
  }

 private:
  Stubs& stubs_;
};

namespace {

void check(const grpc::Status& status, const std::string& directory) {
  if (status.ok()) return;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    // Either the daemon says so of something it needs, or it is gone itself.
    const UniqueFd still_there = connect_control(directory);
    // gRPC's words for a connection that the other end closes before it answers.
    if (status.error_message().find("Transport closed") != std::string::npos ||
        status.error_message().find("Socket closed") != std::string::npos)
      throw Failure(kFailed,
                    fmt::format("the daemon at {} closed the connection: it is about to stop, or "
                                "you have as many control connections as you may "
                                "(limits.control_connections; 'spdlctl get users' once one has "
                                "ended)",
                                directory),
                    true);
  }
  const ExitCode code =
      status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ? kWrongUsage : kFailed;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw Failure(code,
                  fmt::format("the daemon at {} did not answer in time: {}", directory,
                              status.error_message()),
                  true);
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    throw Failure(code, fmt::format("the daemon at {} is of another build, which cannot do this: "
                                    "install the same build of spdld for both",
                                    directory));
  }
  // A daemon that stops cancels the calls under way.
  const bool unknown = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                       status.error_code() == grpc::StatusCode::CANCELLED;
  throw Failure(code, status.error_message(), unknown);
}

// One call that only asks: Method is a stub's synchronous one.
template <typename Stub, typename Request, typename Response>
Response ask(Stub& stub,
             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             const Request& request, std::chrono::milliseconds timeout,
             const std::string& directory) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  check((stub.*method)(&context, request, &response), directory);
  return response;
}

// Reads a stream to its end; `on_event` gets what is no progress.
template <typename Response, typename OnEvent>
void follow(grpc::ClientReader<Response>& reader, const std::string& directory,
            const Daemon::OnProgress& on_progress, OnEvent&& on_event) {
  Response response;
  while (reader.Read(&response)) {
    if (response.has_progress()) {
      on_progress(response.progress());
    } else {
      on_event(response);
    }
  }
  check(reader.Finish(), directory);
}

// What comes of one batch: its header, or a chunk of a tensor.
template <typename Response>
void add(Preview& preview, const Response& response) {
  if (response.has_header()) {
    preview.header = response.header();
    preview.data.resize(static_cast<std::size_t>(response.header().tensors_size()));
    return;
  }
  const v1::PreviewChunk& chunk = response.chunk();
  if (chunk.tensor() >= preview.data.size()) {
    throw Failure(kFailed,
                  "the daemon sent a preview that contradicts itself: it is of another "
                  "version than this spdlctl, or broken");
  }
  std::string& data = preview.data[chunk.tensor()];
  if (data.size() + chunk.data().size() > kMaxPreviewBytes)
    throw Failure(kFailed,
                  fmt::format("the rows are too large: tensor '{}' has more than {}; a preview may "
                              "have fewer rows (--rows)",
                              preview.header.tensors(static_cast<int>(chunk.tensor())).name(),
                              show_bytes(kMaxPreviewBytes)));
  data += chunk.data();
}

}  // namespace

Daemon::Daemon(std::string runtime_dir, std::chrono::milliseconds timeout)
    : runtime_dir_(std::move(runtime_dir)),
      timeout_(timeout),
      stubs_(std::make_unique<Stubs>(
          open_channel(runtime_dir_, std::min(timeout_, kConnectPatience)))) {}

Daemon::~Daemon() = default;

v1::Pipeline Daemon::apply(const v1::PipelineText& text, bool dry_run,
                           const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::ApplyRequest request;
  *request.mutable_text() = text;
  request.set_dry_run(dry_run);
  v1::Pipeline pipeline;
  follow(*stubs_->pipelines->Apply(&context, request), runtime_dir_, on_progress,
         [&](const v1::ApplyResponse& response) { pipeline = response.pipeline(); });
  return pipeline;
}

v1::SwapResult Daemon::swap(const v1::PipelineText& text, const v1::SwapRequest& jobs, bool dry_run,
                            const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::ApplyRequest request;
  *request.mutable_text() = text;
  *request.mutable_swap() = jobs;
  request.set_dry_run(dry_run);
  v1::ApplyResponse last;
  Cancellable(*stubs_, context).run([&] {
    follow(*stubs_->pipelines->Apply(&context, request), runtime_dir_, on_progress,
           [&](const v1::ApplyResponse& response) { last = response; });
  });
  return last.swap();
}

void Daemon::cancel() {
  MutexLock lock(stubs_->mutex);
  if (stubs_->running == nullptr) return;
  stubs_->cancelled = true;
  stubs_->running->TryCancel();
}

v1::HistoryResponse Daemon::history(const std::string& pipeline) {
  v1::HistoryRequest request;
  request.set_pipeline(pipeline);
  return ask(*stubs_->pipelines, &v1::Pipelines::Stub::History, request, timeout_, runtime_dir_);
}

v1::SwapResult Daemon::rollback(const v1::RollbackRequest& request, const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::SwapResult result;
  Cancellable(*stubs_, context).run([&] {
    follow(*stubs_->pipelines->Rollback(&context, request), runtime_dir_, on_progress,
           [&](const v1::RollbackResponse& response) { result = response.swap(); });
  });
  return result;
}

v1::ExplainResponse Daemon::explain(const v1::PipelineText& text, const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::ExplainRequest request;
  *request.mutable_text() = text;
  v1::ExplainResponse plan;
  follow(*stubs_->pipelines->Explain(&context, request), runtime_dir_, on_progress,
         [&](const v1::ExplainResponse& response) { plan = response; });
  return plan;
}

Preview Daemon::preview(const v1::PipelineText& text, std::uint32_t rows,
                        const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::PreviewRequest request;
  *request.mutable_text() = text;
  request.set_rows(rows);
  Preview preview;
  follow(*stubs_->pipelines->Preview(&context, request), runtime_dir_, on_progress,
         [&](const v1::PreviewResponse& response) { add(preview, response); });
  return preview;
}

ShownBatch Daemon::show(const v1::ShowRequest& request, const OnProgress& on_progress) {
  grpc::ClientContext context;
  ShownBatch batch;
  follow(*stubs_->jobs->Show(&context, request), runtime_dir_, on_progress,
         [&](const v1::ShowResponse& response) {
           if (response.has_step()) {
             batch.step = response.step();
           } else {
             add(batch.rows, response);
           }
         });
  return batch;
}

v1::Headspace Daemon::headspace(const v1::HeadspaceRequest& request,
                                const OnProgress& on_progress) {
  grpc::ClientContext context;
  v1::Headspace found;
  follow(*stubs_->jobs->Headspace(&context, request), runtime_dir_, on_progress,
         [&](const v1::HeadspaceResponse& response) { found = response.headspace(); });
  return found;
}

v1::GetPipelineResponse Daemon::pipeline(const std::string& name, bool with_yaml) {
  v1::GetPipelineRequest request;
  request.set_name(name);
  request.set_with_yaml(with_yaml);
  return ask(*stubs_->pipelines, &v1::Pipelines::Stub::Get, request, timeout_, runtime_dir_);
}

v1::ListPipelinesResponse Daemon::pipelines() {
  return ask(*stubs_->pipelines, &v1::Pipelines::Stub::List, v1::ListPipelinesRequest(), timeout_,
             runtime_dir_);
}

v1::ClassesResponse Daemon::classes(const std::string& pipeline) {
  v1::ClassesRequest request;
  request.set_pipeline(pipeline);
  return ask(*stubs_->pipelines, &v1::Pipelines::Stub::Classes, request, timeout_, runtime_dir_);
}

void Daemon::delete_pipeline(const std::string& name) {
  v1::DeletePipelineRequest request;
  request.set_name(name);
  ask(*stubs_->pipelines, &v1::Pipelines::Stub::Delete, request, timeout_, runtime_dir_);
}

v1::Job Daemon::create_job(const v1::CreateJobRequest& request) {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Create, request, timeout_, runtime_dir_);
}

v1::Job Daemon::job(const v1::JobKey& key) {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Get, key, timeout_, runtime_dir_);
}

v1::ListJobsResponse Daemon::jobs(bool ended) {
  v1::ListJobsRequest request;
  request.set_ended(ended);
  return ask(*stubs_->jobs, &v1::Jobs::Stub::List, request, timeout_, runtime_dir_);
}

v1::DiagnoseResponse Daemon::diagnose(const v1::JobKey& key) {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Diagnose, key, timeout_, runtime_dir_);
}

v1::Job Daemon::advance_epoch(const v1::JobKey& key, std::optional<std::uint64_t> to) {
  v1::AdvanceEpochRequest request;
  *request.mutable_key() = key;
  if (to) request.set_to(*to);
  return ask(*stubs_->jobs, &v1::Jobs::Stub::AdvanceEpoch, request, timeout_, runtime_dir_);
}

v1::Job Daemon::seek(const v1::JobKey& key, std::uint64_t epoch, std::uint64_t step) {
  v1::SeekRequest request;
  *request.mutable_key() = key;
  request.set_epoch(epoch);
  request.set_step(step);
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Seek, request, timeout_, runtime_dir_);
}

v1::Job Daemon::skip(const v1::JobKey& key, std::uint64_t steps) {
  v1::SkipRequest request;
  *request.mutable_key() = key;
  request.set_steps(steps);
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Skip, request, timeout_, runtime_dir_);
}

v1::TuneResponse Daemon::tune(const v1::TuneRequest& request) {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Tune, request, timeout_, runtime_dir_);
}

v1::Job Daemon::resize(const v1::JobKey& key, std::uint32_t num_shards) {
  v1::ResizeRequest request;
  *request.mutable_key() = key;
  request.set_num_shards(num_shards);
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Resize, request, timeout_, runtime_dir_);
}

v1::DeleteJobResponse Daemon::delete_job(const v1::JobKey& key) {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Delete, key, timeout_, runtime_dir_);
}

v1::DrainResponse Daemon::drain() {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Drain, v1::DrainRequest(), timeout_, runtime_dir_);
}

v1::UndrainResponse Daemon::undrain() {
  return ask(*stubs_->jobs, &v1::Jobs::Stub::Undrain, v1::UndrainRequest(), timeout_, runtime_dir_);
}

v1::ListSessionsResponse Daemon::sessions() {
  return ask(*stubs_->sessions, &v1::Sessions::Stub::List, v1::ListSessionsRequest(), timeout_,
             runtime_dir_);
}

void Daemon::evict(std::uint64_t session, const std::string& reason) {
  v1::EvictRequest request;
  request.set_session(session);
  request.set_reason(utf8(reason));
  ask(*stubs_->sessions, &v1::Sessions::Stub::Evict, request, timeout_, runtime_dir_);
}

v1::ListUsersResponse Daemon::users() {
  return ask(*stubs_->stats, &v1::Stats::Stub::Users, v1::ListUsersRequest(), timeout_,
             runtime_dir_);
}

v1::StatsSnapshot Daemon::stats(const v1::GetStatsRequest& wanted) {
  return ask(*stubs_->stats, &v1::Stats::Stub::Get, wanted, timeout_, runtime_dir_);
}

std::string Daemon::metrics() {
  return ask(*stubs_->stats, &v1::Stats::Stub::Metrics, v1::MetricsRequest(), timeout_,
             runtime_dir_)
      .text();
}

void Daemon::watch(const v1::WatchStatsRequest& request,
                   const std::function<bool(const v1::StatsSnapshot&)>& on_snapshot) {
  grpc::ClientContext context;
  const auto reader = stubs_->stats->Watch(&context, request);
  v1::StatsSnapshot snapshot;
  while (reader->Read(&snapshot)) {
    if (!on_snapshot(snapshot)) {
      context.TryCancel();
      reader->Finish();
      return;
    }
  }
  check(reader->Finish(), runtime_dir_);
}

}  // namespace spdld::ctl
