// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

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
  std::optional<std::uint32_t> moves = {};
  std::optional<std::uint64_t> batch_size = {};
  bool from_ledger = false;
  std::map<std::string, std::string> vars = {};
  std::string pipeline_file = {};
  std::uint32_t replicas = 1;
  std::uint32_t replica = 0;
  std::optional<std::uint32_t> credits = {};
  std::string device = {};
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
  // The daemon with its ranks attached, and another one that knows of pipeline 'p' alone.
  void die_and_start() {
    sessions_->suspend();
    stop();
    start();
    apply(yaml("p", "drop"));
  }
  Rank attach(const Wish& wish) {
    Rank consumer = connect();
    delivery::AttachRequest request;
    request.pipeline = wish.pipeline;
    request.job = wish.job;
    request.pipeline_yaml = wish.pipeline_yaml;
    request.env = wish.env;
    request.shard = wish.shard;
    request.num_shards = wish.num_shards;
    request.incarnation = wish.incarnation;
    request.reconnect = wish.reconnect;
    request.moves = wish.moves;
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
  // Job 'j' on pipeline 'q' of ninety files.
  void declare_on_more(std::uint32_t replicas = 1) {
    for (int i = 10; i < 100; ++i) files_.file("more/" + std::to_string(i) + ".bin", "bytes");
    std::string text = yaml("q", "drop");
    text.replace(text.find("/data"), 5, "/more");
    apply(text);
    JobRequest request = declared(0);
    request.pipeline = "q";
    request.replicas = replicas;
    ASSERT_TRUE(sessions_->create_job(self_, request));
  }
  static JobRequest declared(std::uint64_t max_epochs) {
    JobRequest request;
    request.job = "j";
    request.pipeline = "p";
    request.max_epochs = max_epochs;
    return request;
  }
};

}  // namespace spdld::session
