// SPDX-License-Identifier: Apache-2.0
#include "engine/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "delivery/memory_probe.h"
#include "op/call_op.h"
#include "source/file/io_pool.h"
#include "source/order/sharding.h"

namespace spdld::engine {
namespace {

using delivery::format_bytes;

std::string shape_text(const TensorSpec& tensor, std::uint64_t rows) {
  std::string text = fmt::format("[{}", rows);
  for (const std::int64_t extent : tensor.shape) text += fmt::format(", {}", extent);
  return text + "]";
}

// What the rows of a tensor are, and what they may take where they differ in size.
std::string rows_text(const TensorSpec& tensor, std::uint64_t rows) {
  if (tensor.kind == FieldKind::kDense)
    return fmt::format("{} {}", dtype_name(tensor.dtype), shape_text(tensor, rows));
  std::string text = tensor.text                        ? "text, one string a row"
                     : tensor.kind == FieldKind::kBytes ? "bytes, one string a row"
                                                        : "";
  if (text.empty()) {
    text = fmt::format("{} [{}", dtype_name(tensor.dtype), rows);
    for (const std::int64_t extent : tensor.shape)
      text += extent < 0 ? ", ?" : fmt::format(", {}", extent);
    text += tensor.padded ? "], padded to the longest of the batch" : "], each row as it is";
  }
  return text + fmt::format(", at most {} a row, {} together ({})",
                            format_bytes(tensor.max_row_bytes), format_bytes(tensor.max_bytes),
                            tensor.bound_name);
}

std::string order_text(const Shuffle& shuffle) {
  switch (shuffle.kind) {
    case Shuffle::Kind::kNone: return "as listed";
    case Shuffle::Kind::kGlobal:
      if (!shuffle.bucket) return "global shuffle, anew each epoch";
      return fmt::format(
          "global shuffle, anew each epoch, with runs of {} like '{}' in windows of {}",
          counted(shuffle.bucket->run, shuffle.repeat.group() > 0 ? "item" : "row"),
          shuffle.bucket->by, shuffle.bucket->window);
    case Shuffle::Kind::kBlock:
      return fmt::format("blocks of {} shuffled, {} interleaved", shuffle.block,
                         shuffle.interleave);
  }
  return "";
}

std::string gpu_text(const PlanFacts::OnGpu& gpu) {
  const char* const otherwise = gpu.or_host ? "where that cannot be, batches lie in main memory"
                                            : "a loader without one is refused";
  if (gpu.fields.empty())
    return "gpu      nothing: no field is larger than 64 KiB, and so all is in main memory\n";
  std::string text = fmt::format(
      "gpu      {} for each consumer, on its GPU: {} slots of {}, credits and one on its way; "
      "cuda.budget {}\n",
      format_bytes(gpu.bytes()), gpu.slots, format_bytes(gpu.slot_bytes),
      format_bytes(gpu.budget_bytes));
  text += fmt::format("         there: {}; in main memory beside it: the rest, {} a slot; {}\n",
                      fmt::join(gpu.fields, ", "), format_bytes(gpu.host_bytes), otherwise);
  text += "         the daemon's context takes about 0.5 GiB of each GPU that is delivered to\n";
  if (!gpu.fits())
    text += fmt::format(
        "         DOES NOT FIT: {} more are needed; raise cuda.budget, or lower batch.size or "
        "delivery.prefetch\n",
        format_bytes(gpu.bytes() - gpu.budget_bytes));
  return text;
}

// Whether a call is given the image, so that it does not go into the batch.
bool is_given(const Plan& plan, const ImageTask& image) {
  const auto found = std::find_if(plan.tasks.begin(), plan.tasks.end(),
                                  [&](const auto& task) { return task.get() == &image; });
  return plan.task_arrays[static_cast<std::size_t>(found - plan.tasks.begin())].has_value();
}

std::string image_text(const PlanFacts::Image& image, DType dtype, bool is_given) {
  std::string text = "    decode   only the rows and columns that the crop needs\n";
  if (image.resamples > 1)
    text += fmt::format("    resample {} passes: each resize after the first needs whole pixels\n",
                        image.resamples);
  text += fmt::format("    write    {}{}{} {}\n", image.normalized ? "normalised " : "",
                      dtype_name(dtype), image.layout == Layout::kNCHW ? " NCHW" : " NHWC",
                      is_given ? "for 'python'" : "straight into the slot");
  return text;
}

PlanFacts::Task task_of(const StagePlan& stage, PlanFacts::Task::Pool pool, unsigned threads) {
  const std::uint32_t concurrency =
      stage.concurrency > 0 ? static_cast<std::uint32_t>(stage.concurrency) : threads;
  return {.stages = stage.name,
          .pool = pool,
          .concurrency = concurrency,
          .effective = std::min(concurrency, threads)};
}

std::string concurrency_text(const StagePlan& stage, const PlanFacts::Task& task) {
  if (stage.concurrency <= 0) return counted(task.concurrency, "worker");
  std::string text = fmt::format("at most {} at once", task.concurrency);
  if (task.effective == task.concurrency) return text;
  return text + (task.pool == PlanFacts::Task::Pool::kIo
                     ? fmt::format(", {} on one device: executor.io_threads", task.effective)
                     : fmt::format(", {}: executor.cpu_threads", task.effective));
}

// "mypkg.aug:cutout(image) gives image uint8[224,224,3]   [8 processes]"
std::string call_text(const PlannedCall& call) {
  std::vector<std::string> in;
  for (const CallField& field : call.spec.in) in.push_back(field.name);
  std::vector<std::string> out;
  for (const CallField& field : call.spec.out) out.push_back(field.name + " " + declared_as(field));
  return fmt::format("{}({}) gives {}   [{}]", call.spec.call, fmt::join(in, ", "),
                     fmt::join(out, ", "),
                     call.spec.concurrency > 0 ? fmt::format("{} processes", call.spec.concurrency)
                                               : std::string("a process for each core"));
}

std::vector<PlanFacts::FieldStages> fields_of(const Plan& plan) {
  std::vector<PlanFacts::FieldStages> fields;
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    for (const TensorSpec& tensor : plan.tasks[i]->tensors())
      fields.push_back({.field = tensor.name, .stages = plan.task_ops[i]});
  }
  return fields;
}

PlanFacts::Image image_of(const ImageTask& task) {
  PlanFacts::Image image{.layout = task.layout, .normalized = task.format.normalized};
  for (const GeometryStep& step : task.geometry) image.resamples += step.op->resizes() ? 1 : 0;
  return image;
}

PlanFacts::Cache cache_of(const spec::CacheSpec& spec, const CacheEstimate& estimate) {
  PlanFacts::Cache cache{.form = std::string(name_of(spec.form)),
                         .where = std::string(name_of(spec.where)),
                         .limit_bytes = spec.size_bytes,
                         .probed_items = estimate.probed,
                         .used = estimate.used,
                         .why_not = estimate.why_not};
  if (estimate.probed == 0) return cache;
  cache.item_bytes = static_cast<std::uint64_t>(estimate.item_bytes);
  cache.held_items = estimate.held;
  cache.spared_us = estimate.without_ns / 1e3;
  cache.hit_us = estimate.hit_ns / 1e3;
  cache.saved_us = estimate.saved_ns() / 1e3;
  if (estimate.saved_ns() > 0) cache.payback_epochs = estimate.payback_epochs();
  if (estimate.better_form) cache.better_form = name_of(*estimate.better_form);
  cache.better_saved_us = estimate.better_saved_ns / 1e3;
  return cache;
}

// What of its files a source's items are.
std::string clips_text(const ClipsSpec& clips) {
  using Sampling = ClipsSpec::Sampling;
  const bool of_frames = clips.unit == ClipsSpec::Unit::kFrames;
  if (clips.sampling == Sampling::kWhole) {
    if (clips.min_seconds > 0 && clips.max_seconds > 0)
      return fmt::format("whole sounds of {} to {} s", clips.min_seconds, clips.max_seconds);
    if (clips.min_seconds > 0)
      return fmt::format("whole sounds of at least {} s", clips.min_seconds);
    if (clips.max_seconds > 0)
      return fmt::format("whole sounds of at most {} s", clips.max_seconds);
    return "whole sounds";
  }
  std::string text = of_frames ? counted(static_cast<std::uint64_t>(clips.frames), "frame")
                               : fmt::format("{} s of sound", clips.seconds);
  if (of_frames && clips.stride > 1) text += fmt::format(", {} apart", clips.stride);
  switch (clips.sampling) {
    case Sampling::kDense:
      if (of_frames) {
        const std::int64_t hop =
            clips.hop_frames > 0 ? clips.hop_frames : clips.frames * clips.stride;
        text += fmt::format("; a clip each {}", counted(static_cast<std::uint64_t>(hop), "frame"));
      } else {
        text += fmt::format("; a window each {} s",
                            clips.hop_seconds > 0 ? clips.hop_seconds : clips.seconds);
      }
      break;
    case Sampling::kUniform:
      text += fmt::format("; {} a file, evenly spread", clips.per_file);
      break;
    case Sampling::kRandom:
      text += fmt::format("; {} a file, drawn anew each epoch", clips.per_file);
      break;
    case Sampling::kTimestamps: text += "; at given times"; break;
    case Sampling::kKeyframes: text += "; at each key frame"; break;
    case Sampling::kWhole: break;  // see above
  }
  if (clips.stack) text += ", all of them one item";
  if (!clips.audio.empty()) text += fmt::format("; with their sound as {}", clips.audio);
  return text;
}

source::Sharding sharding_of(const Plan& plan, std::uint64_t items, std::uint32_t num_shards) {
  const Repeat& repeat = plan.spec.shuffle.repeat;
  return {items * repeat.rows,
          plan.spec.batch.last,
          {.num_shards = num_shards, .batch = static_cast<std::uint64_t>(plan.spec.batch.size)},
          repeat.group()};
}

// Of the epoch's tail, where that is dropped.
std::string left_out_text(const PlanFacts& facts) {
  const std::uint32_t each = facts.shuffle.repeat.rows;
  const std::uint64_t read = facts.steps_per_epoch * facts.batch_rows * facts.num_shards;
  const std::uint64_t rows = facts.items * each;
  return read >= rows
             ? ""
             : fmt::format("; {} left out", counted(rows - read, each > 1 ? "row" : "item"));
}

std::string repeat_text(const Repeat& repeat) {
  if (repeat.rows == 1) return "";
  return repeat.adjacent ? "; the rows of an item lie in one batch" : "; all rows shuffled alike";
}

}  // namespace

std::string items_text(std::uint64_t items, const Repeat& repeat) {
  return counted(items, "item") +
         (repeat.rows > 1 ? fmt::format(" of {} rows each", repeat.rows) : "");
}

std::string no_step_text(const Plan& plan, std::uint64_t items, std::uint32_t num_shards) {
  if (sharding_of(plan, items, num_shards).end_step() > 0) return {};
  return fmt::format(
      "the {} do not fill a step of {} on {}: lower batch.size, or set 'batch: {{last: pad}}'",
      items_text(items, plan.spec.shuffle.repeat), counted(plan.layout.rows(), "row"),
      counted(num_shards, "shard"));
}

std::string no_gpu_text(const PlanFacts::OnGpu& gpu) {
  if (gpu.why_none.empty() || gpu.fields.empty()) return {};
  return "the daemon can deliver to no GPU now: " + gpu.why_none +
         (gpu.or_host ? "; until it can, batches lie in main memory, and a loader with device= "
                        "copies them to its GPU itself"
                      : "; until it can, each loader is refused: 'delivery: {device: cpu}' leaves "
                        "copies to the loader, and 'on_unavailable: host' takes main memory where "
                        "there is no other way");
}

PlanFacts plan_facts(const Plan& plan, const ExplainContext& context) {
  const source::Sharding epoch = sharding_of(plan, context.items, context.num_shards);
  PlanFacts facts{
      .pipeline = plan.spec.name,
      .items = context.items,
      .classes = context.classes,
      .shuffle = plan.spec.shuffle,
      .tasks = {task_of(
                    plan.fetch, PlanFacts::Task::Pool::kIo,
                    static_cast<unsigned>(source::IoPool::most_for_one_device(context.io_threads))),
                task_of(plan.process, PlanFacts::Task::Pool::kCpu, context.cpu_threads)},
      .batch_rows = plan.layout.rows(),
      .slot_bytes = plan.layout.slot_bytes(),
      .tensors = plan.tensors,
      .max_bytes = plan.spec.batch.max_bytes,
      .num_shards = context.num_shards,
      .steps_per_epoch = epoch.end_step(),
      .credits = context.credits,
      .slots = plan.slots_for(context.credits),
      .arena_kind = context.arena_kind,
      .arena_bytes = context.arena_bytes,
      .needed_bytes = context.arena_bytes * context.num_shards,
      .used_bytes = context.arena_used,
      .budget_bytes = context.arena_budget,
      .warnings = plan.doubts};
  facts.tasks.back().fields = fields_of(plan);
  const std::uint64_t wanted = facts.used_bytes + facts.needed_bytes;
  if (wanted > facts.budget_bytes) facts.missing_bytes = wanted - facts.budget_bytes;
  std::string no_step = no_step_text(plan, context.items, context.num_shards);
  if (!no_step.empty()) facts.warnings.push_back(std::move(no_step));
  if (plan.image != nullptr) facts.image = image_of(*plan.image);
  facts.padding = context.padding;
  facts.on_gpu = context.on_gpu;
  std::string no_gpu = context.on_gpu ? no_gpu_text(*context.on_gpu) : std::string();
  if (!no_gpu.empty()) facts.warnings.push_back(std::move(no_gpu));
  if (plan.spec.cache && context.cache) facts.cache = cache_of(*plan.spec.cache, *context.cache);
  return facts;
}

std::string explain(const Plan& plan, const ExplainContext& context) {
  const PlanFacts facts = plan_facts(plan, context);
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "pipeline {}\n", facts.pipeline);
  fmt::format_to(out, "source   {}", items_text(facts.items, facts.shuffle.repeat));
  if (facts.classes > 0) fmt::format_to(out, ", {}", counted(facts.classes, "class", "classes"));
  fmt::format_to(out, "; order: {}{}\n", order_text(facts.shuffle),
                 repeat_text(facts.shuffle.repeat));
  if (facts.padding && facts.shuffle.bucket)
    fmt::format_to(out, "padding  of rows by '{}': {:.0f} % without buckets, {:.0f} % with\n",
                   facts.shuffle.bucket->by, facts.padding->without * 100,
                   facts.padding->with * 100);
  if (plan.spec.source.clips)
    fmt::format_to(out, "{:<8} {}\n",
                   plan.spec.source.clips->unit == ClipsSpec::Unit::kFrames ? "clips" : "windows",
                   clips_text(*plan.spec.source.clips));

  const auto stage = [&](std::size_t number, const StagePlan& planned, const char* pool) {
    fmt::format_to(out, "  task {}: {}   [{}, {}]\n", number, planned.name, pool,
                   concurrency_text(planned, facts.tasks[number - 1]));
  };
  stage(1, plan.fetch, "I/O pool; page-cached files on the CPU worker");
  stage(2, plan.process, "CPU pool, one sample on one core");
  const auto fields = [&](std::size_t calls_back) {
    const std::size_t first = calls_back == 0 ? 0 : plan.tasks_end(calls_back - 1);
    for (std::size_t i = first; i < plan.tasks_end(calls_back); ++i) {
      for (const TensorSpec& tensor : plan.tasks[i]->tensors())
        fmt::format_to(out, "    {:<8} {}\n", tensor.name, plan.task_ops[i]);
    }
  };
  if (plan.tasks.size() > 1) fields(0);
  for (std::size_t call = 0; call < plan.calls.size(); ++call) {
    fmt::format_to(out, "  call    {}\n", call_text(plan.calls[call]));
    fields(call + 1);
  }
  for (const RowFilter& filter : plan.filters)
    fmt::format_to(out, "    filter   {}; {}\n", printable(filter.text),
                   filter.rejection.replaces
                       ? "another item takes the place of a row that is rejected"
                       : "a row that is rejected is not valid");
  if (facts.image)
    text += image_text(*facts.image, plan.image->format.dtype, is_given(plan, *plan.image));
  if (plan.spec.cache && context.cache)
    fmt::format_to(out, "cache    {}\n", cache_text(*plan.spec.cache, *context.cache));

  fmt::format_to(out, "batch    {}, {} in its slot\n", counted(facts.batch_rows, "row"),
                 format_bytes(facts.slot_bytes));
  for (const TensorSpec& tensor : facts.tensors) {
    fmt::format_to(out, "  {:<10} {}\n", tensor.name, rows_text(tensor, facts.batch_rows));
  }
  fmt::format_to(out, "epoch    {} on {}{}\n", counted(facts.steps_per_epoch, "step"),
                 counted(facts.num_shards, "shard"), left_out_text(facts));
  fmt::format_to(out, "slots    {} for each consumer: {} credits and {} being filled\n",
                 facts.slots, facts.credits, facts.slots - facts.credits);
  fmt::format_to(out, "arenas   {} for each consumer, {} in all, {}; budget {}, {} in use\n",
                 format_bytes(facts.arena_bytes), format_bytes(facts.needed_bytes),
                 facts.arena_kind, format_bytes(facts.budget_bytes),
                 format_bytes(facts.used_bytes));
  if (facts.missing_bytes > 0) {
    fmt::format_to(out,
                   "         DOES NOT FIT: {} more are needed; raise arena.budget, or lower "
                   "batch.size or delivery.prefetch\n",
                   format_bytes(facts.missing_bytes));
  }
  if (facts.on_gpu) text += gpu_text(*facts.on_gpu);
  for (const std::string& warning : facts.warnings) fmt::format_to(out, "WARNING  {}\n", warning);
  return text;
}

}  // namespace spdld::engine
