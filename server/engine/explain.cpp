// SPDX-License-Identifier: Apache-2.0
#include "engine/explain.h"

#include <fmt/format.h>

#include <iterator>

#include "base/counted.h"
#include "source/sharding.h"

namespace spdld::engine {
namespace {

std::string bytes_text(std::uint64_t bytes) {
  if (bytes >= 10'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 100'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{} B", bytes);
}

std::string shape_text(const TensorSpec& tensor, std::uint64_t rows) {
  std::string text = fmt::format("[{}", rows);
  for (const std::int64_t extent : tensor.shape) text += fmt::format(", {}", extent);
  return text + "]";
}

std::string order_text(const Shuffle& shuffle) {
  switch (shuffle.kind) {
    case Shuffle::Kind::kNone: return "as listed";
    case Shuffle::Kind::kGlobal: return "global shuffle, anew each epoch";
    case Shuffle::Kind::kBlock:
      return fmt::format("blocks of {} shuffled, {} interleaved", shuffle.block,
                         shuffle.interleave);
  }
  return "";
}

std::string image_text(const Plan& plan) {
  const ImageTask& image = *plan.image;
  std::string text = "    decode   only the rows and columns that the crop needs\n";
  int resizes = 0;
  for (const GeometryStep& step : image.geometry) resizes += step.op->resizes() ? 1 : 0;
  if (resizes > 1)
    text += fmt::format("    resample {} passes: each resize after the first needs whole pixels\n",
                        resizes);
  text += fmt::format("    write    {}{}{} straight into the slot\n",
                      image.format.normalized ? "normalised " : "", dtype_name(image.format.dtype),
                      image.layout == Layout::kNCHW ? " NCHW" : " NHWC");
  return text;
}

}  // namespace

std::string explain(const Plan& plan, const ExplainContext& context) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "pipeline {}\n", plan.spec.name);
  fmt::format_to(out, "source   {}", counted(context.items, "item"));
  if (context.classes > 0)
    fmt::format_to(out, ", {}", counted(context.classes, "class", "classes"));
  fmt::format_to(out, "; order: {}\n", order_text(plan.spec.shuffle));

  const auto stage = [&](int number, const StagePlan& planned, const char* pool) {
    fmt::format_to(out, "  task {}: {}   [{}, {}]\n", number, planned.name, pool,
                   planned.concurrency > 0 ? fmt::format("at most {} at once", planned.concurrency)
                                           : counted(context.cpu_threads, "worker"));
  };
  stage(1, plan.fetch, "I/O pool; page-cached files on the CPU worker");
  stage(2, plan.process, "CPU pool, one sample on one core");
  if (plan.image) text += image_text(plan);
  if (plan.spec.cache && context.cache)
    fmt::format_to(out, "cache    {}\n", cache_text(*plan.spec.cache, *context.cache));

  fmt::format_to(out, "batch    {}, {} in its slot\n", counted(plan.layout.rows(), "row"),
                 bytes_text(plan.layout.slot_bytes()));
  for (const TensorSpec& tensor : plan.tensors) {
    if (tensor.kind == FieldKind::kDense) {
      fmt::format_to(out, "  {:<10} {} {}\n", tensor.name, dtype_name(tensor.dtype),
                     shape_text(tensor, plan.layout.rows()));
    } else {
      fmt::format_to(out, "  {:<10} bytes, one string a row, at most {} together\n", tensor.name,
                     bytes_text(plan.spec.batch.max_bytes));
    }
  }
  const source::Sharding epoch(context.items, plan.spec.batch.last,
                               {.num_shards = context.num_shards,
                                .batch = static_cast<std::uint64_t>(plan.spec.batch.size)});
  fmt::format_to(out, "epoch    {} on {}\n", counted(epoch.end_step(), "step"),
                 counted(context.num_shards, "shard"));
  const std::uint64_t needed = context.arena_bytes * context.num_shards;
  fmt::format_to(out, "slots    {} for each consumer: {} credits and {} being filled\n",
                 plan.slots_for(context.credits), context.credits,
                 plan.slots_for(context.credits) - context.credits);
  fmt::format_to(out, "arenas   {} for each consumer, {} in all, {}; budget {}, {} in use\n",
                 bytes_text(context.arena_bytes), bytes_text(needed), context.arena_kind,
                 bytes_text(context.arena_budget), bytes_text(context.arena_used));
  if (context.arena_used + needed > context.arena_budget) {
    fmt::format_to(out,
                   "         DOES NOT FIT: {} more are needed; raise arena.budget, or lower "
                   "batch.size or delivery.prefetch\n",
                   bytes_text(context.arena_used + needed - context.arena_budget));
  }
  for (const std::string& doubt : plan.doubts) fmt::format_to(out, "WARNING  {}\n", doubt);
  return text;
}

}  // namespace spdld::engine
