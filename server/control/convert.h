// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "session/views.h"
#include "spdld/v1/control.pb.h"

// The session layer's plain values as messages and back. Whatever a message does not bound by its
// type is checked here, before the session layer sees it.
namespace spdld::control {

inline constexpr std::uint32_t kMaxPreviewRows = 1024;
inline constexpr std::size_t kMaxReasonBytes = 1024;

Result<session::ApplyRequest> apply_request(const v1::PipelineText& text, bool dry_run);
Result<session::SwapRequest> swap_request(const v1::SwapRequest& message);
Result<session::JobRequest> job_request(const v1::CreateJobRequest& message);
Result<session::LimitChange> limit_change(const v1::LimitRequest& message);

void fill(v1::Progress* message, std::uint64_t done, std::uint64_t total, std::string_view what);
void fill(v1::Pipeline* message, const session::PipelineView& view);
void fill(v1::SwapResult* message, const session::SwapView& view);
void fill(v1::Revision* message, const session::RevisionView& view);
void fill(v1::Tensor* message, const TensorSpec& spec);
void fill(v1::Plan* message, const engine::PlanFacts& facts);
void fill(v1::PreviewHeader* message, const session::PreviewView& view);
void fill(v1::Job* message, const session::JobView& view);
void fill(v1::Session* message, const session::SessionView& view);
void fill(v1::DataPlane* message, const session::DataPlaneView& view);
void fill(v1::JpegIndex* message, const session::JpegView& view);
void fill(v1::SampleCache* message, const session::CacheView& view);
void fill(v1::Daemon* message, const session::DaemonView& view);
void fill(v1::Use* message, const session::Use& use);
void fill(v1::User* message, const session::UserView& view);
void fill(v1::Stage* message, const session::StageView& view);
void fill(v1::Failure* message, const session::FailureView& view);

}  // namespace spdld::control
