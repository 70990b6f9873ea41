// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/plan/collate.h"
#include "engine/plan/video_task.h"
#include "media/audio/audio_task.h"
#include "op/call_op.h"

namespace spdld::engine {
namespace {

// Batches that are being filled while the consumer holds all it may hold: the one whose last rows
// are still worked on and the next, which the other workers have begun.
constexpr std::uint32_t kFillingSlots = 2;

Status at(const spec::StageSpec& stage, std::string message) {
  return Status(Code::kInvalidArgument, stage.where.text() + ": " + std::move(message));
}

std::string key_of(const spec::StageSpec& stage) {
  std::string key = stage.op;
  for (const auto& [name, value] : stage.params.values()) {
    if (name == "field" || name == "fields") continue;  // whichever it is, it comes to the same
    key += " " + name + "=" +
           std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
  }
  return key;
}

std::vector<Field> fields_of(const std::vector<source::SourceField>& fields) {
  std::vector<Field> all;
  for (const source::SourceField& field : fields) {
    const bool part = field.kind == source::SourceField::Kind::kPart;
    all.push_back({.name = field.name,
                   .kind = part ? Field::Kind::kPart : Field::Kind::kValue,
                   .index = field.index,
                   .type = field.type,
                   .text = field.text,
                   .max_bytes = field.max_bytes,
                   .clip = field.clip,
                   .optional = field.optional,
                   .presence = field.presence});
  }
  return all;
}

source::ClassNames class_names(const std::vector<source::SourceField>& fields,
                               const std::vector<std::string>& classes) {
  source::ClassNames names{.names = classes};
  for (const source::SourceField& field : fields) {
    if (field.classes) names.columns.push_back(field.name);
  }
  return names;
}

bool has(const FieldTask& task, const GeometryStep& step) {
  const auto steps = task.steps();
  return std::any_of(steps.begin(), steps.end(),
                     [&](const GeometryStep& other) { return step.op == other.op; });
}

bool share_draws(const FieldTask& a, const FieldTask& b) {
  const auto steps = a.steps();
  return std::any_of(steps.begin(), steps.end(),
                     [&](const GeometryStep& step) { return has(b, step); });
}

// Whether what moves `a` moves `b`, too.
bool moves_with(const FieldTask& a, const FieldTask& b) {
  const auto steps = a.steps();
  return std::all_of(steps.begin(), steps.end(),
                     [&](const GeometryStep& step) { return has(b, step); });
}

// Walks the stages once, in order, and lets each op enter what it does into the table of fields.
class Compiler {
 public:
  Compiler(spec::PipelineSpec spec, const Registry& registry,
           const std::vector<source::SourceField>& fields, const SizesOfImages& sizes,
           const std::vector<std::string>& classes)
      : plan_(std::make_shared<Plan>()),
        registry_(registry),
        sizes_(sizes),
        classes_(class_names(fields, classes)),
        table_(
            fields_of(fields),
            [this](const DecodeImageOp& op, std::size_t request, const std::string& decode_key) {
              return std::make_unique<ImageChain>(
                  op, request, decode_key, plan_->spec.batch.layout,
                  [this, request, &op](const std::string& field) {
                    if (request >= SampleInput::kFirstArray || !may_stack(field))
                      return PictureSizes{};
                    return sizes_(field, table_.requested_parts()[request], op);
                  });
            },
            [](const DecodeVideoOp& op, std::size_t request, const ClipShape& clip) {
              return std::make_unique<VideoChain>(op, request, clip);
            },
            [this](const Field& array) -> std::unique_ptr<FieldChain> {
              if (array.sample_rate > 0) return media::chain_of_samples(array);
              return chain_of_pixels(array, plan_->spec.batch.layout);
            }) {
    plan_->spec = std::move(spec);
  }

  Result<std::shared_ptr<const Plan>> run() {
    SPDLD_TRY(add_presences());
    SPDLD_TRY(add_repetition());
    for (const spec::StageSpec& stage : plan_->spec.stages) SPDLD_TRY(add(stage));
    SPDLD_TRY(finish());
    return std::shared_ptr<const Plan>(std::move(plan_));
  }

 private:
  // Whether anything is known of the sizes of its images, and they are stacked if they have one.
  bool may_stack(const std::string& field) const {
    const auto given = plan_->spec.batch.collate.find(field);
    return sizes_ && (given == plan_->spec.batch.collate.end() ||
                      given->second.kind == spec::CollateSpec::Kind::kStack);
  }

  // Whether a row has an optional part that no listing tells of is a value of the row.
  Status add_presences() {
    std::vector<Field*> parts;
    for (Field& field : table_.fields()) {
      if (field.kind == Field::Kind::kPart && field.optional && !field.presence)
        parts.push_back(&field);
    }
    for (Field* const part : parts) {
      SPDLD_ASSIGN(Field* const made,
                   table_.make_value(part->name + "_present", ValueType::kBool, *part, "optional"));
      made->optional = false;
      presences_.emplace_back(part->index, made->index);
    }
    return {};
  }

  // Behind the source's fields.
  Status add_repetition() {
    const spec::PipelineSpec& spec = plan_->spec;
    if (spec.shuffle.repeat.rows == 1) return {};
    if (table_.find(kRepetition) != nullptr)
      return {Code::kInvalidArgument,
              spec.repeat_where.text() + ": repeat: the source has a field '" + kRepetition +
                  "' already, which is what 'repeat' calls the number of a row among those of its "
                  "item: call the source's something else"};
    SPDLD_ASSIGN(Field* const made, table_.make_value(kRepetition, ValueType::kInt64,
                                                      table_.fields().back(), "repeat"));
    made->optional = false;
    plan_->repetition_value = made->index;
    return {};
  }

  Status add(const spec::StageSpec& stage) {
    const OpInfo* info = registry_.find(stage.op);
    if (info == nullptr) return at(stage, "there is no op '" + stage.op + "'");
    auto made = info->make(stage.params);
    if (!made) return made.error().with_context(stage.where.text() + ": " + stage.op);
    const Op& op = *plan_->ops.emplace_back(std::move(made).value());
    if (stage.op == kFetch) return add_fetch(stage);
    if (const auto* const call = dynamic_cast<const CallOp*>(&op)) {
      if (plan_->fetch.name.empty()) return at(stage, "the first stage must be 'fetch'");
      CallSpec spec = call->call();
      spec.concurrency = stage.concurrency.value_or(0);
      return add_call(
          stage, std::move(spec),
          {.replaces = call->replaces_rejected(), .place = stage.where.text(), .stage = stage.op});
    }
    if (plan_->fetch.name.empty())
      return at(stage, "the first stage must be 'fetch', which brings the bytes that '" + stage.op +
                           "' works on");
    name_process(stage);
    if (const auto* const filter = dynamic_cast<const FilterOp*>(&op))
      return add_filter(stage, *filter);
    const std::uint64_t occurrence = occurrences_[stage.op]++;
    const StageKey key{
        .name = stage.op, .text = key_of(stage), .draw_key = mix64(name_key(stage.op), occurrence)};
    std::string doubt;
    SPDLD_TRY(op.plan(table_, key, doubt).with_context(stage.where.text()));
    if (!doubt.empty()) plan_->doubts.push_back(stage.where.text() + ": " + doubt);
    return {};
  }

  Status add_fetch(const spec::StageSpec& stage) {
    if (!plan_->fetch.name.empty()) return at(stage, "'fetch' stands twice");
    constexpr int kDefaultReads = 16;
    plan_->fetch = {.name = stage.op, .concurrency = stage.concurrency.value_or(kDefaultReads)};
    const auto* const dataset = std::get_if<DatasetSpec>(&plan_->spec.source.items);
    return dataset == nullptr ? Status() : add_dataset(stage, *dataset);
  }

  // The call that brings items of a dataset: what else is known of them is the listing's alone.
  Status add_dataset(const spec::StageSpec& stage, const DatasetSpec& dataset) {
    const auto is_argument = [&](const Field& field) {
      return std::any_of(dataset.call.in.begin(), dataset.call.in.end(),
                         [&](const CallField& argument) { return argument.name == field.name; });
    };
    table_.fields().remove_if([&](const Field& field) {
      return field.index < table_.first_made_value() && !is_argument(field);
    });
    return add_call(stage, dataset.call,
                    {.replaces = dataset.replaces_rejected,
                     .place = stage.where.text(),
                     .stage = "source.python"});
  }

  // Makes the fields that the function is given, and enters those that it gives back.
  Status add_call(const spec::StageSpec& stage, CallSpec spec, Rejection rejection) {
    PlannedCall call{.rejection = std::move(rejection), .where = stage.where};
    SPDLD_ASSIGN(std::vector<Field> taken, with_place(stage, table_.take(spec.in)));
    std::vector<CallField> arguments;
    for (Field& field : taken) {
      SPDLD_ASSIGN(const CallField argument, with_place(stage, add_argument(field, call)));
      arguments.push_back(argument);
    }
    spec.in = std::move(arguments);
    call.first_array = plan_->arrays.size();
    for (const CallField& given : spec.out) {
      const TensorSpec tensor = tensor_of_answer(given);
      SPDLD_TRY(table_.give(tensor, plan_->arrays.size(), given.sample_rate)
                    .with_context(stage.where.text()));
      plan_->arrays.push_back(tensor);
    }
    call.spec = std::move(spec);
    plan_->calls.push_back(std::move(call));
    return {};
  }

  template <typename T>
  static Result<T> with_place(const spec::StageSpec& stage, Result<T> result) {
    if (result) return result;
    return tl::unexpected<Status>(std::move(result).error().with_context(stage.where.text()));
  }

  Result<CallField> add_argument(Field& field, PlannedCall& call) {
    using From = PlannedCall::Argument::From;
    const auto request = field.optional ? field.request : std::nullopt;
    const auto presence = field.optional ? field.presence : std::nullopt;
    switch (field.kind) {
      case Field::Kind::kPart: {
        SPDLD_ASSIGN(const CallField argument, argument_of(field));
        const std::size_t part = table_.request(field);
        call.arguments.push_back({.from = From::kPart, .index = part});
        if (field.optional) call.arguments.back().request = part;
        return argument;
      }
      case Field::Kind::kValue:
        call.arguments.push_back(
            {.from = From::kValue, .index = field.index, .request = request, .presence = presence});
        return argument_of(field);
      case Field::Kind::kArray:
        call.arguments.push_back({.from = From::kArray, .index = field.index});
        return argument_of(plan_->arrays[field.index]);
      case Field::Kind::kDecoded: break;
    }
    if (field.chain == nullptr)
      return error(Code::kInvalidArgument,
                   "'python': in: '" + field.name +
                       "' is made together with another field, and cannot be given to a function");
    field.chain->interleave();
    const std::size_t array = plan_->arrays.size();
    SPDLD_ASSIGN(std::unique_ptr<FieldTask> task, finish_task(field, 0, array));
    if (task->tensors().size() != 1)
      return error(Code::kInvalidArgument, "'python': in: '" + field.name +
                                               "' makes several fields: name one of one array");
    call.arguments.push_back(
        {.from = From::kArray, .index = array, .request = request, .presence = presence});
    plan_->arrays.push_back(task->tensors().front());
    TensorSpec& tensor = plan_->arrays.back();
    tensor.max_row_bytes = kMostArrayBytes;
    tensor.bound_name = "nothing: make it smaller before it is given to 'python'";
    plan_->tasks.push_back(std::move(task));
    CallField argument = argument_of(tensor);
    argument.optional = request || presence;
    return argument;
  }

  // The task that makes a decoded field: its first tensor is `tensor` of the batch's, or `array`.
  Result<std::unique_ptr<FieldTask>> finish_task(Field& field, std::size_t tensor,
                                                 std::optional<std::size_t> array) {
    SPDLD_ASSIGN(std::unique_ptr<FieldTask> task, field.chain->finish(field.name));
    plan_->task_tensors.push_back(tensor);
    plan_->task_arrays.push_back(array);
    plan_->task_ops.push_back(fmt::format("{}", fmt::join(field.ops, kOpsJoin)));
    const bool may_lack = field.optional || is_array(field.request);
    plan_->task_parts.push_back(may_lack ? field.request : std::nullopt);
    task_requests_.push_back(field.request);
    return task;
  }

  // Whether it is bytes that a call gives back.
  static bool is_array(const std::optional<std::size_t>& request) {
    return request && *request >= SampleInput::kFirstArray;
  }

  Status add_filter(const spec::StageSpec& stage, const FilterOp& op) {
    auto filter = op.compile(table_, classes_);
    if (!filter) return filter.error().with_context(stage.where.text() + ": " + stage.op);
    filter->rejection.place = stage.where.text();
    plan_->filters.push_back(*std::move(filter));
    return {};
  }

  void name_process(const spec::StageSpec& stage) {
    StagePlan& process = plan_->process;
    if (!process.name.empty()) process.name += kOpsJoin;
    process.name += stage.op;
    if (!stage.concurrency) return;
    // The ops of one row are run one after the other: the tightest bound holds for all of them.
    if (process.concurrency == 0 || *stage.concurrency < process.concurrency)
      process.concurrency = *stage.concurrency;
  }

  Status finish() {
    const auto& spec = plan_->spec;
    if (plan_->fetch.name.empty())
      return Status(
          Code::kInvalidArgument,
          "pipeline '" + spec.name + "' has no 'fetch' stage: add '- fetch' as the first");
    for (Field& field : table_.fields()) SPDLD_TRY(add_tensors(field));
    SPDLD_TRY(find_calls_before());
    SPDLD_TRY(find_canvases());
    doubt_boxes();
    order_tasks();
    plan_->first_made_value = table_.first_made_value();
    for (const ValueType type : table_.made_values()) plan_->made_values.push_back(no_value(type));
    const std::vector<std::size_t>& requested = table_.requested_parts();
    for (const std::size_t part : requested) plan_->requests.push_back({.part = part});
    for (const auto& [part, value] : presences_) {
      const auto found = std::find(requested.begin(), requested.end(), part);
      SPDLD_CHECK(found != requested.end());
      plan_->presences.push_back(
          {.request = static_cast<std::size_t>(found - requested.begin()), .value = value});
    }
    const auto& cache = spec.cache;
    if (cache && plan_->requests.empty())
      return Status(Code::kInvalidArgument,
                    cache->location.text() +
                        ": cache: nothing is read here, as items come from a dataset of your own: "
                        "leave 'cache' out, and have the dataset keep what is dear");
    if (cache && cache->form != spec::CacheSpec::Form::kEncoded && plan_->image == nullptr)
      return Status(Code::kInvalidArgument, cache->location.text() + ": cache: " + uncached_text());
    if (plan_->process.name.empty()) plan_->process.name = "pack";
    SPDLD_TRY(collate(spec, plan_->tensors, plan_->sources, plan_->process.name));
    bound_arrays();
    SPDLD_ASSIGN(plan_->layout,
                 BatchLayout::make(plan_->tensors, static_cast<std::uint64_t>(spec.batch.size)));
    return {};
  }

  // What a call gives back may take as much as the batch has room for.
  void bound_arrays() {
    for (PlannedCall& call : plan_->calls) {
      for (std::size_t i = 0; i < call.spec.out.size(); ++i) {
        TensorSpec& array = plan_->arrays[call.first_array + i];
        array.max_row_bytes = kMostArrayBytes;
        if (call.spec.is_dataset) continue;  // its processes serve other batches, too
        for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
          const TensorSource& source = plan_->sources[t];
          const bool is_it =
              source.kind == TensorSource::Kind::kArray && source.index == call.first_array + i;
          if (is_it && plan_->tensors[t].kind != FieldKind::kDense)
            array.max_row_bytes = plan_->tensors[t].max_row_bytes;
        }
        call.spec.out[i].max_bytes = array.max_row_bytes;
      }
    }
  }

  // Why there is nothing to keep in a cache of what is decoded, and the way out.
  std::string uncached_text() const {
    for (const Field& field : table_.fields()) {
      if (field.kind == Field::Kind::kDecoded && field.chain != nullptr)
        return "decoded images can be kept, and '" + field.name + "' is " +
               std::string(field.chain->noun()) +
               ": write 'form: encoded', which keeps the bytes as they were fetched";
    }
    return "nothing is decoded here: write 'form: encoded', or add a 'decode_image' stage";
  }

  Status add_tensors(Field& field) {
    using Kind = TensorSource::Kind;
    if (field.kind == Field::Kind::kDecoded) {
      if (field.chain == nullptr) return {};  // among another's tensors
      SPDLD_ASSIGN(auto task, finish_task(field, plan_->tensors.size(), std::nullopt));
      for (const TensorSpec& tensor : task->tensors())
        add_tensor(tensor, {.kind = Kind::kTask, .index = plan_->tasks.size()});
      plan_->tasks.push_back(std::move(task));
      return {};
    }
    if (field.kind == Field::Kind::kArray) {
      add_tensor(field.tensor, {.kind = Kind::kArray, .index = field.index});
      return {};
    }
    if (field.kind == Field::Kind::kPart && field.clip) return undecoded(field);
    if (field.kind == Field::Kind::kPart) {
      add_tensor({.name = field.name,
                  .kind = FieldKind::kBytes,
                  .text = field.text,
                  .max_row_bytes = field.max_bytes.value_or(0)},
                 {.kind = Kind::kPart, .index = table_.request(field)});
      return {};
    }
    add_tensor(tensor_of(field), {.kind = Kind::kValue,
                                  .index = field.index,
                                  .request = field.optional ? field.request : std::nullopt,
                                  .presence = field.optional ? field.presence : std::nullopt});
    return {};
  }

  // Packets of a stream are of no use without what a decoder must be told of it.
  Status undecoded(const Field& field) const {
    const bool is_video = field.clip->kind == StreamInfo::Kind::kVideo;
    const std::string kind = is_video ? "video" : "audio";
    return {Code::kInvalidArgument,
            "pipeline '" + plan_->spec.name + "': the field '" + field.name +
                "' is clips of encoded " + (is_video ? "video" : "sound") + ": put 'decode_" +
                kind + (field.name == kind ? "" : ": {field: " + field.name + "}") +
                "' after 'fetch'"};
  }

  TensorSpec tensor_of(const Field& field) const {
    TensorSpec tensor{.name = field.name, .max_row_bytes = field.max_bytes.value_or(0)};
    switch (field.type) {
      case ValueType::kInt64: tensor.dtype = DType::kInt64; break;
      case ValueType::kFloat64: tensor.dtype = DType::kFloat64; break;
      case ValueType::kBool: tensor.dtype = DType::kBool; break;
      case ValueType::kText:
        tensor.kind = FieldKind::kBytes;
        tensor.text = true;
        break;
      case ValueType::kInt64List:
      case ValueType::kFloat64List:
        tensor.kind = FieldKind::kRagged;
        tensor.dtype = field.type == ValueType::kInt64List ? DType::kInt64 : DType::kFloat64;
        tensor.shape = {-1};
        tensor.is_loose = field.index >= table_.first_made_value();
        break;
    }
    return tensor;
  }

  void add_tensor(TensorSpec tensor, TensorSource source) {
    plan_->tensors.push_back(std::move(tensor));
    plan_->sources.push_back(source);
  }

  // What is named as boxes are, and is delivered as it stands beside an image that is moved.
  void doubt_boxes() {
    constexpr std::array<std::string_view, 4> kNames{"boxes", "bboxes", "box", "bbox"};
    if (plan_->image == nullptr || plan_->image->steps().empty()) return;
    for (const Field& field : table_.fields()) {
      const bool is_list =
          field.kind == Field::Kind::kValue &&
          (field.type == ValueType::kFloat64List || field.type == ValueType::kInt64List);
      if (!is_list || std::find(kNames.begin(), kNames.end(), field.name) == kNames.end()) continue;
      plan_->doubts.push_back("pipeline '" + plan_->spec.name + "': '" + field.name +
                              "' stays in the pixels of the stored image, which stages move: if "
                              "these are boxes, add 'bounding_boxes: {field: " +
                              field.name + "}' behind 'decode_image'");
    }
  }

  // A task waits for the call that gives it its array, and for those that tasks wait for with which
  // it shares draws: what these move must be of one size.
  Status find_calls_before() {
    const auto& tasks = plan_->tasks;
    std::vector<std::size_t>& calls = plan_->task_calls;
    for (const auto& [array, value] : table_.array_values())
      plan_->array_values.push_back({.array = array, .value = value, .calls = calls_before(array)});
    for (const auto& task : tasks) {
      const auto& request = task_requests_[calls.size()];
      calls.push_back(task->array()       ? calls_before(*task->array())
                      : is_array(request) ? calls_before(*request - SampleInput::kFirstArray)
                                          : 0);
      for (const std::size_t value : task->values()) {
        for (const Plan::ArrayValue& from : plan_->array_values) {
          if (from.value == value) calls.back() = std::max(calls.back(), from.calls);
        }
      }
    }
    for (bool waits_more = !plan_->calls.empty(); waits_more;) {
      waits_more = false;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        for (std::size_t j = 0; j < tasks.size(); ++j) {
          if (calls[i] >= calls[j] || !share_draws(*tasks[i], *tasks[j])) continue;
          if (!has(*tasks[j], tasks[i]->steps().front())) return moved_before(i, j);
          calls[i] = calls[j];
          waits_more = true;
        }
      }
    }
    return {};
  }

  // How many calls have come back when the array is there.
  std::size_t calls_before(std::size_t array) const {
    std::size_t calls = 0;
    while (calls < plan_->calls.size() && plan_->calls[calls].first_array <= array) ++calls;
    return calls;
  }

  Status moved_before(std::size_t task, std::size_t behind) const {
    const std::string name = name_of(*plan_->tasks[task]);
    return {Code::kInvalidArgument,
            plan_->calls[plan_->task_calls[behind] - 1].where.text() + ": one stage moves '" +
                name + "' and '" + name_of(*plan_->tasks[behind]) +
                "', which 'python' gives back, and a stage before that has moved '" + name +
                "' already: give '" + name +
                "' to the function, too, or put these stages on one side of it"};
  }

  static const std::string& name_of(const FieldTask& task) { return task.tensors().front().name; }

  // Of those that are run after equally many calls, the first image that is no mask, or else the
  // first mask, is the canvas; those that share draws with it must be as large.
  Status find_canvases() {
    plan_->canvases.resize(plan_->calls.size() + 1);
    std::vector<ImageTask*> images;
    const auto find = [&](bool is_index) {
      for (std::size_t i = 0; i < plan_->tasks.size(); ++i) {
        auto* const image = dynamic_cast<ImageTask*>(plan_->tasks[i].get());
        if (image == nullptr || image->stored.is_index != is_index) continue;
        const ImageTask*& canvas = plan_->canvases[plan_->task_calls[i]];
        if (canvas == nullptr) {
          canvas = image;
          image->is_canvas = true;
        }
        if (plan_->image == nullptr && image->decode != nullptr && !is_array(image->request))
          plan_->image = image;
      }
    };
    find(false);
    find(true);
    for (const auto& task : plan_->tasks) {
      if (auto* const image = dynamic_cast<ImageTask*>(task.get())) images.push_back(image);
    }
    if (!images.empty()) SPDLD_TRY(find_leaders(images));
    SPDLD_TRY(check_videos());
    // Other images may have stages of their own: they have their own pixels.
    for (std::size_t i = 0; i < plan_->tasks.size(); ++i) {
      if (lies_in_canvas(*plan_->tasks[i])) SPDLD_TRY(check_canvas(i));
    }
    return {};
  }

  // Images that share draws must be as large as the first of them: the canvas, if it is one.
  Status find_leaders(std::vector<ImageTask*> images) {
    if (images.size() > SampleInput::kMostImages)
      return {Code::kInvalidArgument, "pipeline '" + plan_->spec.name + "' decodes " +
                                          std::to_string(images.size()) +
                                          " images of a sample, and may decode " +
                                          std::to_string(SampleInput::kMostImages)};
    std::stable_partition(images.begin(), images.end(),
                          [](const ImageTask* image) { return image->is_canvas; });
    for (std::size_t i = 0; i < images.size(); ++i) {
      images[i]->leader = i;
      for (std::size_t j = 0; j < i; ++j) {
        if (!share_draws(*images[i], *images[j])) continue;
        images[i]->leader = images[j]->leader;
        break;
      }
      images[i]->follows = images[i]->leader != i;
      const ImageTask& leader = *images[images[i]->leader];
      if (!moves_with(*images[i], leader) || !moves_with(leader, *images[i]))
        plan_->doubts.push_back(
            "pipeline '" + plan_->spec.name + "': '" + images[i]->tensors().front().name +
            "' and '" + leader.tensors().front().name +
            "' share draws, and a stage moves one of them alone, so that they may no longer lie "
            "on each other: name both under its 'fields', or none");
    }
    return {};
  }

  // A draw that moves a video goes by the size of its frames, and of no other field.
  Status check_videos() const {
    for (const auto& video : plan_->tasks) {
      if (dynamic_cast<const VideoTask*>(video.get()) == nullptr) continue;
      for (const auto& other : plan_->tasks) {
        if (dynamic_cast<const VideoTask*>(other.get()) != nullptr || !share_draws(*video, *other))
          continue;
        return {Code::kInvalidArgument,
                "pipeline '" + plan_->spec.name + "': one stage moves the video '" +
                    video->tensors().front().name + "' and '" + other->tensors().front().name +
                    "', which lies in no video: give each stages of its "
                    "own, with its name under 'fields'"};
      }
    }
    return {};
  }

  // What lies in the first image is moved as that is, or stays in the pixels that it had. It waits
  // for the calls that the image waits for.
  Status check_canvas(std::size_t number) {
    const FieldTask& task = *plan_->tasks[number];
    std::size_t& calls = plan_->task_calls[number];
    const std::string in = "pipeline '" + plan_->spec.name + "': '" + name_of(task) +
                           "' lies in the pixels of an image, ";
    const auto first = plan_->canvases.begin() + static_cast<std::ptrdiff_t>(calls);
    const auto found = std::find_if(first, plan_->canvases.end(),
                                    [](const ImageTask* canvas) { return canvas != nullptr; });
    if (found == plan_->canvases.end())
      return {Code::kInvalidArgument,
              in + (calls == 0 ? "and none is decoded: add a 'decode_image' stage (frames of a "
                                 "video have no boxes)"
                               : "and comes back from 'python', which that does not: give the "
                                 "image to the function, too")};
    calls = static_cast<std::size_t>(found - plan_->canvases.begin());
    const ImageTask& canvas = **found;
    const std::string image = name_of(canvas);
    if (!moves_with(task, canvas))
      return {Code::kInvalidArgument, in + "'" + image +
                                          "', and one of its stages does not move that: name both "
                                          "under 'fields', or none"};
    if (!moves_with(canvas, task))
      plan_->doubts.push_back(in + "'" + image +
                              "', and stages that move that leave it where it was: name both under "
                              "'fields', or none");
    return {};
  }

  void order_tasks() {
    std::vector<std::size_t> order(plan_->tasks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto after = std::stable_partition(order.begin(), order.end(), [&](std::size_t i) {
      return !plan_->filters.empty() && plan_->tasks[i]->makes_values();
    });
    std::stable_partition(after, order.end(),
                          [&](std::size_t i) { return !plan_->tasks[i]->needs_canvas(); });
    plan_->tasks_before_filters = static_cast<std::size_t>(after - order.begin());
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return plan_->task_calls[a] < plan_->task_calls[b];
    });
    std::vector<std::unique_ptr<FieldTask>> tasks;
    std::vector<std::size_t> tensors;
    std::vector<std::string> ops;
    std::vector<std::optional<std::size_t>> arrays;
    std::vector<std::size_t> calls;
    std::vector<std::optional<std::size_t>> parts;
    for (std::size_t to = 0; to < order.size(); ++to) {
      tasks.push_back(std::move(plan_->tasks[order[to]]));
      tensors.push_back(plan_->task_tensors[order[to]]);
      ops.push_back(std::move(plan_->task_ops[order[to]]));
      arrays.push_back(plan_->task_arrays[order[to]]);
      calls.push_back(plan_->task_calls[order[to]]);
      parts.push_back(plan_->task_parts[order[to]]);
      if (arrays.back()) continue;
      for (std::size_t i = 0; i < tasks.back()->tensors().size(); ++i)
        plan_->sources[tensors.back() + i].index = to;
    }
    plan_->tasks = std::move(tasks);
    plan_->task_tensors = std::move(tensors);
    plan_->task_ops = std::move(ops);
    plan_->task_arrays = std::move(arrays);
    plan_->task_calls = std::move(calls);
    plan_->task_parts = std::move(parts);
  }

  static constexpr const char* kFetch = "fetch";
  static constexpr const char* kRepetition = "part";

  std::shared_ptr<Plan> plan_;
  const Registry& registry_;
  const SizesOfImages& sizes_;
  const source::ClassNames classes_;
  FieldTable table_;
  std::vector<std::pair<std::size_t, std::size_t>> presences_;  // of parts: a value of the row
  std::vector<std::optional<std::size_t>> task_requests_;       // Field::request of each task
  std::map<std::string, std::uint64_t> occurrences_;
};

}  // namespace

bool lies_in_canvas(const FieldTask& task) {
  return task.needs_canvas() && task.max_pixels() == 0 && !task.array();
}

bool Plan::packs() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorSpec& tensor) { return tensor.kind != FieldKind::kDense; });
}

std::size_t Plan::tasks_end(std::size_t calls_back) const {
  return static_cast<std::size_t>(
      std::upper_bound(task_calls.begin(), task_calls.end(), calls_back) - task_calls.begin());
}

Plan::KnownRow Plan::known_row() const {
  KnownRow row;
  std::uint64_t stacked = 0;
  std::uint64_t largest_task = 0;
  std::uint64_t most = 0;  // of a field
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::uint64_t own = 0;
    if (task_arrays[i]) continue;
    for (std::size_t t = task_tensors[i]; t < task_tensors[i] + tasks[i]->tensors().size(); ++t) {
      if (tensors[t].kind == FieldKind::kDense) own += layout.row_bytes(t);
    }
    const std::uint64_t beside = tasks[i]->known_bytes();
    stacked += own;
    largest_task = std::max(largest_task, beside);
    if (own + beside <= most) continue;
    most = own + beside;
    row.field = tensors[task_tensors[i]].name;
    row.ops = task_ops[i];
  }
  row.bytes = stacked + largest_task;
  return row;
}

std::uint32_t Plan::slots_for(std::uint32_t credits) const { return credits + kFillingSlots; }

// While a consumer holds all that it may, the next one is on its way.
std::uint32_t Plan::device_slots_for(std::uint32_t credits) const { return credits + 1; }

Result<std::shared_ptr<const Plan>> compile(spec::PipelineSpec spec, const Registry& registry,
                                            const std::vector<source::SourceField>& fields,
                                            const SizesOfImages& sizes,
                                            const std::vector<std::string>& classes) {
  return Compiler(std::move(spec), registry, fields, sizes, classes).run();
}

}  // namespace spdld::engine
