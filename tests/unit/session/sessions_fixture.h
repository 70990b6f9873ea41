// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tests/unit/session/session_layer.h"

namespace spdld::session {

// What an attach asks for.
struct Wish {
  std::string pipeline = "p";
  std::string job = {};
  std::string pipeline_yaml = {};
  std::map<std::string, std::string> env = {};
  std::optional<std::uint32_t> shard = {};
  std::optional<std::uint32_t> num_shards = {};
  std::uint32_t incarnation = 0;
  bool reconnect = false;
  std::optional<delivery::StreamPosition> cursor = {};
  delivery::RunTurn in_run = {};
  std::string order_digest = {};
  std::optional<std::uint64_t> batch_size = {};
  bool from_ledger = false;
  std::map<std::string, std::string> vars = {};
  std::string pipeline_file = {};
  std::uint32_t replicas = 1;
  std::uint32_t replica = 0;
  std::optional<std::uint32_t> credits = {};
  std::string device = {};
  pid_t pid = 0;  // 0: that of the test
};

// The session layer over a dataset of ten small files, in batches of two.
class SessionsTest : public SessionLayer {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    // Other users' consumers read them, too.
    std::filesystem::permissions(files_.path("."), std::filesystem::perms(0755));
    start();
    apply(yaml("p", "drop"));
  }
  std::string yaml(const std::string& name, const std::string& last) const {
    return "pipeline: " + name + "\nsource:\n  files: {root: " + files_.path("data") +
           ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n" +
           "batch: {size: 2, max_bytes: 4KiB, last: " + last + "}\n";
  }
  void apply(const std::string& text) {
    job::ApplyRequest request;
    request.yaml = text;
    request.file = "-";
    const auto applied = service_->apply(self_, request, nullptr);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  // Beside the store, on its file.
  void run_sql(const char* statement) {
    const MutexLock nobody_writes(sessions_->table().records());
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(files_.path("state/spdld.sqlite").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, statement, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  // The daemon with its ranks attached, and another one that knows of pipeline 'p' alone.
  void die_and_start() {
    sessions_->suspend();
    stop();
    start();
    apply(yaml("p", "drop"));
  }
  Rank attach(const Wish& wish) {
    Rank consumer = connect(self_.uid, wish.pid == 0 ? self_.pid : wish.pid);
    delivery::AttachRequest request;
    request.pipeline = wish.pipeline;
    request.job = wish.job;
    request.pipeline_yaml = wish.pipeline_yaml;
    request.env = wish.env;
    request.shard = wish.shard;
    request.num_shards = wish.num_shards;
    request.incarnation = wish.incarnation;
    request.reconnect = wish.reconnect;
    request.in_run = wish.in_run;
    request.order_digest = wish.order_digest;
    request.batch_size = wish.batch_size;
    request.vars = wish.vars;
    request.pipeline_file = wish.pipeline_file;
    request.replicas = wish.replicas;
    request.credits = wish.credits;
    request.device = wish.device;
    if (wish.replicas > 1) request.replica = std::to_string(wish.replica);
    if (wish.from_ledger) request.start = wire::StartMode::kLedger;
    if (wish.cursor) {
      request.start = wire::StartMode::kCursor;
      request.cursor = *wish.cursor;
    }
    sessions_->attach(consumer.connection, std::move(request));
    return consumer;
  }
  // A process whose loop reads batches, and knows its cursor as a client does.
  struct Loop {
    Rank rank;
    Wish wish;  // to attach again where its loop is now
    std::uint32_t seek = 0;
  };
  Loop open(Wish wish) {
    Rank rank = attach(wish);
    Loop loop{.rank = std::move(rank), .wish = std::move(wish)};
    take_up(loop);
    return loop;
  }
  // Waits for the answer to its attach.
  void take_up(Loop& loop) {
    std::string texts;
    const auto told = loop.rank.next<wire::AttachedFrame>(wire::FrameType::kAttached, &texts);
    loop.wish.cursor =
        delivery::StreamPosition{.epoch = told.epoch, .position = told.position, .step = told.step};
    loop.wish.in_run = {.run = told.run, .branch = told.branch, .turn = told.turn};
    loop.wish.order_digest = digest_of(texts);
  }
  // The next batch, given back at once.
  wire::BatchFrame step(Loop& loop) {
    while (const auto frame = test::receive_frame(loop.rank.socket.get())) {
      if (frame->type() == wire::FrameType::kVersion)
        loop.wish.order_digest = digest_of(frame->text_behind<wire::VersionFrame>());
      if (frame->type() == wire::FrameType::kReset) {
        const auto reset = frame->as<wire::ResetFrame>();
        if (reset.seek == loop.seek && reset.seek > 0)
          loop.wish.cursor = delivery::StreamPosition{
              .epoch = reset.epoch, .position = reset.position, .step = reset.step};
      }
      if (frame->type() == wire::FrameType::kEpochEnd) {
        const auto end = frame->as<wire::EpochEndFrame>();
        if (end.seek == loop.seek)
          loop.wish.cursor = delivery::StreamPosition{.epoch = end.epoch + 1};
      }
      if (frame->type() != wire::FrameType::kBatch) continue;
      const auto batch = frame->as<wire::BatchFrame>();
      const bool counts = batch.seek == loop.seek;
      if (counts) {
        EXPECT_EQ(batch.turn, loop.wish.in_run.turn);
        loop.wish.cursor = delivery::StreamPosition{
            .epoch = batch.epoch, .position = batch.next_position, .step = batch.step + 1};
        loop.wish.in_run.branch = batch.branch;
        loop.wish.in_run.turn = batch.turn + 1;
        if (batch.tell == 1) sessions_->handed(*loop.rank.connection, {.turn = batch.turn + 1});
      }
      sessions_->release(*loop.rank.connection, batch.lease);
      if (counts) return batch;
    }
    ADD_FAILURE() << "hung up instead of a batch";
    return {};
  }
  static job::StepAt at(const wire::BatchFrame& batch) { return {batch.epoch, batch.step}; }
  // The place of the last of so many batches.
  job::StepAt read(Loop& loop, std::uint64_t batches) {
    wire::BatchFrame batch{};
    for (std::uint64_t i = 0; i < batches && !HasFailure(); ++i) batch = step(loop);
    return at(batch);
  }
  // Its loop says set_epoch, or skip_steps.
  void go_to_epoch(Loop& loop, std::uint64_t epoch) {
    say(loop, {.turn = loop.wish.in_run.turn, .epoch = epoch});
  }
  void skip(Loop& loop, std::uint32_t steps) {
    say(loop, {.turn = loop.wish.in_run.turn, .skip = steps});
  }
  void say(Loop& loop, delivery::SeekRequest request) {
    request.serial = ++loop.seek;
    sessions_->seek(*loop.rank.connection, request);
  }
  void kill(const Loop& loop) { hang_up(loop.rank); }
  // The same one, after its connection was lost.
  Loop reconnect(Wish wish) {
    wish.reconnect = true;
    return open(std::move(wish));
  }
  Loop reconnect(const Loop& loop) { return reconnect(loop.wish); }

  // Job 'j' on pipeline 'q' of ninety files.
  void declare_on_more(std::uint32_t replicas = 1) {
    for (int i = 10; i < 100; ++i) files_.file("more/" + std::to_string(i) + ".bin", "bytes");
    apply_more();
    JobRequest request = declared(0);
    request.pipeline = "q";
    request.replicas = replicas;
    ASSERT_TRUE(sessions_->operate().create_job(self_, request));
  }
  void apply_more() {
    std::string text = yaml("q", "drop");
    apply(text.replace(text.find("/data"), 5, "/more"));
  }
  static JobRequest declared(std::uint64_t max_epochs) {
    JobRequest request;
    request.job = "j";
    request.pipeline = "p";
    request.max_epochs = max_epochs;
    return request;
  }

 private:
  // The first text of an answer.
  static std::string digest_of(const std::string& texts) {
    wire::TextHeader first{};
    std::memcpy(&first, texts.data(), sizeof first);
    EXPECT_EQ(first.key, wire::TextKey::kOrderDigest);
    return texts.substr(sizeof first, first.bytes);
  }
};

}  // namespace spdld::session
