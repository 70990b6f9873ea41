// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "delivery/data_server.h"
#include "delivery/peer.h"
#include "delivery/slots.h"
#include "op/tensor_spec.h"
#include "spdld/loader.h"
#include "tests/support/scratch_dir.h"

namespace spdld::test {

// What every batch of the fake daemon holds: step s of epoch e has value(e, s) in all of "image",
// s * rows + row in "label" and "__index", "row <i>" in "caption".
inline std::uint8_t value_of(std::uint64_t epoch, std::uint64_t step) {
  return static_cast<std::uint8_t>(epoch * 31 + step * 7 + 1);
}

struct FakePipeline {
  std::uint64_t steps = 5;
  std::uint64_t epochs = 0;
  std::uint32_t rows = 4;
  std::uint64_t image_bytes = 32 * 1024;  // a row
  std::uint64_t caption_bytes = 0;        // a row, at least
  std::string order_digest = "0rder";
  std::vector<std::string> classes = {"cat", "dog"};
  delivery::ArenaKind arena_kind = delivery::ArenaKind::kMemfd;
  bool stalls = false;         // attaches, and then sends nothing
  std::string stands_at = {};  // but that it waits for this
  std::string notice = {};     // told before the first batch
  std::uint32_t version = 3;
};

// The layout of a batch of that pipeline.
inline std::vector<wire::FieldLayout> layout_of(const FakePipeline& pipeline) {
  const std::uint64_t rows = pipeline.rows;
  std::vector<wire::FieldLayout> fields;
  std::uint64_t at = 0;
  const auto add = [&](const char* name, FieldKind kind, DType dtype,
                       std::vector<std::int64_t> shape, std::uint64_t bytes, std::uint32_t flags) {
    wire::FieldLayout field{};
    std::strcpy(field.name, name);
    field.kind = kind;
    field.dtype = dtype;
    field.ndim = static_cast<std::uint32_t>(shape.size());
    field.flags = flags;
    std::copy(shape.begin(), shape.end(), field.shape);
    field.offset = at;
    field.capacity_bytes = bytes;
    at += (bytes + 255) / 256 * 256;
    if (kind == FieldKind::kBytes) {
      field.offsets_offset = at;
      at += ((rows + 1) * 8 + 255) / 256 * 256;
    }
    fields.push_back(field);
  };
  add("image", FieldKind::kDense, DType::kUInt8, {static_cast<std::int64_t>(pipeline.image_bytes)},
      rows * pipeline.image_bytes, 0);
  add("label", FieldKind::kDense, DType::kInt64, {}, rows * 8, 0);
  add("caption", FieldKind::kBytes, DType::kUInt8, {}, rows * (16 + pipeline.caption_bytes), 0);
  add(wire::kIndexField, FieldKind::kDense, DType::kInt64, {}, rows * 8, wire::kFieldMeta);
  add(wire::kValidField, FieldKind::kDense, DType::kBool, {}, rows, wire::kFieldMeta);
  return fields;
}

// Writes the batch at a position to a slot; `with_image`: all of it.
inline void fill_fake_slot(const FakePipeline& pipeline, std::byte* bytes,
                           const delivery::StreamPosition& at, bool with_image = true) {
  const auto fields = layout_of(pipeline);
  if (with_image) {
    std::memset(bytes + fields[0].offset, value_of(at.epoch, at.step),
                pipeline.rows * pipeline.image_bytes);
  }
  std::int64_t text_end = 0;
  std::memcpy(bytes + fields[2].offsets_offset, &text_end, 8);
  for (std::uint64_t row = 0; row < pipeline.rows; ++row) {
    const auto index = static_cast<std::int64_t>(at.step * pipeline.rows + row);
    std::memcpy(bytes + fields[1].offset + row * 8, &index, 8);
    std::memcpy(bytes + fields[3].offset + row * 8, &index, 8);
    bytes[fields[4].offset + row] = std::byte{1};
    std::string caption = "row " + std::to_string(index);
    caption.resize(std::max<std::size_t>(caption.size(), pipeline.caption_bytes), '.');
    std::memcpy(bytes + fields[2].offset + text_end, caption.data(), caption.size());
    text_end += static_cast<std::int64_t>(caption.size());
    std::memcpy(bytes + fields[2].offsets_offset + (row + 1) * 8, &text_end, 8);
  }
}

// The run that every fake daemon's job is in, and its branch.
inline constexpr std::uint64_t kFakeRun = 77;
inline constexpr std::uint32_t kFakeBranch = 2;

// A session layer made of nothing but delivery's parts: one endless job, one consumer a shard, all
// on the dispatcher's thread.
class FakeService final : public delivery::DataService {
 public:
  explicit FakeService(FakePipeline pipeline) : pipeline_(std::move(pipeline)) {}

  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override {
    if (request.pipeline == "missing") {
      connection->fail(Status(Code::kNotFound, "there is no pipeline 'missing'"));
      return;
    }
    attaches.push_back(request);
    Session session;
    session.at =
        request.start == wire::StartMode::kCursor ? request.cursor : delivery::StreamPosition{};
    if (request.start == wire::StartMode::kLedger) session.at.epoch = 7;
    session.swaps = swap_epoch_ != 0;
    session.pipeline = session.swaps && session.at.epoch >= swap_epoch_ ? swap_to : pipeline_;
    if (!request.order_digest.empty() && request.order_digest != session.pipeline.order_digest) {
      connection->fail(Status(Code::kFailedPrecondition, "the cursor is of another order"));
      return;
    }
    if (request.reconnect) ++reconnects;
    session.connection = connection;
    session.credits = request.credits.value_or(4);
    const bool of_this_run = request.in_run.run == kFakeRun;
    session.turn = of_this_run ? request.in_run.turn : 0;
    const std::uint32_t branch = of_this_run ? request.in_run.branch : 0;
    const FakePipeline& pipeline = session.pipeline;
    connection->send_progress(1, 2, "indexing");
    connection->send_attached({.session = connection->id(),
                               .items = pipeline.steps * pipeline.rows,
                               .steps_per_epoch = pipeline.steps,
                               .batch_size = pipeline.rows,
                               .seed = request.seed.value_or(42),
                               .shard = request.shard.value_or(0),
                               .num_shards = request.num_shards.value_or(1),
                               .credits = session.credits,
                               .start = session.at,
                               .in_run = {kFakeRun, branch, session.turn},
                               .epochs = pipeline.epochs,
                               .pipeline_version = pipeline.version,
                               .order_digest = pipeline.order_digest,
                               .pipeline = request.pipeline,
                               .job = request.job});
    open_arena(session);
    connection->send_schema(session.schema_id, pipeline.version, layout_of(pipeline));
    if (!pipeline_.notice.empty()) connection->send_notice(pipeline_.notice);
    if (!pipeline_.stands_at.empty()) connection->send_standstill(pipeline_.stands_at);
    pump(sessions_.emplace(connection->id(), std::move(session)).first->second);
  }
  void release(delivery::Connection& connection, std::uint64_t lease) override {
    const auto found = sessions_.find(connection.id());
    const auto frees = [&](const Memory& memory) {
      return memory.slots->release(lease, connection.id());
    };
    if (found == sessions_.end() ||
        !(frees(found->second.memory) ||
          std::any_of(found->second.retired.begin(), found->second.retired.end(), frees))) {
      ++bad_releases;
      return;
    }
    ++releases;
    pump(found->second);
  }
  void seek(delivery::Connection& connection, const delivery::SeekRequest& request) override {
    seeks.push_back(request);
    Session& session = sessions_.at(connection.id());
    delivery::StreamPosition to{.epoch = request.epoch};
    if (request.skip > 0) {
      const auto sent = session.sent.find(request.turn);
      to = sent != session.sent.end() ? sent->second : session.at;
      to.step = std::min(to.step + request.skip, session.pipeline.steps);
      to.position = to.step * session.pipeline.rows;
    }
    if (to.epoch == 666) {
      connection.send_error(Status(Code::kOutOfRange, "there is no epoch 666"));
      return;
    }
    session.at = to;
    session.turn = request.turn;
    session.sent.erase(session.sent.lower_bound(request.turn), session.sent.end());
    session.seek = request.serial;
    session.ended = false;
    const bool went_back = session.swaps && session.at.epoch < swap_epoch_;
    connection.send_reset(
        {.to = session.at, .steps_per_epoch = session.pipeline.steps, .seek = session.seek});
    if (went_back) change_to(session, pipeline_);
    pump(session);
  }
  void handed(delivery::Connection&, const delivery::HandedNotice& notice) override {
    handed_turns.push_back(notice.turn);
  }
  void query(delivery::Connection& connection, const delivery::QueryRequest& request) override {
    auto text = std::make_shared<std::string>();
    if (request.kind == wire::QueryKind::kUris) {
      for (const std::int64_t item : request.items)
        *text += request.order_digest + "/" + std::to_string(item) + '\0';
      connection.send_blob(wire::BlobKind::kUris, request.serial, text);
      return;
    }
    if (request.kind == wire::QueryKind::kClasses) {
      for (const std::string& name : pipeline_.classes) *text += name + '\0';
    } else {
      *text = "{\"batches\": 1}";
    }
    connection.send_blob(request.kind == wire::QueryKind::kClasses ? wire::BlobKind::kClasses
                                                                   : wire::BlobKind::kStats,
                         request.serial, text);
  }
  // Swaps to `swap_to` with the epoch after the one that is being sent, whatever is applied; tells
  // `apply_refusal` instead if there is one.
  void apply(delivery::Connection& connection, const delivery::ApplyWish& wish) override {
    applies.push_back(wish);
    Session& session = sessions_.at(connection.id());
    connection.send_progress(0, 0, "making a batch with it");
    if (!apply_refusal.ok()) {
      connection.send_refused(wish.serial, apply_refusal);
      return;
    }
    swap_epoch_ = session.at.epoch + 1;
    session.swaps = true;
    connection.send_applied(wish.serial, {.version = swap_to.version, .epoch = swap_epoch_});
  }
  void waited(delivery::Connection&, const delivery::WaitedNotice& notice) override {
    waited_notices.push_back(notice);
  }
  void detach(delivery::Connection& connection) override {
    sessions_.at(connection.id()).ended = true;
    ++detaches;
  }
  void closed(delivery::Connection& connection, delivery::CloseCause) override {
    const auto found = sessions_.find(connection.id());
    if (found != sessions_.end()) retired += found->second.memory.slots->retire(connection.id());
    ++closes;
  }
  void exited(delivery::Connection& connection) override {
    sessions_.erase(connection.id());
    ++exits;
  }

  // As an operator would, over gRPC, at the first turn that was not sent; on the dispatcher's
  // thread.
  void move_all(const delivery::StreamPosition& to) {
    for (auto& [id, session] : sessions_) {
      session.at = to;
      session.ended = false;
      session.connection->send_reset(
          {.to = to, .steps_per_epoch = session.pipeline.steps, .seek = session.seek});
      pump(session);
    }
  }
  // Nobody reads any more what the batches were that the run had beyond this.
  void begin_branch() { branch_ = kFakeBranch; }
  void fail_all(const Status& status) {
    for (auto& [id, session] : sessions_) session.connection->fail(status);
  }
  void say_bye(wire::ByeReason reason, const std::string& text) {
    for (auto& [id, session] : sessions_) session.connection->bye(reason, text);
  }
  void replace_arenas() {
    for (auto& [id, session] : sessions_) {
      replace_arena(session);
      pump(session);
    }
  }

  // Of the dispatcher's thread.
  FakePipeline swap_to = {};
  Status apply_refusal = {};
  std::vector<delivery::ApplyWish> applies;
  std::vector<delivery::WaitedNotice> waited_notices;
  std::vector<delivery::AttachRequest> attaches;
  std::vector<delivery::SeekRequest> seeks;
  std::vector<std::uint64_t> handed_turns;
  std::set<std::uint64_t> turns_to_tell;  // of batches that ask for a Handed

  std::atomic<int> releases{0};
  std::atomic<int> bad_releases{0};
  std::atomic<int> reconnects{0};
  std::atomic<int> detaches{0};
  std::atomic<int> closes{0};
  std::atomic<int> exits{0};  // what they had is free
  std::atomic<int> retired{0};

 private:
  struct Memory {
    std::unique_ptr<delivery::Arena> arena;
    std::unique_ptr<delivery::SlotTable> slots;
  };
  struct Session {
    delivery::ConnectionPtr connection;
    std::uint32_t credits = 0;
    delivery::StreamPosition at;
    std::uint64_t turn = 0;                                  // of the next batch
    std::map<std::uint64_t, delivery::StreamPosition> sent;  // by turn
    std::uint32_t seek = 0;
    bool ended = false;
    bool swaps = false;  // at swap_epoch_, to swap_to
    FakePipeline pipeline;
    std::uint32_t schema_id = 1;
    Memory memory;
    std::vector<Memory> retired;
  };

  static std::uint64_t slot_bytes(const FakePipeline& pipeline) {
    return layout_of(pipeline).back().offset + 256;
  }
  void open_arena(Session& session) {
    session.memory.arena =
        std::move(*delivery::Arena::create({.kind = session.pipeline.arena_kind,
                                            .slot_bytes = slot_bytes(session.pipeline),
                                            .slot_count = session.credits + 1},
                                           next_arena_++, budget_));
    session.memory.slots = std::make_unique<delivery::SlotTable>(session.credits + 1);
    session.connection->send_arena_open(*session.memory.arena);
  }
  void replace_arena(Session& session) {
    session.connection->send_arena_retire(session.memory.arena->id());
    session.retired.push_back(std::move(session.memory));
    open_arena(session);
  }
  // The batches that follow are made by another version of the pipeline.
  void change_to(Session& session, const FakePipeline& pipeline) {
    if (session.pipeline.version == pipeline.version) return;
    session.pipeline = pipeline;
    session.connection->send_version({.items = pipeline.steps * pipeline.rows,
                                      .steps_per_epoch = pipeline.steps,
                                      .batch_size = pipeline.rows,
                                      .pipeline_version = pipeline.version,
                                      .order_digest = pipeline.order_digest});
    session.connection->send_schema(++session.schema_id, pipeline.version, layout_of(pipeline));
    replace_arena(session);
  }

  void pump(Session& session) {
    const std::uint64_t id = session.connection->id();
    while (!session.pipeline.stalls && !session.ended) {
      if (session.at.step >= session.pipeline.steps) {
        const bool last = pipeline_.epochs != 0 && session.at.epoch + 1 >= pipeline_.epochs;
        session.connection->send_epoch_end(session.at.epoch, session.pipeline.steps, session.seek,
                                           last);
        session.at = {.epoch = session.at.epoch + 1, .position = 0, .step = 0};
        session.ended = last;
        continue;
      }
      std::uint32_t held = session.memory.slots->held(id);
      for (const Memory& old : session.retired) held += old.slots->held(id);
      if (held >= session.credits) return;
      if (session.swaps && session.at.epoch >= swap_epoch_) change_to(session, swap_to);
      const auto slot = session.memory.slots->loan();
      if (!slot) return;
      fill_fake_slot(session.pipeline, session.memory.arena->slot(*slot).data(), session.at);
      session.memory.slots->commit(*slot);
      const std::uint64_t position = (session.at.step + 1) * session.pipeline.rows;
      session.connection->send_batch({.lease = *session.memory.slots->acquire(*slot, id),
                                      .arena_id = session.memory.arena->id(),
                                      .schema_id = session.schema_id,
                                      .slot_offset = session.memory.arena->slot_offset(*slot),
                                      .slot_bytes = slot_bytes(session.pipeline),
                                      .epoch = session.at.epoch,
                                      .step = session.at.step,
                                      .next_position = position,
                                      .turn = session.turn,
                                      .rows = session.pipeline.rows,
                                      .seek = session.seek,
                                      .branch = branch_,
                                      .tell = turns_to_tell.contains(session.turn)});
      session.sent[session.turn++] = session.at;
      ++session.at.step;
      session.at.position = position;
    }
  }

  const FakePipeline pipeline_;
  std::uint64_t swap_epoch_ = 0;  // 0: none
  std::uint32_t branch_ = 0;
  delivery::ArenaBudget budget_{1u << 30, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
  std::map<std::uint64_t, Session> sessions_;
  std::uint32_t next_arena_ = 1;
};

// A daemon in this process, which can be stopped and started again in the same directory.
class FakeDaemon {
 public:
  explicit FakeDaemon(FakePipeline pipeline = {}) : pipeline_(std::move(pipeline)) { start(); }
  ~FakeDaemon() { stop(); }

  void start() {
    service_ = std::make_unique<FakeService>(pipeline_);
    auto listener = delivery::listen_unix(lock_, dir_.path() + "/data.sock", SOCK_SEQPACKET, 0666);
    SPDLD_CHECK(listener.has_value());
    server_ = std::move(*delivery::DataServer::start(
        std::move(*listener), {.server_name = "fake 1.0"}, liveness_, *service_));
  }
  void stop() {
    if (server_) server_->stop();
    server_.reset();
  }
  // The daemon as it is without a socket: nobody answers.
  void vanish() {
    stop();
    std::filesystem::remove(dir_.path() + "/data.sock");
  }

  const std::string& address() const { return dir_.path(); }
  FakeService& service() { return *service_; }
  FakePipeline& pipeline() { return pipeline_; }  // of the next start()
  delivery::DataServer& server() { return *server_; }
  // Runs on the dispatcher's thread, and waits for it.
  void run(const std::function<void(FakeService&)>& task) {
    std::atomic<bool> done{false};
    server_->post([&] {
      task(*service_);
      done.store(true);
      done.notify_one();
    });
    done.wait(false);
  }

 private:
  FakePipeline pipeline_;
  ScratchDir dir_;
  delivery::RuntimeLock lock_ = std::move(*delivery::RuntimeLock::take(dir_.path()));
  delivery::PidfdLiveness liveness_;
  std::unique_ptr<FakeService> service_;
  std::unique_ptr<delivery::DataServer> server_;
};

// The only rank of a job of its own that reads the daemon's pipeline.
inline LoaderOptions options_for(const FakeDaemon& daemon) {
  return {.pipeline = "p",
          .job = "",
          .rank = 0,
          .world_size = 1,
          .address = daemon.address(),
          .timeout = std::chrono::seconds(60)};
}

}  // namespace spdld::test
