// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/batch_source.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace spdld::gpu {
namespace {

constexpr std::uint64_t kSteps = 1u << 20;  // of an epoch
constexpr std::uint32_t kRows = 16;

std::vector<wire::FieldLayout> fields_of(std::uint64_t batch_bytes) {
  wire::FieldLayout image{};
  std::strcpy(image.name, "image");
  image.kind = wire::FieldKind::kDense;
  image.dtype = wire::DType::kUInt8;
  image.ndim = 1;
  image.shape[0] = static_cast<std::int64_t>(batch_bytes / kRows);
  image.capacity_bytes = batch_bytes;
  wire::FieldLayout index{};
  std::strcpy(index.name, wire::kIndexField);
  index.kind = wire::FieldKind::kDense;
  index.dtype = wire::DType::kInt64;
  index.flags = wire::kFieldMeta;
  index.offset = batch_bytes;
  index.capacity_bytes = kRows * sizeof(std::int64_t);
  return {image, index};
}

}  // namespace

// The memory of one consumer. With a GPU, slots of `host` are copied from, and consumers have
// those of `beside` and of the GPU.
struct BatchSource::Session {
  explicit Session(std::uint64_t batch_bytes)
      : fields(fields_of(batch_bytes)), layout(fields, kRows) {}
  // What is pinned ends before its arena, and on the GPU's thread.
  ~Session() {
    if (gpu != nullptr) gpu->post([host = host, pinned = std::move(pinned)] {});
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  delivery::ConnectionPtr connection;
  std::uint32_t credits = 0;
  bool closed = false;
  std::uint64_t next_step = 0;
  const std::vector<wire::FieldLayout> fields;
  const delivery::DeviceLayout layout;
  std::shared_ptr<delivery::Arena> host;
  std::unique_ptr<delivery::SlotTable> host_slots;

  delivery::DeviceMemoryPtr gpu;
  std::unique_ptr<delivery::DeviceArena> device;
  std::shared_ptr<delivery::PinnedArena> pinned;
  std::unique_ptr<delivery::Arena> beside;
  std::unique_ptr<delivery::SlotTable> device_slots;

  delivery::SlotTable& lent() { return gpu == nullptr ? *host_slots : *device_slots; }
};

Status BatchSource::open(Session& session, const std::string& uuid) {
  const std::uint32_t slots = session.credits + 2;
  const std::uint64_t slot_bytes = options_.batch_bytes + kPage;
  SPDLD_ASSIGN(session.host,
               delivery::Arena::create({.slot_bytes = slot_bytes, .slot_count = slots},
                                       next_arena_++, budget_));
  session.host_slots = std::make_unique<delivery::SlotTable>(slots);
  if (!options_.to_gpus || uuid.empty()) return {};
  SPDLD_ASSIGN(session.gpu, devices_->open(uuid));
  SPDLD_ASSIGN(session.device, session.gpu->allocate(session.layout.device_bytes() * slots));
  session.pinned = session.gpu->pin(*session.host);
  SPDLD_ASSIGN(session.beside, delivery::Arena::create(
                                   {.slot_bytes = session.layout.host_bytes(), .slot_count = slots},
                                   next_arena_++, budget_));
  session.device_slots = std::make_unique<delivery::SlotTable>(slots);
  return {};
}

void BatchSource::attach(const delivery::ConnectionPtr& connection,
                         delivery::AttachRequest request) {
  const auto session = std::make_shared<Session>(options_.batch_bytes);
  session->connection = connection;
  session->credits = request.credits.value_or(4);
  if (const Status opened = open(*session, request.device); !opened.ok()) {
    connection->fail(opened);
    return;
  }
  const bool on_gpu = session->gpu != nullptr;
  connection->send_attached({.session = connection->id(),
                             .items = kSteps * kRows,
                             .steps_per_epoch = kSteps,
                             .batch_size = kRows,
                             .credits = session->credits,
                             .in_run = {.run = 1},
                             .pipeline_version = 1,
                             .order_digest = "made-up",
                             .pipeline = request.pipeline,
                             .device = on_gpu ? session->gpu->uuid() : std::string()});
  connection->send_arena_open(on_gpu ? *session->beside : *session->host);
  if (on_gpu) connection->send_device_arena(session->beside->id(), *session->device);
  connection->send_schema(1, 1, on_gpu ? session->layout.fields() : session->fields);
  sessions_[connection->id()] = session;
  pump(session);
}

void BatchSource::pump(const SessionPtr& session) {
  while (!session->closed) {
    if (session->lent().held(session->connection->id()) >= session->credits) return;
    const auto slot = session->host_slots->loan();
    if (!slot) return;
    const auto to = session->gpu == nullptr ? slot : session->device_slots->loan();
    if (!to || !session->host->back(*slot).ok()) return session->host_slots->abort(*slot);
    const std::uint64_t step = session->next_step++;
    stamp(session->host->slot(*slot).data(), options_.batch_bytes, step);
    if (session->gpu != nullptr) {
      copy(session, *slot, *to, step);
      continue;
    }
    session->host_slots->commit(*slot);
    send(*session, *slot, step);
  }
}

void BatchSource::copy(const SessionPtr& session, std::uint32_t from, std::uint32_t to,
                       std::uint64_t step) {
  const std::byte* const slot = session->host->slot(from).data();
  const std::uint64_t base = to * session->layout.device_bytes();
  delivery::DeviceCopy copy{.pinned = session->pinned.get(),
                            .slot = from,
                            .to = session->device.get(),
                            .parts = {},
                            .beside = {}};
  for (const auto& part : session->layout.parts(slot, kRows).device)
    copy.parts.push_back({.from = slot + part.from, .to = base + part.to, .bytes = part.bytes});
  copy.beside = [session, to] { return session->beside->back(to); };
  session->gpu->copy(std::move(copy), [this, session, from, to, step](const Status& status) {
    post_([this, session, from, to, step, status] {
      session->host_slots->abort(from);
      if (session->closed) return;
      if (!status.ok()) {
        session->connection->fail(status);
        return;
      }
      session->device_slots->commit(to);
      send(*session, to, step);
      pump(session);
    });
  });
}

void BatchSource::send(Session& session, std::uint32_t slot, std::uint64_t step) {
  const bool on_gpu = session.gpu != nullptr;
  const delivery::Arena& arena = on_gpu ? *session.beside : *session.host;
  const delivery::BatchNotice notice{
      .lease = *session.lent().acquire(slot, session.connection->id()),
      .arena_id = arena.id(),
      .schema_id = 1,
      .slot_offset = arena.slot_offset(slot),
      .slot_bytes = arena.shape().slot_bytes,
      .epoch = step / kSteps,
      .step = step % kSteps,
      .next_position = (step % kSteps + 1) * kRows,
      .turn = step,
      .rows = kRows};
  const std::uint64_t bytes = session.layout.device_bytes();
  if (on_gpu) {
    session.connection->send_device_batch(notice, {.offset = slot * bytes, .bytes = bytes});
  } else {
    session.connection->send_batch(notice);
  }
}

void BatchSource::release(delivery::Connection& connection, std::uint64_t lease) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) return;
  (void)found->second->lent().release(lease, connection.id());
  pump(found->second);
}

void BatchSource::seek(delivery::Connection& connection, const delivery::SeekRequest&) {
  connection.fail(Status(Code::kUnimplemented, "made-up batches come in one order"));
}

void BatchSource::query(delivery::Connection& connection, const delivery::QueryRequest& request) {
  switch (request.kind) {
    case wire::QueryKind::kStats:
      connection.send_blob(wire::BlobKind::kStats, request.serial,
                           std::make_shared<std::string>("{}"));
      return;
    case wire::QueryKind::kClasses:
      connection.send_blob(wire::BlobKind::kClasses, request.serial,
                           std::make_shared<std::string>());
      return;
    case wire::QueryKind::kUris: break;
  }
  connection.send_refused(request.serial,
                          Status(Code::kUnimplemented, "made-up batches have no uris"));
}

void BatchSource::apply(delivery::Connection& connection, const delivery::ApplyWish& wish) {
  connection.send_refused(
      wish.serial, Status(Code::kUnimplemented, "made-up batches have no pipeline to change"));
}

void BatchSource::closed(delivery::Connection& connection, delivery::CloseCause) {
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) return;
  found->second->closed = true;
  found->second->lent().retire(connection.id());
}

// A copy that is under way keeps its memory until it is over.
void BatchSource::exited(delivery::Connection& connection) { sessions_.erase(connection.id()); }

}  // namespace spdld::gpu
