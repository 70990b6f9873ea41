// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <string>
#include <string_view>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

std::string_view shuffle_name(Shuffle::Kind kind) {
  switch (kind) {
    case Shuffle::Kind::kNone: return "none";
    case Shuffle::Kind::kGlobal: return "global";
    case Shuffle::Kind::kBlock: return "block";
  }
  return "unknown";
}

void fill_in(v1::PlanOrder* message, const engine::PlanFacts& facts) {
  const Shuffle& shuffle = facts.shuffle;
  message->set_shuffle(std::string(shuffle_name(shuffle.kind)));
  if (shuffle.bucket && facts.padding) {
    v1::PlanBucket* const bucket = message->mutable_bucket();
    bucket->set_by(utf8(shuffle.bucket->by));
    bucket->set_window(shuffle.bucket->window);
    bucket->set_run(shuffle.bucket->run);
    bucket->set_padding_without(facts.padding->without);
    bucket->set_padding_with(facts.padding->with);
  }
  if (shuffle.repeat.rows > 1) {
    message->set_repeat(shuffle.repeat.rows);
    message->set_adjacent(shuffle.repeat.adjacent);
  }
  if (shuffle.kind != Shuffle::Kind::kBlock) return;
  message->set_block(shuffle.block);
  message->set_interleave(shuffle.interleave);
}

void fill_in(v1::PlanBatch* message, const engine::PlanFacts& facts) {
  message->set_rows(facts.batch_rows);
  message->set_slot_bytes(facts.slot_bytes);
  for (const TensorSpec& tensor : facts.tensors) {
    control::fill(message->add_tensors(), tensor);
    if (tensor.kind == FieldKind::kBytes) message->set_max_bytes(facts.max_bytes);
  }
}

void fill_in(v1::PlanArenas* message, const engine::PlanFacts& facts) {
  message->set_kind(facts.arena_kind);
  message->set_credits(facts.credits);
  message->set_slots(facts.slots);
  message->set_consumer_bytes(facts.arena_bytes);
  message->set_needed_bytes(facts.needed_bytes);
  message->set_used_bytes(facts.used_bytes);
  message->set_budget_bytes(facts.budget_bytes);
  message->set_fits(facts.missing_bytes == 0);
  message->set_missing_bytes(facts.missing_bytes);
}

void fill_in(v1::PlanGpu* message, const engine::PlanFacts::OnGpu& gpu) {
  message->set_slots(gpu.slots);
  message->set_slot_bytes(gpu.slot_bytes);
  message->set_consumer_bytes(gpu.bytes());
  message->set_host_slot_bytes(gpu.host_bytes);
  for (const std::string& field : gpu.fields) message->add_fields(utf8(field));
  message->set_budget_bytes(gpu.budget_bytes);
  message->set_fits(gpu.fits());
}

void fill_in(v1::PlanCache* message, const engine::PlanFacts::Cache& cache) {
  message->set_form(cache.form);
  message->set_where(cache.where);
  message->set_limit_bytes(cache.limit_bytes);
  message->set_probed_items(cache.probed_items);
  message->set_item_bytes(cache.item_bytes);
  message->set_held_items(cache.held_items);
  message->set_spared_us(cache.spared_us);
  message->set_hit_us(cache.hit_us);
  message->set_saved_us(cache.saved_us);
  if (cache.payback_epochs) message->set_payback_epochs(*cache.payback_epochs);
  message->set_used(cache.used);
  message->set_why_not(utf8(cache.why_not));
  message->set_better_form(cache.better_form);
  message->set_better_saved_us(cache.better_saved_us);
}

}  // namespace

void fill(v1::Plan* message, const engine::PlanFacts& facts) {
  message->set_pipeline(utf8(facts.pipeline));
  message->set_items(facts.items);
  message->set_classes(facts.classes);
  fill_in(message->mutable_order(), facts);
  for (const engine::PlanFacts::Task& task : facts.tasks) {
    v1::PlanTask* out = message->add_tasks();
    out->set_stages(utf8(task.stages));
    out->set_pool(task.pool == engine::PlanFacts::Task::Pool::kIo ? "io" : "cpu");
    out->set_concurrency(task.concurrency);
    out->set_effective(task.effective);
    for (const engine::PlanFacts::FieldStages& field : task.fields) {
      v1::PlanField* const made = out->add_fields();
      made->set_field(utf8(field.field));
      made->set_stages(utf8(field.stages));
    }
  }
  if (facts.image) {
    v1::PlanImage* image = message->mutable_image();
    image->set_layout(facts.image->layout == Layout::kNCHW ? "NCHW" : "NHWC");
    image->set_normalized(facts.image->normalized);
    image->set_resamples(facts.image->resamples);
  }
  fill_in(message->mutable_batch(), facts);
  message->set_num_shards(facts.num_shards);
  message->set_steps_per_epoch(facts.steps_per_epoch);
  fill_in(message->mutable_arenas(), facts);
  if (facts.cache) fill_in(message->mutable_cache(), *facts.cache);
  if (facts.on_gpu) fill_in(message->mutable_gpu(), *facts.on_gpu);
  for (const std::string& warning : facts.warnings) message->add_warnings(utf8(warning));
}

}  // namespace spdld::control
