// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdio>

#include "spdld/arena.h"
#include "spdld/wire.h"

// Prints where the compiler put every field that two processes must agree on, as JSON, for
// check_wire_layout.py and for readers of the data plane in other languages.
namespace {

bool first_struct = true;

void begin(const char* name, std::size_t bytes) {
  std::printf("%s\n  \"%s\": {\"\": %zu", first_struct ? "" : "},", name, bytes);
  first_struct = false;
}

void field(const char* name, std::size_t offset) { std::printf(", \"%s\": %zu", name, offset); }

}  // namespace

#define STRUCT(type) begin(#type, sizeof(spdld::wire::type))
#define FIELD(type, name) field(#name, offsetof(spdld::wire::type, name))

int main() {
  std::printf("{\n  \"protocol\": %u,", spdld::wire::kProtocol);
  STRUCT(ArenaHeader);
  FIELD(ArenaHeader, magic);
  FIELD(ArenaHeader, abi_major);
  FIELD(ArenaHeader, abi_minor);
  FIELD(ArenaHeader, header_bytes);
  FIELD(ArenaHeader, page_bytes);
  FIELD(ArenaHeader, total_bytes);
  FIELD(ArenaHeader, generation);
  FIELD(ArenaHeader, slots_offset);
  FIELD(ArenaHeader, slot_stride);
  FIELD(ArenaHeader, slot_count);
  FIELD(ArenaHeader, arena_id);
  STRUCT(FieldLayout);
  FIELD(FieldLayout, name);
  FIELD(FieldLayout, kind);
  FIELD(FieldLayout, dtype);
  FIELD(FieldLayout, ndim);
  FIELD(FieldLayout, flags);
  FIELD(FieldLayout, shape);
  FIELD(FieldLayout, offset);
  FIELD(FieldLayout, capacity_bytes);
  FIELD(FieldLayout, offsets_offset);
  FIELD(FieldLayout, shapes_offset);
  STRUCT(HelloFrame);
  FIELD(HelloFrame, magic);
  FIELD(HelloFrame, protocol_min);
  FIELD(HelloFrame, protocol_max);
  FIELD(HelloFrame, client);
  STRUCT(WelcomeFrame);
  FIELD(WelcomeFrame, magic);
  FIELD(WelcomeFrame, protocol);
  FIELD(WelcomeFrame, generation);
  FIELD(WelcomeFrame, server);
  STRUCT(ErrorFrame);
  FIELD(ErrorFrame, code);
  FIELD(ErrorFrame, fatal);
  FIELD(ErrorFrame, text_bytes);
  STRUCT(AttachFrame);
  FIELD(AttachFrame, shard);
  FIELD(AttachFrame, credits);
  FIELD(AttachFrame, batch_size);
  FIELD(AttachFrame, seed);
  FIELD(AttachFrame, start);
  FIELD(AttachFrame, epoch);
  FIELD(AttachFrame, position);
  FIELD(AttachFrame, step);
  FIELD(AttachFrame, run);
  FIELD(AttachFrame, turn);
  FIELD(AttachFrame, branch);
  FIELD(AttachFrame, starts_runners);
  FIELD(AttachFrame, text_count);
  FIELD(AttachFrame, blob_bytes);
  STRUCT(AttachedFrame);
  FIELD(AttachedFrame, session);
  FIELD(AttachedFrame, steps_per_epoch);
  FIELD(AttachedFrame, seed);
  FIELD(AttachedFrame, shard);
  FIELD(AttachedFrame, credits);
  FIELD(AttachedFrame, epoch);
  FIELD(AttachedFrame, run);
  FIELD(AttachedFrame, turn);
  FIELD(AttachedFrame, branch);
  FIELD(AttachedFrame, pipeline_version);
  FIELD(AttachedFrame, text_count);
  STRUCT(ArenaOpenFrame);
  FIELD(ArenaOpenFrame, arena_id);
  FIELD(ArenaOpenFrame, kind);
  FIELD(ArenaOpenFrame, total_bytes);
  FIELD(ArenaOpenFrame, generation);
  STRUCT(DeviceArenaFrame);
  FIELD(DeviceArenaFrame, arena_id);
  FIELD(DeviceArenaFrame, kind);
  FIELD(DeviceArenaFrame, total_bytes);
  STRUCT(BatchFrame);
  FIELD(BatchFrame, lease);
  FIELD(BatchFrame, arena_id);
  FIELD(BatchFrame, schema_id);
  FIELD(BatchFrame, slot_offset);
  FIELD(BatchFrame, slot_bytes);
  FIELD(BatchFrame, epoch);
  FIELD(BatchFrame, step);
  FIELD(BatchFrame, next_position);
  FIELD(BatchFrame, turn);
  FIELD(BatchFrame, rows);
  FIELD(BatchFrame, seek);
  FIELD(BatchFrame, branch);
  FIELD(BatchFrame, tell);
  STRUCT(DeviceBatchFrame);
  FIELD(DeviceBatchFrame, batch);
  FIELD(DeviceBatchFrame, device_offset);
  FIELD(DeviceBatchFrame, device_bytes);
  STRUCT(HandedFrame);
  FIELD(HandedFrame, turn);
  STRUCT(SeekFrame);
  FIELD(SeekFrame, turn);
  FIELD(SeekFrame, epoch);
  FIELD(SeekFrame, seek);
  FIELD(SeekFrame, skip);
  STRUCT(ResetFrame);
  FIELD(ResetFrame, epoch);
  FIELD(ResetFrame, steps_per_epoch);
  FIELD(ResetFrame, seek);
  FIELD(ResetFrame, shard);
  FIELD(ResetFrame, num_shards);
  STRUCT(VersionFrame);
  FIELD(VersionFrame, items);
  FIELD(VersionFrame, steps_per_epoch);
  FIELD(VersionFrame, batch_size);
  FIELD(VersionFrame, pipeline_version);
  FIELD(VersionFrame, text_count);
  FIELD(VersionFrame, credits);
  FIELD(VersionFrame, reserved);
  STRUCT(ApplyFrame);
  FIELD(ApplyFrame, serial);
  FIELD(ApplyFrame, at);
  FIELD(ApplyFrame, epoch);
  FIELD(ApplyFrame, step);
  FIELD(ApplyFrame, allow_schema_change);
  FIELD(ApplyFrame, text_count);
  STRUCT(BlobFrame);
  FIELD(BlobFrame, kind);
  FIELD(BlobFrame, serial);
  FIELD(BlobFrame, offset);
  FIELD(BlobFrame, total_bytes);
  STRUCT(TextHeader);
  FIELD(TextHeader, key);
  FIELD(TextHeader, bytes);
  STRUCT(ProgressFrame);
  FIELD(ProgressFrame, done);
  FIELD(ProgressFrame, total);
  FIELD(ProgressFrame, text_bytes);
  STRUCT(ArenaRetireFrame);
  FIELD(ArenaRetireFrame, arena_id);
  STRUCT(SchemaFrame);
  FIELD(SchemaFrame, schema_id);
  FIELD(SchemaFrame, pipeline_version);
  FIELD(SchemaFrame, field_count);
  STRUCT(EpochEndFrame);
  FIELD(EpochEndFrame, epoch);
  FIELD(EpochEndFrame, steps);
  FIELD(EpochEndFrame, seek);
  FIELD(EpochEndFrame, last);
  STRUCT(ReleaseFrame);
  FIELD(ReleaseFrame, lease);
  STRUCT(QueryFrame);
  FIELD(QueryFrame, kind);
  FIELD(QueryFrame, serial);
  STRUCT(UrisPart);
  FIELD(UrisPart, count);
  FIELD(UrisPart, digest_bytes);
  STRUCT(WaitedFrame);
  FIELD(WaitedFrame, waited_ms);
  FIELD(WaitedFrame, waits);
  FIELD(WaitedFrame, core_waited_ms);
  FIELD(WaitedFrame, steps);
  FIELD(WaitedFrame, between_ms);
  FIELD(WaitedFrame, map_ms);
  FIELD(WaitedFrame, waits_by_length);
  STRUCT(RunnersWantedFrame);
  FIELD(RunnersWantedFrame, pool);
  STRUCT(AppliedFrame);
  FIELD(AppliedFrame, serial);
  FIELD(AppliedFrame, version);
  FIELD(AppliedFrame, epoch);
  FIELD(AppliedFrame, step);
  FIELD(AppliedFrame, tuned);
  STRUCT(RefusedFrame);
  FIELD(RefusedFrame, serial);
  FIELD(RefusedFrame, code);
  FIELD(RefusedFrame, text_bytes);
  STRUCT(DetachFrame);
  STRUCT(NoticeFrame);
  FIELD(NoticeFrame, text_bytes);
  STRUCT(ByeFrame);
  FIELD(ByeFrame, reason);
  FIELD(ByeFrame, text_bytes);
  std::printf("}\n}\n");
}
