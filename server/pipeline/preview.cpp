// SPDX-License-Identifier: Apache-2.0
#include "pipeline/preview.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::pipeline {
namespace {

// Where the rows of a field lie that is not dense.
PreviewView::Packed packed_rows(const std::byte* slot, const wire::FieldLayout& field,
                                std::uint64_t rows) {
  PreviewView::Packed packed;
  if (field.kind == FieldKind::kDense) return packed;
  packed.begins.resize(rows + 1);
  std::memcpy(packed.begins.data(), slot + field.offsets_offset, (rows + 1) * sizeof(std::int64_t));
  for (std::uint64_t& begin : packed.begins) begin *= wire::dtype_bytes(field.dtype);
  if (field.shapes_offset == 0) return packed;
  packed.shapes.resize(rows * field.ndim);
  std::memcpy(packed.shapes.data(), slot + field.shapes_offset,
              packed.shapes.size() * sizeof(std::int64_t));
  return packed;
}

std::vector<std::string> made_by(const engine::Plan& plan) {
  using Calls = std::set<std::size_t>;
  std::vector<Calls> through(plan.arrays.size());  // by array
  const auto of_task = [&](std::size_t task) {
    const auto array = plan.tasks[task]->array();
    return array ? through[*array] : Calls();
  };
  std::size_t task = 0;
  for (std::size_t call = 0; call < plan.calls.size(); ++call) {
    for (; task < plan.tasks.size() && plan.task_calls[task] <= call; ++task)
      if (plan.task_arrays[task]) through[*plan.task_arrays[task]] = of_task(task);
    Calls calls{call};
    for (const engine::PlannedCall::Argument& argument : plan.calls[call].arguments)
      if (argument.from == engine::PlannedCall::Argument::From::kArray)
        calls.insert(through[argument.index].begin(), through[argument.index].end());
    for (std::size_t out = 0; out < plan.calls[call].spec.out.size(); ++out)
      through[plan.calls[call].first_array + out] = calls;
  }
  const auto text = [&](const Calls& calls, std::string_view ops) {
    std::string stages;
    for (const std::size_t call : calls)
      stages += (stages.empty() ? "python: " : " > python: ") + plan.calls[call].spec.call;
    if (!ops.empty()) stages.append(stages.empty() ? "" : " > ").append(ops);
    return stages;
  };
  using Kind = engine::TensorSource::Kind;
  std::vector<std::string> made;
  for (const engine::TensorSource& from : plan.sources) {
    made.push_back(from.kind == Kind::kTask ? text(of_task(from.index), plan.task_ops[from.index])
                   : from.kind == Kind::kArray  ? text(through[from.index], {})
                   : from.kind == Kind::kLength ? made.at(from.index)
                                                : std::string());
  }
  return made;
}

PreviewView view_of(const PipelineVersion& pipeline, const MadeBatch& made, std::uint64_t rows) {
  const engine::Plan& plan = *pipeline.plan;
  const std::byte* const slot = made.slot.get();
  PreviewView view;
  view.tensors = plan.tensors;
  view.classes = pipeline.source->classes();
  view.made_by = made_by(plan);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const wire::FieldLayout& field = plan.layout.fields()[i];
    view.packed.push_back(packed_rows(slot, field, rows));
    const std::uint64_t bytes = plan.tensors[i].kind == FieldKind::kDense
                                    ? rows * plan.layout.row_bytes(i)
                                    : view.packed.back().begins.back();
    const std::byte* const first = slot + field.offset;
    view.data.emplace_back(first, first + bytes);
  }
  const wire::FieldLayout& index = plan.layout.fields()[plan.tensors.size()];
  view.indices.resize(rows);
  std::memcpy(view.indices.data(), slot + index.offset, rows * sizeof(std::int64_t));
  for (const std::int64_t item : view.indices)
    view.uris.push_back(pipeline.source->read_uri(static_cast<std::uint64_t>(item)));
  const std::byte* const valid = slot + plan.layout.fields()[plan.tensors.size() + 1].offset;
  for (std::uint64_t row = 0; row < rows; ++row) view.valid.push_back(valid[row] != std::byte{0});
  return view;
}

}  // namespace

Result<PreviewView> make_preview(uid_t user, const PipelineVersion& pipeline, std::uint64_t rows,
                                 Trials& trials, const ListingProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  if (plan.tasks.empty() && plan.calls.empty())
    return error(Code::kFailedPrecondition,
                 "pipeline '" + plan.spec.name +
                     "' delivers encoded bytes: add a decode stage to see pictures");
  rows = std::clamp<std::uint64_t>(rows, 1, std::min(pipeline.rows(), plan.layout.rows()));
  SPDLD_ASSIGN(const MadeBatch made, trials.make_first(user, pipeline, rows, progress));
  return view_of(pipeline, made, rows);
}

Result<PreviewView> show_step(uid_t user, const PipelineVersion& pipeline, std::uint64_t seed,
                              job::StepAt at, const source::BatchRows& rows, Trials& trials,
                              const ListingProgress& progress) {
  SPDLD_ASSIGN(const MadeBatch made, trials.make_step(user, pipeline, seed, at, rows, progress));
  return view_of(pipeline, made, rows.rows);
}

}  // namespace spdld::pipeline
