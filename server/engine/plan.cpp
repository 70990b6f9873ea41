// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>
#include <variant>

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
  for (const auto& [name, value] : stage.params.values())
    key += " " + name + "=" +
           std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
  return key;
}

// Walks the stages once, in order, and fits each op into the plan.
class Compiler {
 public:
  Compiler(spec::PipelineSpec spec, const Registry& registry, const std::vector<TensorSpec>& fields)
      : plan_(std::make_shared<Plan>()), registry_(registry), fields_(fields) {
    plan_->spec = std::move(spec);
  }

  Result<std::shared_ptr<const Plan>> run() {
    for (const spec::StageSpec& stage : plan_->spec.stages) SPDLD_TRY(add(stage));
    SPDLD_TRY(finish());
    return std::shared_ptr<const Plan>(std::move(plan_));
  }

 private:
  Status add(const spec::StageSpec& stage) {
    const OpInfo* info = registry_.find(stage.op);
    if (info == nullptr) return at(stage, "there is no op '" + stage.op + "'");
    auto made = info->make(stage.params);
    if (!made) return made.error().with_context(stage.where.text() + ": " + stage.op);
    const Op* op = plan_->ops.emplace_back(std::move(made).value()).get();

    if (dynamic_cast<const FetchOp*>(op) != nullptr) return add_fetch(stage);
    if (plan_->fetch.name.empty())
      return at(stage, "the first stage must be 'fetch', which brings the bytes that '" + stage.op +
                           "' works on");
    name_process(stage);
    if (const auto* decode = dynamic_cast<const DecodeImageOp*>(op))
      return add_decode(stage, decode);
    if (!plan_->image)
      return at(stage, "'" + stage.op + "' works on decoded images: put 'decode_image' before it");
    if (const auto* geometry = dynamic_cast<const GeometryOp*>(op))
      return add_geometry(stage, geometry);
    if (const auto* pixel = dynamic_cast<const PixelOp*>(op)) {
      formatted_by_ = stage.op;
      if (const std::string doubt = pixel->doubt(plan_->image->format); !doubt.empty())
        plan_->doubts.push_back(stage.where.text() + ": " + doubt);
      return pixel->append_to(plan_->image->format, plan_->image->decode->channels())
          .with_context(stage.where.text());
    }
    return at(stage, "'" + stage.op + "' is of a kind that this engine does not run");
  }

  Status add_fetch(const spec::StageSpec& stage) {
    if (!plan_->fetch.name.empty()) return at(stage, "'fetch' stands twice");
    constexpr int kDefaultReads = 16;
    plan_->fetch = {.name = stage.op, .concurrency = stage.concurrency.value_or(kDefaultReads)};
    return {};
  }

  Status add_decode(const spec::StageSpec& stage, const DecodeImageOp* decode) {
    if (plan_->image) return at(stage, "the image is decoded already by an earlier stage");
    const std::string& bytes = fields_.front().name;
    if (decode->fields().front() != bytes)
      return at(stage, "'" + stage.op + "' decodes the field '" + decode->fields().front() +
                           "', and the source gives '" + bytes + "': leave out source.files.field");
    plan_->image.emplace();
    plan_->image->decode = decode;
    plan_->image->decode_key = key_of(stage);
    plan_->image->layout = plan_->spec.batch.layout;
    return {};
  }

  Status add_geometry(const spec::StageSpec& stage, const GeometryOp* op) {
    if (!formatted_by_.empty())
      return at(stage, "'" + stage.op + "' must come before '" + formatted_by_ +
                           "': the pixels are converted as they are written into the batch, last");
    const std::uint64_t occurrence = occurrences_[stage.op]++;
    plan_->image->geometry.push_back({op, mix64(name_key(stage.op), occurrence)});
    size_ = op->output_size(size_);
    return {};
  }

  void name_process(const spec::StageSpec& stage) {
    StagePlan& process = plan_->process;
    process.name += process.name.empty() ? stage.op : " + " + stage.op;
    if (!stage.concurrency) return;
    // Fused ops are one task: the tightest bound holds for all of them.
    if (process.concurrency == 0 || *stage.concurrency < process.concurrency)
      process.concurrency = *stage.concurrency;
  }

  Status finish() {
    if (plan_->fetch.name.empty())
      return Status(
          Code::kInvalidArgument,
          "pipeline '" + plan_->spec.name + "' has no 'fetch' stage: add '- fetch' as the first");
    const auto& cache = plan_->spec.cache;
    if (cache && cache->form == spec::CacheSpec::Form::kDecoded && !plan_->image)
      return Status(Code::kInvalidArgument,
                    cache->location.text() +
                        ": cache: nothing is decoded here: write 'form: encoded', or add a "
                        "'decode_image' stage");
    plan_->tensors = fields_;
    if (plan_->image) {
      ImageTask& image = *plan_->image;
      if (!size_)
        return Status(
            Code::kInvalidArgument,
            "pipeline '" + plan_->spec.name + "': the images that come out of '" +
                plan_->process.name +
                "' differ in size, and a batch needs one: add a resize to [height, width], "
                "a center_crop or a random_resized_crop");
      image.output = *size_;
      const std::int64_t height = size_->height;
      const std::int64_t width = size_->width;
      const std::int64_t channels = image.decode->channels();
      TensorSpec& tensor = plan_->tensors.front();
      tensor.kind = FieldKind::kDense;
      tensor.dtype = image.format.dtype;
      tensor.shape = image.layout == Layout::kNCHW
                         ? std::vector<std::int64_t>{channels, height, width}
                         : std::vector<std::int64_t>{height, width, channels};
    } else {
      plan_->process.name = "pack";
    }
    SPDLD_ASSIGN(
        plan_->layout,
        BatchLayout::make(plan_->tensors, static_cast<std::uint64_t>(plan_->spec.batch.size),
                          plan_->spec.batch.max_bytes));
    return {};
  }

  std::shared_ptr<Plan> plan_;
  const Registry& registry_;
  const std::vector<TensorSpec>& fields_;
  std::map<std::string, std::uint64_t> occurrences_;
  std::optional<Size> size_;
  std::string formatted_by_;  // the op that converts the pixels
};

}  // namespace

std::uint32_t Plan::slots_for(std::uint32_t credits) const { return credits + kFillingSlots; }

Result<std::shared_ptr<const Plan>> compile(spec::PipelineSpec spec, const Registry& registry,
                                            const std::vector<TensorSpec>& fields) {
  return Compiler(std::move(spec), registry, fields).run();
}

}  // namespace spdld::engine
