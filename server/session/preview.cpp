// SPDX-License-Identifier: Apache-2.0
#include "session/preview.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace spdld::session {

Result<PreviewView> make_preview(uid_t user, const PipelineVersion& pipeline, std::uint64_t rows,
                                 Trials& trials, const BatchProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  if (plan.image == nullptr)
    return error(Code::kFailedPrecondition,
                 "pipeline '" + plan.spec.name +
                     "' delivers encoded bytes: add a decode stage to see pictures");
  rows = std::clamp<std::uint64_t>(rows, 1, std::min(pipeline.source->size(), plan.layout.rows()));
  SPDLD_ASSIGN(const std::unique_ptr<std::byte[]> slot,
               trials.make_first(user, pipeline, rows, progress));

  PreviewView view;
  view.tensors = plan.tensors;
  view.classes = pipeline.source->classes();
  for (std::size_t field = 0; field < plan.tensors.size(); ++field) {
    const std::byte* first = slot.get() + plan.layout.fields()[field].offset;
    view.data.emplace_back(first, first + rows * plan.layout.row_bytes(field));
  }
  const wire::FieldLayout& index = plan.layout.fields()[plan.tensors.size()];
  view.indices.resize(rows);
  std::memcpy(view.indices.data(), slot.get() + index.offset, rows * sizeof(std::int64_t));
  for (const std::int64_t item : view.indices)
    view.uris.push_back(pipeline.source->read_uri(static_cast<std::uint64_t>(item)));
  return view;
}

}  // namespace spdld::session
