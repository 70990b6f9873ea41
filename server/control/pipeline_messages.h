// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "session/views.h"
#include "spdld/v1/control.pb.h"

// Pipelines as session/ has them, as messages and back: a text that is applied, a version, its
// tensors, a preview. Whatever a message does not bound by its type is checked here, before the
// session layer sees it. Any thread.
namespace spdld::control {

inline constexpr std::uint32_t kMaxPreviewRows = 1024;

Result<session::ApplyRequest> apply_request(const v1::PipelineText& text, bool dry_run);

void fill(v1::Tensor* message, const TensorSpec& spec);
void fill(v1::Pipeline* message, const session::PipelineView& view);
void fill(v1::Revision* message, const session::RevisionView& view);
void fill(v1::PreviewHeader* message, const session::PreviewView& view);

}  // namespace spdld::control
