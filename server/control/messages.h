// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "engine/plan/plan_facts.h"
#include "pipeline/preview_view.h"
#include "session/diagnosis.h"
#include "session/live_values.h"
#include "session/views.h"
#include "spdld/v1/control.pb.h"

// Messages made from the values of session/ and engine/, and requests read from messages. Whatever
// a message does not bound by its type is checked here, before the session layer sees it. Any
// thread.
namespace spdld::control {

inline constexpr std::size_t kMaxReasonBytes = 1024;
inline constexpr std::uint32_t kMaxPreviewRows = 1024;

Result<job::ApplyRequest> apply_request(const v1::PipelineText& text, bool dry_run);
Result<session::JobRequest> job_request(const v1::CreateJobRequest& message);
Result<session::SwapRequest> swap_request(const v1::SwapRequest& message);

// pipeline_messages.cpp, plan_messages.cpp
void fill(v1::Tensor* message, const TensorSpec& spec);
void fill(v1::Pipeline* message, const session::PipelineView& view);
void fill(v1::Revision* message, const session::RevisionView& view);
void fill(v1::PreviewHeader* message, const pipeline::PreviewView& view);
void fill(v1::Plan* message, const engine::PlanFacts& facts);

// job_messages.cpp, swap_messages.cpp, session_messages.cpp
void fill(v1::LiveValue* message, const session::LiveValue& value);
void fill(v1::StepAt* message, const job::StepAt& at);
void fill(v1::Job* message, const job::JobView& view);
void fill(v1::ShownStep* message, const session::StepView& view);
void fill(v1::Headspace* message, const session::HeadspaceView& view);
void fill(v1::Diagnosis* message, const session::DiagnosisView& view);
void fill(v1::SwapResult* message, const session::SwapView& view);
void fill(v1::Session* message, const session::SessionView& view);
void fill(v1::Stage* message, const job::StageView& view);
void fill(v1::Failure* message, const session::FailureView& view);

// daemon_messages.cpp
void fill(v1::JpegImages* message, const JpegImages& images);
void fill(v1::Drain* message, const session::DrainView& view);
void fill(v1::Daemon* message, const session::DaemonView& view);
void fill(v1::User* message, const session::UserView& view);

}  // namespace spdld::control
