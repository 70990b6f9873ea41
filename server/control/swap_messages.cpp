// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <fmt/format.h>

#include <string_view>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

void fill_in(v1::SwapOutlook* message, const session::SwapOutlook& outlook) {
  message->set_version_before(outlook.version_before);
  fill(message->mutable_frontier(), outlook.frontier);
  message->set_steps_per_epoch(outlook.steps_per_epoch);
  if (outlook.steps_per_s) message->set_steps_per_s(*outlook.steps_per_s);
  message->set_known(outlook.known);
}

}  // namespace

Result<session::SwapRequest> swap_request(const v1::SwapRequest& message) {
  const auto refuse = [](std::string_view why) {
    return error(Code::kInvalidArgument, fmt::format("the swap {}", why));
  };
  if (message.job().empty() && !message.all_jobs())
    return refuse("names no job: set swap.job, or swap.all_jobs for all on the pipeline");
  if (!message.job().empty() && message.all_jobs())
    return refuse("names a job and asks for all: set either swap.job or swap.all_jobs");
  session::SwapRequest request;
  request.job = message.job();
  request.allow_schema_change = message.allow_schema_change();
  switch (message.at()) {
    case v1::SWAP_POINT_UNSPECIFIED:
    case v1::SWAP_POINT_NEXT_EPOCH: request.at.kind = session::SwapAt::Kind::kNextEpoch; break;
    case v1::SWAP_POINT_NOW: request.at.kind = session::SwapAt::Kind::kNow; break;
    case v1::SWAP_POINT_STEP: request.at.kind = session::SwapAt::Kind::kStep; break;
    default:
      return error(Code::kInvalidArgument,
                   fmt::format("the swap's point is {}, which is none", message.at()));
  }
  const bool absolute = request.at.kind == session::SwapAt::Kind::kStep;
  if (absolute && !message.has_step()) return refuse("is to be at a step: set swap.step");
  if (!absolute && message.has_step())
    return refuse("names a step: set swap.at to SWAP_POINT_STEP, or leave swap.step out");
  request.at.step = {message.step().epoch(), message.step().step()};
  return request;
}

void fill(v1::SwapResult* message, const session::SwapView& view) {
  fill(message->mutable_pipeline(), view.pipeline);
  for (const session::JobSwap& job : view.jobs) {
    v1::JobSwap* out = message->add_jobs();
    out->set_job(utf8(job.job));
    out->set_pipeline(utf8(job.pipeline));
    out->set_version(job.version);
    fill(out->mutable_from(), job.from);
    out->set_tuned(job.tuned);
    out->set_runs(job.runs);
    for (const job::PlannedChange& change : job.replaces) {
      v1::PlannedChange* replaced = out->add_replaces();
      replaced->set_version(change.version);
      fill(replaced->mutable_from(), change.from);
    }
    for (const session::Override& given : job.overrides) {
      v1::Override* override = out->add_overrides();
      override->set_name(utf8(given.name));
      override->set_own(utf8(given.own));
      override->set_given(utf8(given.given));
    }
    if (job.outlook) fill_in(out->mutable_outlook(), *job.outlook);
  }
  message->set_unchanged(view.unchanged);
  message->set_repeats(view.repeats);
}

}  // namespace spdld::control
