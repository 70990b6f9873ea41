// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/plan/batch_layout.h"
#include "engine/plan/image_sizes.h"
#include "engine/plan/image_task.h"
#include "engine/plan/planned_call.h"
#include "engine/plan/row_filter.h"
#include "op/op.h"
#include "op/registry.h"
#include "op/value.h"
#include "source/item/source.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

// Between the names of ops that run as one.
inline constexpr std::string_view kOpsJoin = " + ";

// A stage as it runs, which may be several of the spec's.
struct StagePlan {
  std::string name;     // "decode_image + random_resized_crop + normalize"
  int concurrency = 0;  // tasks at once; 0: as many as there are workers
};

// Where a tensor of a batch comes from.
struct TensorSource {
  enum class Kind {
    kTask,    // made by tasks[index]
    kPart,    // the bytes of requests[index] as they are
    kValue,   // the value `index`, of the source or made
    kLength,  // how long the rows of tensors[index], which is padded, were before
    kArray,   // arrays[index], which a call has given back
  };
  Kind kind = Kind::kPart;
  std::size_t index = 0;
  // Of what rows need not have: the request whose bytes it comes from, or the value that tells
  // which rows have it. None: all rows have it.
  std::optional<std::size_t> request = {};
  std::optional<std::size_t> presence = {};
  // Of a padded tensor: what fills its rows up, and to a multiple of what.
  double pad_value = 0;
  std::int64_t multiple_of = 1;
};

// Whether what the task makes lies in the pixels of an image, as boxes do, and has none itself.
bool lies_in_canvas(const FieldTask& task);

// A pipeline compiled: what is fused into what, and what a batch looks like. The spec says what,
// the plan how. Immutable and shared by all runs; holds the ops that its steps point to.
struct Plan {
  spec::PipelineSpec spec;
  std::vector<std::unique_ptr<Op>> ops;

  // What is fetched of each item.
  std::vector<source::PartRequest> requests;
  // One for each decoded field, in the order in which a row's are run; task i makes the tensors
  // from task_tensors[i] on.
  std::vector<std::unique_ptr<FieldTask>> tasks;
  std::vector<std::size_t> task_tensors;
  std::vector<std::string> task_ops;  // of each task, joined by kOpsJoin
  // Of a task whose tensors a call is given: the first of them among `arrays`, and task_tensors
  // does not count.
  std::vector<std::optional<std::size_t>> task_arrays;
  // How many calls must have come back before each task is run; ascending.
  std::vector<std::size_t> task_calls;
  // Tasks before this one are run once so many calls have come back.
  std::size_t tasks_end(std::size_t calls_back) const;
  // The request of each task whose field rows need not have, as they lack the part or a call has
  // given them nothing; none: all rows have it.
  std::vector<std::optional<std::size_t>> task_parts;
  // Values of a row that are made are numbered from here on, behind the source's: what each is
  // where the row lacks what it is made of.
  std::size_t first_made_value = 0;
  std::vector<Value> made_values;
  // Made values that tell whether the row has the part of a request.
  struct Presence {
    std::size_t request = 0;
    std::size_t value = 0;
  };
  std::vector<Presence> presences;
  // What rows must fulfil. Where there is any, the first tasks are those that make values, and the
  // filters come before the others.
  std::vector<RowFilter> filters;
  std::size_t tasks_before_filters = 0;
  bool may_reject() const { return !filters.empty() || !calls.empty(); }
  // The made value that tells which of its item's rows this is; none: an item has one row.
  std::optional<std::size_t> repetition_value;
  // The first image among the tasks that is decoded, a mask only if there is no other, which is the
  // one that a cache of pixels keeps. Or null.
  const ImageTask* image = nullptr;
  // The canvas of the sample in what is run once so many calls have come back: the first image of
  // its tasks, likewise. Or null.
  std::vector<const ImageTask*> canvases;

  // Calls of the user's own functions, in the order in which a row comes to them; and the tensors
  // that lie beside the batch for them: what tasks make for a call, and what calls give back.
  std::vector<PlannedCall> calls;
  std::vector<TensorSpec> arrays;
  // Made values that are the numbers of an array, which is there once so many calls have come back.
  struct ArrayValue {
    std::size_t array = 0;
    std::size_t value = 0;
    std::size_t calls = 0;
  };
  std::vector<ArrayValue> array_values;

  // The fields of a batch in the source's order, those that ops add behind the one they come from.
  std::vector<TensorSpec> tensors;
  std::vector<TensorSource> sources;  // of each tensor
  BatchLayout layout;

  StagePlan fetch;
  StagePlan process;  // decode and transform, or packing of encoded bytes

  // What looks like a slip, with its place in the text, though it can be run.
  std::vector<std::string> doubts;

  // Memory that each row takes, as far as it is known before there are data: its stacked fields,
  // and what the one of its tasks that takes most has in hand beside them.
  struct KnownRow {
    std::uint64_t bytes = 0;
    // That takes most of it, and the stages that make it.
    std::string field = {};
    std::string ops = {};
  };
  KnownRow known_row() const;

  // Whether rows wait for their batch to be packed.
  bool packs() const;
  // Slots that a consumer needs: those it may hold, and those that are being filled meanwhile.
  std::uint32_t slots_for(std::uint32_t credits) const;
  // On a GPU, where batches are copied when they are finished.
  std::uint32_t device_slots_for(std::uint32_t credits) const;
};

// `fields` are the source's. An error names the stage with file:line:col, or the field. `sizes` is
// asked about images that stages leave as large as they are and that may be stacked; empty: nothing
// is known of them. `classes` are the source's, which conditions of filters may name.
Result<std::shared_ptr<const Plan>> compile(spec::PipelineSpec spec, const Registry& registry,
                                            const std::vector<source::SourceField>& fields,
                                            const SizesOfImages& sizes = {},
                                            const std::vector<std::string>& classes = {});

}  // namespace spdld::engine
