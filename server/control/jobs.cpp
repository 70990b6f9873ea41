// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "control/batch_stream.h"
#include "control/messages.h"
#include "control/services.h"
#include "spdld/v1/control.grpc.pb.h"

namespace spdld::control {
namespace {

class Jobs final : public v1::Jobs::Service {
 public:
  explicit Jobs(const Environment& environment) : environment_(environment) {}

  grpc::Status Create(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                      v1::Job* response) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto asked, job_request(*request));
      SPDLD_ASSIGN(const View view, environment_.service.create_job(
                                        caller, asked, until_cancelled(environment_, context)));
      fill(response, view);
      return Status();
    });
  }

  grpc::Status Get(grpc::ServerContext* context, const v1::JobKey* key,
                   v1::Job* response) override {
    return answer(context, response, [&](const job::Caller& caller) {
      return environment_.service.job(caller, key->job(), key->pipeline());
    });
  }

  grpc::Status List(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                    v1::ListJobsResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      session::Service& service = environment_.service;
      for (const auto& view : request->ended() ? service.ended_jobs(caller) : service.jobs(caller))
        fill(response->add_jobs(), view);
      return Status();
    });
  }

  grpc::Status Diagnose(grpc::ServerContext* context, const v1::JobKey* key,
                        v1::DiagnoseResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const std::vector<session::DiagnosisView> views,
                   environment_.service.diagnose(caller, key->job(), key->pipeline()));
      for (const session::DiagnosisView& view : views) fill(response->add_jobs(), view);
      return {};
    });
  }

  grpc::Status Show(grpc::ServerContext* context, const v1::ShowRequest* request,
                    grpc::ServerWriter<v1::ShowResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      const v1::JobKey& key = request->key();
      SPDLD_ASSIGN(const session::StepView view,
                   environment_.service.show(caller, key.job(), key.pipeline(),
                                             {.epoch = request->epoch(), .step = request->step()},
                                             request->shard(),
                                             progress_into(environment_, context, writer)));
      v1::ShowResponse response;
      fill(response.mutable_step(), view);
      if (!writer->Write(response)) return cut_off();
      return write_batch(view.batch, writer);
    });
  }

  grpc::Status Headspace(grpc::ServerContext* context, const v1::HeadspaceRequest* request,
                         grpc::ServerWriter<v1::HeadspaceResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      const v1::JobKey& key = request->key();
      SPDLD_ASSIGN(
          const session::HeadspaceView view,
          environment_.service.headspace(caller, key.job(), key.pipeline(), request->steps(),
                                         phases_into(environment_, context, writer)));
      v1::HeadspaceResponse response;
      fill(response.mutable_headspace(), view);
      return writer->Write(response) ? Status() : cut_off();
    });
  }

  grpc::Status AdvanceEpoch(grpc::ServerContext* context, const v1::AdvanceEpochRequest* request,
                            v1::Job* response) override {
    return answer(context, response, [&](const job::Caller& caller) {
      const v1::JobKey& key = request->key();
      const auto to = request->has_to() ? std::optional(request->to()) : std::nullopt;
      return environment_.service.advance_epoch(caller, key.job(), key.pipeline(), to);
    });
  }

  grpc::Status Seek(grpc::ServerContext* context, const v1::SeekRequest* request,
                    v1::Job* response) override {
    return answer(context, response, [&](const job::Caller& caller) {
      const v1::JobKey& key = request->key();
      return environment_.service.seek(caller, key.job(), key.pipeline(), request->epoch(),
                                       request->step());
    });
  }

  grpc::Status Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                    v1::Job* response) override {
    return answer(context, response, [&](const job::Caller& caller) -> Result<View> {
      const v1::JobKey& key = request->key();
      if (request->steps() == 0) {
        return error(Code::kInvalidArgument,
                     fmt::format("job '{}': steps must be at least 1", key.job()));
      }
      return environment_.service.skip(caller, key.job(), key.pipeline(), request->steps());
    });
  }

  grpc::Status Tune(grpc::ServerContext* context, const v1::TuneRequest* request,
                    v1::TuneResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      const session::TuneRequest wanted{
          .set = {request->set().begin(), request->set().end()},
          .reset = {request->reset().begin(), request->reset().end()}};
      const v1::JobKey& key = request->key();
      SPDLD_ASSIGN(const auto values,
                   request->has_key()
                       ? environment_.service.tune_job(caller, key.job(), key.pipeline(), wanted)
                       : environment_.service.tune_daemon(caller, wanted));
      for (const session::LiveValue& value : values) fill(response->add_values(), value);
      return Status();
    });
  }

  grpc::Status Resize(grpc::ServerContext* context, const v1::ResizeRequest* request,
                      v1::Job* response) override {
    return answer(context, response, [&](const job::Caller& caller) -> Result<View> {
      const v1::JobKey& key = request->key();
      if (request->num_shards() == 0) {
        return error(Code::kInvalidArgument,
                     fmt::format("job '{}': num_shards must be at least 1", key.job()));
      }
      return environment_.service.resize_job(caller, key.job(), key.pipeline(),
                                             request->num_shards());
    });
  }

  grpc::Status Delete(grpc::ServerContext* context, const v1::JobKey* key,
                      v1::DeleteJobResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto deleted,
                   environment_.service.delete_job(caller, key->job(), key->pipeline()));
      response->set_had_ended(deleted.had_ended);
      response->set_pipeline(deleted.pipeline);
      return Status();
    });
  }

  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest*,
                     v1::DrainResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const session::DrainBegun begun, environment_.service.drain(caller));
      fill(response->mutable_drain(), begun.drain);
      response->set_began(begun.began);
      return Status();
    });
  }

  grpc::Status Undrain(grpc::ServerContext* context, const v1::UndrainRequest*,
                       v1::UndrainResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto ended, environment_.service.undrain(caller));
      if (ended) fill(response->mutable_ended(), *ended);
      return Status();
    });
  }

 private:
  using View = job::JobView;

  template <typename Call>
  grpc::Status answer(grpc::ServerContext* context, v1::Job* response, Call&& call) {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const View view, call(caller));
      fill(response, view);
      return Status();
    });
  }

  const Environment environment_;
};

class Sessions final : public v1::Sessions::Service {
 public:
  explicit Sessions(const Environment& environment) : environment_(environment) {}

  grpc::Status List(grpc::ServerContext* context, const v1::ListSessionsRequest*,
                    v1::ListSessionsResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      for (const auto& view : environment_.service.sessions(caller))
        fill(response->add_sessions(), view);
      return Status();
    });
  }

  grpc::Status Evict(grpc::ServerContext* context, const v1::EvictRequest* request,
                     v1::EvictResponse*) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      if (request->reason().size() > kMaxReasonBytes) {
        return Status(Code::kInvalidArgument,
                      fmt::format("the reason for evicting session {} has {} bytes; at most {} are "
                                  "passed on",
                                  request->session(), request->reason().size(), kMaxReasonBytes));
      }
      return environment_.service.evict(caller, request->session(), request->reason());
    });
  }

 private:
  const Environment environment_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_jobs(const Environment& environment) {
  return std::make_unique<Jobs>(environment);
}

std::unique_ptr<grpc::Service> make_sessions(const Environment& environment) {
  return std::make_unique<Sessions>(environment);
}

}  // namespace spdld::control
