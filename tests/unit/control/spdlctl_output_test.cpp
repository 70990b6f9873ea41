// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sstream>

#include "ctl/listing.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

std::string printed(const Table& table) {
  std::ostringstream out;
  table.print(out);
  return out.str();
}

TEST(Table, AlignsColumnsAndLeavesNoSpacesAtTheEnd) {
  Table table({"NAME", ">COUNT", "NOTE"});
  table.add({"a", "12345678", "x"});
  table.add({"größer", "1", ""});
  EXPECT_EQ(printed(table),
            "NAME       COUNT  NOTE\n"
            "a       12345678  x\n"
            "größer         1  -\n");
}

TEST(Table, ShowsItsHeadingsWhenItIsEmpty) { EXPECT_EQ(printed(Table({"A", ">B"})), "A  B\n"); }

TEST(Table, LetsNoTextMoveTheCursor) {
  Table table({"URI"});
  table.add({"evil\x1b[2J\nname\x7f"});
  EXPECT_EQ(printed(table), "URI\nevil\\x1b[2J\\x0aname\\x7f\n");
}

TEST(Show, ChoosesUnitsForPeople) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(1023), "1023 B");
  EXPECT_EQ(show_bytes(1536), "1.5 KiB");
  EXPECT_EQ(show_bytes(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(show_seconds(1.234), "1.23s");
  EXPECT_EQ(show_seconds(200), "3m 20s");
  EXPECT_EQ(show_seconds(7300), "2h 1m");
  EXPECT_EQ(show_seconds(93'600), "1d 2h");
  EXPECT_EQ(show_seconds(-1), "-");
  EXPECT_EQ(show_microseconds(850), "850us");
  EXPECT_EQ(show_microseconds(12'500), "12.5ms");
  EXPECT_EQ(show_microseconds(1'250'000), "1.25s");
}

TEST(Json, KeepsEveryFieldWithItsKind) {
  v1::Failure failure;
  failure.set_job("run");
  failure.set_position(UINT64_MAX);
  EXPECT_EQ(to_json(failure).dump(),
            R"({"job":"run","pipeline":"","epoch":0,"position":18446744073709551615,"item":0,)"
            R"("uri":"","code":"","message":"","replaced_by":null})");
  failure.set_replaced_by(0);
  EXPECT_EQ(to_json(failure)["replaced_by"], 0);
}

TEST(Json, NamesModesAndNestsShards) {
  v1::Job job;
  job.set_epochs(v1::EPOCH_MODE_MANUAL);
  job.add_shards()->set_step(7);
  const auto json = to_json(job);
  EXPECT_EQ(json["epochs"], "manual");
  EXPECT_EQ(json["declared"], false);
  EXPECT_EQ(json["shards"][0]["step"], 7);
}

TEST(Listing, ShowsPipelinesWithTensorsAndState) {
  google::protobuf::RepeatedPtrField<v1::Pipeline> pipelines;
  v1::Pipeline& ready = *pipelines.Add();
  ready.set_name("imagenet");
  ready.set_version(2);
  ready.set_items(1'281'167);
  ready.set_classes(1000);
  ready.set_batch_size(64);
  ready.set_jobs(1);
  ready.set_state("ready");
  v1::Tensor& image = *ready.add_tensors();
  image.set_name("image");
  image.set_kind("dense");
  image.set_dtype("float32");
  for (const int extent : {3, 224, -1}) image.add_shape(extent);
  v1::Pipeline& failed = *pipelines.Add();
  failed.set_name("voc");
  failed.set_state("failed");
  failed.set_error("/data/voc is gone");
  EXPECT_EQ(printed(pipelines_table(pipelines)),
            "NAME      VERSION    ITEMS  CLASSES  BATCH  JOBS  TENSORS                   STATE\n"
            "imagenet        2  1281167     1000     64     1  image float32[3, 224, ?]  ready\n"
            "voc             0        0        0      0     0  -                         "
            "failed: /data/voc is gone\n");
}

TEST(Listing, ShowsAJobWhereItsLastShardIs) {
  google::protobuf::RepeatedPtrField<v1::Job> jobs;
  v1::Job& job = *jobs.Add();
  job.set_job("run-7");
  job.set_pipeline("imagenet");
  job.set_num_shards(3);
  job.set_max_epochs(90);
  const auto shard = [&](std::uint64_t session, std::uint64_t epoch, std::uint64_t step) {
    v1::Shard& added = *job.add_shards();
    added.set_session(session);
    added.set_epoch(epoch);
    added.set_step(step);
  };
  shard(4, 2, 0);
  shard(5, 1, 99);
  shard(0, 1, 98);
  const std::string text = printed(jobs_table(jobs));
  EXPECT_NE(text.find("ATTACHED  EPOCH  STEP"), std::string::npos) << text;
  EXPECT_NE(text.find("       2      1    98"), std::string::npos) << text;
  EXPECT_NE(text.find("auto, 90 in all"), std::string::npos) << text;
}

TEST(Listing, ShowsTheDaemonWithItsWarnings) {
  v1::Daemon daemon;
  daemon.set_version("0.1.0");
  daemon.set_pid(42);
  daemon.set_uptime_s(61);
  daemon.set_cpu_threads(8);
  daemon.set_io_threads(16);
  daemon.set_arena_used(512 << 20);
  daemon.set_arena_budget(2ull << 30);
  daemon.set_arena_kind("memfd");
  daemon.set_pipelines(1);
  daemon.set_batches(10);
  daemon.set_rows(640);
  daemon.add_warnings("state_dir is full");
  std::ostringstream out;
  print_status(daemon, "/run/spdld", out);
  EXPECT_EQ(out.str(),
            "spdld 0.1.0 at /run/spdld, pid 42, up 1m 1s\n"
            "threads    8 cpu, 16 io\n"
            "arenas     512.0 MiB of 2.0 GiB (25 %), memfd\n"
            "serving    1 pipelines, 0 jobs, 0 sessions\n"
            "delivered  10 batches, 640 rows\n"
            "warning    state_dir is full\n");
}

}  // namespace
}  // namespace spdld::ctl
