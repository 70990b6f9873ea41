// SPDX-License-Identifier: Apache-2.0
#include "announced.h"

#include <algorithm>

#include "frame_parts.h"
#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw ConnectionError(kDataLoss, why); }

}  // namespace

void Announced::open_arena(std::span<const std::byte> frame, UniqueFd fd) {
  const auto open = fixed_part<wire::ArenaOpenFrame>(frame);
  if (!open || !fd) refuse("the daemon sent an arena without its memory");
  auto mapping = Mapping::open(std::move(fd), *open);
  std::erase_if(arenas_, [&](const auto& arena) { return arena.first == open->arena_id; });
  if (arenas_.size() == kMaxArenas) {
    refuse(join("the daemon opened more than ", kMaxArenas, " arenas and retired none"));
  }
  arenas_.emplace_back(open->arena_id, std::move(mapping));
}

void Announced::retire_arena(std::span<const std::byte> frame) {
  const auto retire = fixed_part<wire::ArenaRetireFrame>(frame);
  if (!retire) refuse("the daemon retired an arena in a way that makes no sense");
  std::erase_if(arenas_, [&](const auto& arena) { return arena.first == retire->arena_id; });
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
  facts_ = std::move(facts);
  ++facts_number_;
}

std::shared_ptr<BatchState> Announced::batch(const std::shared_ptr<Channel>& channel,
                                             const wire::BatchFrame& frame) const {
  // The newest come last, and are asked for most.
  const auto arena = std::find_if(arenas_.rbegin(), arenas_.rend(), [&](const auto& candidate) {
    return candidate.first == frame.arena_id;
  });
  const auto schema = std::find_if(schemas_.rbegin(), schemas_.rend(), [&](const auto& candidate) {
    return candidate->id == frame.schema_id;
  });
  if (arena == arenas_.rend() || schema == schemas_.rend() ||
      !arena->second->contains(frame.slot_offset, frame.slot_bytes) || frame.slot_offset % 8 != 0) {
    refuse(join("step ", frame.step, " of epoch ", frame.epoch,
                " lies in memory that the daemon did not announce"));
  }
  if ((*schema)->pipeline_version != facts_.pipeline_version) {
    refuse(join("step ", frame.step, " of epoch ", frame.epoch, " is of version ",
                (*schema)->pipeline_version, " of the pipeline, and the daemon announced version ",
                facts_.pipeline_version));
  }
  return make_batch(std::make_shared<Lease>(channel, arena->second, frame), *schema, frame);
}

}  // namespace spdld::client
