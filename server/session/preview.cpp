// SPDX-License-Identifier: Apache-2.0
#include "session/preview.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/run.h"

namespace spdld::session {

Result<PreviewView> make_preview(const PipelineVersion& pipeline, std::uint64_t rows,
                                 engine::Executor& executor, const Clock& clock,
                                 const BatchProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  if (!plan.image)
    return error(Code::kFailedPrecondition,
                 "pipeline '" + plan.spec.name +
                     "' delivers encoded bytes: add a decode stage to see pictures");
  const std::uint64_t items = pipeline.source->size();
  rows = std::clamp<std::uint64_t>(rows, 1, std::min(items, plan.layout.rows()));
  const std::uint64_t seed = plan.spec.seed;
  auto run = std::make_shared<engine::Run>(pipeline.plan, pipeline.source,
                                           source::Sampler(items, plan.spec.shuffle, seed), seed,
                                           executor.threads(), engine::RunLimits{}, clock);
  SPDLD_ASSIGN(
      const std::unique_ptr<std::byte[]> slot,
      make_one_batch(run, {}, {.first = 0, .rows = rows, .valid = rows}, executor, progress));

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
    view.uris.push_back(pipeline.source->uri(static_cast<std::uint64_t>(item)));
  return view;
}

}  // namespace spdld::session
