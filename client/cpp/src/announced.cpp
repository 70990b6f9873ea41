// SPDX-License-Identifier: Apache-2.0
#include "announced.h"

#include <algorithm>

#include "frame_parts.h"
#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw ConnectionError(kDataLoss, why); }

[[noreturn]] void refuse_batch(const wire::BatchFrame& frame, const std::string& why) {
  refuse(join("step ", frame.step, " of epoch ", frame.epoch, " ", why));
}

}  // namespace

void Announced::open_arena(std::span<const std::byte> frame, UniqueFd fd) {
  const auto open = fixed_part<wire::ArenaOpenFrame>(frame);
  if (!open || !fd) refuse("the daemon sent an arena without its memory");
  auto mapping = Mapping::open(std::move(fd), *open);
  std::erase_if(arenas_, [&](const auto& arena) { return arena.id == open->arena_id; });
  if (arenas_.size() == kMaxArenas) {
    refuse(join("the daemon opened more than ", kMaxArenas, " arenas and retired none"));
  }
  arenas_.push_back({open->arena_id, std::move(mapping), nullptr});
}

void Announced::add_device_memory(std::span<const std::byte> frame, UniqueFd fd) {
  const auto told = fixed_part<wire::DeviceArenaFrame>(frame);
  if (!told || !fd) refuse("the daemon sent an arena on a GPU without its memory");
  if (device_ == nullptr) {
    refuse("the daemon sent memory of a GPU, and this loader was opened without a device");
  }
  const auto arena = std::find_if(arenas_.begin(), arenas_.end(),
                                  [&](const Arena& each) { return each.id == told->arena_id; });
  if (arena == arenas_.end() || arena->device_memory != nullptr) {
    refuse(join("the daemon sent memory of a GPU that belongs to arena ", told->arena_id,
                arena == arenas_.end() ? ", which it did not open" : ", which has some already"));
  }
  arena->device_memory = device_->map(std::move(fd), *told);
}

void Announced::retire_arena(std::span<const std::byte> frame) {
  const auto retire = fixed_part<wire::ArenaRetireFrame>(frame);
  if (!retire) refuse("the daemon retired an arena in a way that makes no sense");
  std::erase_if(arenas_, [&](const auto& arena) { return arena.id == retire->arena_id; });
}

void Announced::add_schema(std::span<const std::byte> frame) {
  std::string why;
  auto schema = read_schema(frame, facts_.order_digest, why);
  if (!schema) refuse(why);
  std::erase_if(schemas_, [&](const auto& old) { return old->id == schema->id; });
  if (schemas_.size() == kMaxSchemas) schemas_.erase(schemas_.begin());
  schemas_.push_back(std::move(schema));
}

void Announced::change_version(std::span<const std::byte> frame) {
  const auto version = fixed_part<wire::VersionFrame>(frame);
  Facts facts;
  const bool whole = version && read_texts(frame.subspan(sizeof *version), version->text_count,
                                           [&](wire::TextKey key, std::string text) {
                                             if (key == wire::TextKey::kOrderDigest)
                                               facts.order_digest = std::move(text);
                                           });
  if (!whole) refuse("the daemon announced another version of the pipeline, and not to its end");
  facts.items = version->items;
  facts.steps_per_epoch = version->steps_per_epoch;
  facts.batch_size = version->batch_size;
  facts.pipeline_version = version->pipeline_version;
  facts.credits = version->credits;
  facts_ = std::move(facts);
  ++facts_number_;
}

const Announced::Arena& Announced::arena_of(const wire::BatchFrame& frame) const {
  // The newest come last, and are asked for most.
  const auto arena = std::find_if(arenas_.rbegin(), arenas_.rend(),
                                  [&](const Arena& each) { return each.id == frame.arena_id; });
  if (arena == arenas_.rend() || !arena->memory->contains(frame.slot_offset, frame.slot_bytes) ||
      frame.slot_offset % 8 != 0) {
    refuse_batch(frame, "lies in memory that the daemon did not announce");
  }
  return *arena;
}

std::shared_ptr<const Schema> Announced::schema_of(const wire::BatchFrame& frame) const {
  const auto schema = std::find_if(schemas_.rbegin(), schemas_.rend(),
                                   [&](const auto& each) { return each->id == frame.schema_id; });
  if (schema == schemas_.rend()) refuse_batch(frame, "has fields that the daemon did not announce");
  if ((*schema)->pipeline_version != facts_.pipeline_version) {
    refuse_batch(frame, join("is of version ", (*schema)->pipeline_version,
                             " of the pipeline, and the daemon announced version ",
                             facts_.pipeline_version));
  }
  return *schema;
}

std::shared_ptr<BatchState> Announced::batch(const std::shared_ptr<Channel>& channel,
                                             const wire::BatchFrame& frame) const {
  const Arena& arena = arena_of(frame);
  std::shared_ptr<const Schema> schema = schema_of(frame);
  return make_batch(std::make_shared<Lease>(channel, arena.memory, frame), std::move(schema), frame,
                    {.is_copied = device_ != nullptr});
}

std::shared_ptr<BatchState> Announced::batch(const std::shared_ptr<Channel>& channel,
                                             const wire::DeviceBatchFrame& frame) const {
  const Arena& arena = arena_of(frame.batch);
  const DeviceArena* const memory = arena.device_memory.get();
  if (memory == nullptr || frame.device_offset % wire::kFieldAlignment != 0 ||
      frame.device_offset > memory->total_bytes() ||
      frame.device_bytes > memory->total_bytes() - frame.device_offset) {
    refuse_batch(frame.batch, "lies in memory of a GPU that the daemon did not announce");
  }
  std::shared_ptr<const Schema> schema = schema_of(frame.batch);
  auto batch = make_batch(
      std::make_shared<Lease>(channel, arena.memory, frame.batch), std::move(schema), frame.batch,
      {.on_device = memory->base() + frame.device_offset, .device_bytes = frame.device_bytes});
  const auto is_there = [](const TensorView& field) { return field.on_device; };
  if (std::any_of(batch->fields.begin(), batch->fields.end(), is_there)) {
    batch->device = device_->batch(arena.device_memory, batch->lease);
    share_lease(*batch);
  }
  return batch;
}

}  // namespace spdld::client
