// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>

#include "base/text/utf8.h"
#include "control/batch_stream.h"
#include "control/messages.h"
#include "control/services.h"
#include "spdld/v1/control.grpc.pb.h"

namespace spdld::control {
namespace {

class Pipelines final : public v1::Pipelines::Service {
 public:
  explicit Pipelines(const Environment& environment) : environment_(environment) {}

  grpc::Status Apply(grpc::ServerContext* context, const v1::ApplyRequest* request,
                     grpc::ServerWriter<v1::ApplyResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto submitted, apply_request(request->text(), request->dry_run()));
      const auto progress = progress_into(environment_, context, writer);
      v1::ApplyResponse response;
      if (request->has_swap()) {
        SPDLD_ASSIGN(const auto jobs, swap_request(request->swap()));
        SPDLD_ASSIGN(const auto view, service().swap(caller, submitted, jobs, progress));
        fill(response.mutable_swap(), view);
      } else {
        SPDLD_ASSIGN(const auto view, service().apply(caller, submitted, progress));
        fill(response.mutable_pipeline(), view);
      }
      return writer->Write(response) ? Status() : cut_off();
    });
  }

  grpc::Status History(grpc::ServerContext* context, const v1::HistoryRequest* request,
                       v1::HistoryResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto views, service().history(caller, request->pipeline()));
      for (const auto& view : views) fill(response->add_revisions(), view);
      return Status();
    });
  }

  grpc::Status Rollback(grpc::ServerContext* context, const v1::RollbackRequest* request,
                        grpc::ServerWriter<v1::RollbackResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      const auto version =
          request->has_version() ? std::optional(request->version()) : std::nullopt;
      std::optional<session::SwapRequest> jobs;
      if (request->has_swap()) {
        SPDLD_ASSIGN(const auto asked, swap_request(request->swap()));
        jobs = asked;
      }
      SPDLD_ASSIGN(const auto view,
                   service().rollback(caller, request->pipeline(), version, jobs,
                                      progress_into(environment_, context, writer)));
      v1::RollbackResponse response;
      fill(response.mutable_swap(), view);
      return writer->Write(response) ? Status() : cut_off();
    });
  }

  grpc::Status Validate(grpc::ServerContext* context, const v1::ValidateRequest* request,
                        v1::ValidateResponse*) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto submitted, apply_request(request->text(), true));
      return service().validate(caller, submitted, until_cancelled(environment_, context));
    });
  }

  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest* request,
                       grpc::ServerWriter<v1::ExplainResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto submitted, apply_request(request->text(), true));
      SPDLD_ASSIGN(
          const auto view,
          service().explain(caller, submitted, progress_into(environment_, context, writer)));
      v1::ExplainResponse response;
      response.set_plan(utf8(view.text));
      fill(response.mutable_facts(), view.facts);
      return writer->Write(response) ? Status() : cut_off();
    });
  }

  grpc::Status Preview(grpc::ServerContext* context, const v1::PreviewRequest* request,
                       grpc::ServerWriter<v1::PreviewResponse>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      if (request->rows() > kMaxPreviewRows) {
        return Status(Code::kInvalidArgument,
                      fmt::format("a preview of {} rows was asked for; at most {} are made",
                                  request->rows(), kMaxPreviewRows));
      }
      const std::uint32_t rows = request->rows() == 0 ? kMaxPreviewRows : request->rows();
      SPDLD_ASSIGN(const auto submitted, apply_request(request->text(), true));
      SPDLD_ASSIGN(
          const auto view,
          service().preview(caller, submitted, rows, progress_into(environment_, context, writer)));
      return write_batch(view, writer);
    });
  }

  grpc::Status Get(grpc::ServerContext* context, const v1::GetPipelineRequest* request,
                   v1::GetPipelineResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto view, service().pipeline(caller, request->name()));
      fill(response->mutable_pipeline(), view);
      if (request->with_yaml()) {
        SPDLD_ASSIGN(const auto text, service().pipeline_text(caller, request->name()));
        response->set_yaml(utf8(text));
      }
      return Status();
    });
  }

  grpc::Status List(grpc::ServerContext* context, const v1::ListPipelinesRequest*,
                    v1::ListPipelinesResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      for (const auto& view : service().pipelines(caller)) fill(response->add_pipelines(), view);
      return Status();
    });
  }

  grpc::Status Delete(grpc::ServerContext* context, const v1::DeletePipelineRequest* request,
                      v1::DeletePipelineResponse*) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      return service().delete_pipeline(caller, request->name());
    });
  }

  grpc::Status Classes(grpc::ServerContext* context, const v1::ClassesRequest* request,
                       v1::ClassesResponse* response) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) -> Status {
      SPDLD_ASSIGN(const auto classes, service().classes(caller, request->pipeline(),
                                                         until_cancelled(environment_, context)));
      for (const std::string& name : classes.names) response->add_classes(utf8(name));
      for (const std::int64_t id : classes.category_ids) response->add_category_ids(id);
      return Status();
    });
  }

 private:
  session::Service& service() { return environment_.service; }

  const Environment environment_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_pipelines(const Environment& environment) {
  return std::make_unique<Pipelines>(environment);
}

}  // namespace spdld::control
