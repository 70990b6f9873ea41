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
  EXPECT_EQ(printed(table), "URI\nevil\\x1b[2J\\nname\\x7f\n");
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
  EXPECT_EQ(show_rate(0), "0");
  EXPECT_EQ(show_rate(0.04), "0.0");
  EXPECT_EQ(show_rate(9.94), "9.9");
  EXPECT_EQ(show_rate(9.96), "10");
  EXPECT_EQ(show_rate(12'345.6), "12346");
  EXPECT_EQ(show_microseconds(850), "850us");
  EXPECT_EQ(show_microseconds(12'500), "12.5ms");
  EXPECT_EQ(show_microseconds(1'250'000), "1.25s");
}

TEST(Json, KeepsEveryFieldWithItsKind) {
  v1::Failure failure;
  failure.set_job("run");
  failure.set_position(UINT64_MAX);
  EXPECT_EQ(
      to_json(failure).dump(),
      R"({"job":"run","pipeline":"","epoch":null,"position":18446744073709551615,"item":null,)"
      R"("uri":"","code":"","message":"","replaced_by":null,"unix_ms":0,)"
      R"("ended_stream":false})");
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

TEST(Json, WritesMapsAsObjects) {
  v1::Phase phase;
  EXPECT_EQ(to_json(phase)["vars"], nlohmann::ordered_json::object());
  (*phase.mutable_vars())["size"] = "32";
  EXPECT_EQ(to_json(phase)["vars"]["size"], "32");
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

v1::Job running_job() {
  v1::Job job;
  job.set_job("run-7");
  job.set_pipeline("imagenet-train");
  job.set_pipeline_version(3);
  job.set_num_shards(4);
  job.set_replicas(2);
  job.set_batch_size(64);
  job.set_steps_per_epoch(5004);
  job.set_items(1'281'167);
  job.set_seed(42);
  job.set_replaced(3);
  job.set_replace_budget(12'811);
  job.set_max_epochs(90);
  job.mutable_limits()->set_weight(0.5);
  job.mutable_limits()->set_cpus(4);
  job.set_arena_bytes(3 << 20);
  job.set_cpu_s(6'000);
  job.set_rows_per_s(12'345.6);
  job.set_shared_rows(10'250'240);
  job.set_saved_cpu_s(2'000);
  const auto phase = [&](std::uint64_t epoch, std::uint32_t version) {
    v1::Phase& added = *job.add_phases();
    added.mutable_from()->set_epoch(epoch);
    added.set_pipeline_version(version);
    added.set_batch_size(64);
    (*added.mutable_vars())["size"] = "224";
  };
  phase(0, 3);
  phase(12, 4);
  job.mutable_ledger()->mutable_at()->set_epoch(11);
  job.mutable_ledger()->mutable_at()->set_step(4008);
  job.mutable_ledger()->set_position(1'026'048);
  job.mutable_ledger()->set_kept_unix_ms(1'760'000'000'000);
  const auto shard = [&](std::uint32_t number, std::uint32_t replica, std::uint64_t session,
                         std::uint64_t epoch, std::uint64_t step) {
    v1::Shard& added = *job.add_shards();
    added.set_shard(number);
    added.set_replica(replica);
    added.set_session(session);
    added.set_pid(session == 0 ? 0 : 900);
    added.set_epoch(epoch);
    added.set_step(step);
  };
  shard(0, 0, 4, 12, 0);
  shard(0, 1, 5, 11, 4013);
  shard(1, 0, 0, 11, 4012);
  return job;
}

google::protobuf::RepeatedPtrField<v1::Job> list_of(const v1::Job& job) {
  google::protobuf::RepeatedPtrField<v1::Job> jobs;
  *jobs.Add() = job;
  return jobs;
}

TEST(Listing, ShowsAJobWithItsSwitchItsGainAndItsLedgerIn120Columns) {
  v1::Job job = running_job();
  job.mutable_limits()->set_weight(1);
  const std::string text = printed(jobs_table(list_of(job)));
  EXPECT_EQ(text,
            "JOB    PIPELINE        VERSION         RANKS       AT  STEPS  ROWS/S     CPU    REUSED"
            "    SAVED   LEDGER  REPLACED\n"
            "run-7  imagenet-train  3 -> 4 at 12/0    2/8  11/4012   5004   12346  1h 40m  10250240"
            "  33m 20s  11/4008   3/12811\n");
  EXPECT_LE(text.find('\n'), 120u);
}

TEST(Listing, ShowsWeightsOnlyWhereOneIsNotOne) {
  auto jobs = list_of(running_job());
  const std::string text = printed(jobs_table(jobs));
  EXPECT_NE(text.find("STEPS  ROWS/S  WEIGHT     CPU"), std::string::npos) << text;
  EXPECT_NE(text.find(" 5004   12346     0.5  1h 40m"), std::string::npos) << text;
}

TEST(Listing, ShowsNoRateThatIsNotKnown) {
  v1::Job job = running_job();
  job.clear_rows_per_s();
  EXPECT_NE(printed(jobs_table(list_of(job))).find(" 5004       -     0.5"), std::string::npos);
}

TEST(Listing, ShowsTheVersionAloneOnceEveryShardHasChanged) {
  v1::Job job = running_job();
  for (v1::Shard& shard : *job.mutable_shards()) {
    shard.set_epoch(12);
    shard.set_step(0);
  }
  const std::string text = printed(jobs_table(list_of(job)));
  EXPECT_NE(text.find("imagenet-train  4          2/8  12/0"), std::string::npos) << text;
}

TEST(Listing, LeavesOutShardsThatAnotherNodeFeeds) {
  v1::Job job = running_job();
  for (v1::Shard& shard : *job.mutable_shards()) {
    shard.set_epoch(shard.session() == 0 ? 0 : 12);
    shard.set_step(0);
  }
  const std::string text = printed(jobs_table(list_of(job)));
  EXPECT_NE(text.find("imagenet-train  4          2/8  12/0"), std::string::npos) << text;
  for (v1::Shard& shard : *job.mutable_shards()) {
    if (shard.session() != 0) shard.set_epoch(0);
  }
  EXPECT_NE(printed(jobs_table(list_of(job))).find("3 -> 4 at 12/0    2/8  0/0"), std::string::npos)
      << "who is attached counts from the start";
}

TEST(Listing, ShowsOwnersOnlyWhereTheyDiffer) {
  auto jobs = list_of(running_job());
  *jobs.Add() = running_job();
  EXPECT_EQ(printed(jobs_table(jobs)).find("OWNER"), std::string::npos);
  jobs.Mutable(1)->set_owner(1000);
  EXPECT_NE(printed(jobs_table(jobs)).find("PIPELINE        OWNER  VERSION"), std::string::npos);
}

TEST(Listing, ShowsHowJobsEnded) {
  v1::Job job = running_job();
  job.mutable_end()->set_unix_ms(1'760'000'000'000);
  job.mutable_end()->set_how("failed: item 7 is gone");
  job.mutable_end()->mutable_at()->set_epoch(12);
  EXPECT_EQ(printed(ended_jobs_table(list_of(job))),
            "JOB    PIPELINE        VERSION  OWNER  ENDED                   AT  STEPS     CPU  "
            "REPLACED  HOW\n"
            "run-7  imagenet-train        3      0  2025-10-09 08:53:20Z  12/0   5004  1h 40m   "
            "3/12811  failed: item 7 is gone\n");
}

TEST(Listing, TellsReplacedItemsFromWhatEndedAShard) {
  google::protobuf::RepeatedPtrField<v1::Failure> failures;
  v1::Failure& replaced = *failures.Add();
  replaced.set_unix_ms(1'760'000'000'000);
  replaced.set_job("run-7");
  replaced.set_pipeline("pets");
  replaced.set_epoch(1);
  replaced.set_position(2);
  replaced.set_item(3);
  replaced.set_replaced_by(0);
  replaced.set_code("DATA_LOSS");
  replaced.set_uri("a.jpg");
  replaced.set_message("truncated");
  v1::Failure& ended = *failures.Add();
  ended = replaced;
  ended.clear_epoch();
  ended.clear_position();
  ended.clear_item();
  ended.clear_replaced_by();
  ended.clear_uri();
  ended.set_ended_stream(true);
  ended.set_code("RESOURCE_EXHAUSTED");
  ended.set_message("raise batch.max_bytes");
  EXPECT_EQ(printed(failures_table(failures)),
            "TIME                  JOB    PIPELINE  EPOCH  POSITION  ITEM  OUTCOME        CODE"
            "                URI    MESSAGE\n"
            "2025-10-09 08:53:20Z  run-7  pets          1         2     3  replaced by 0  DATA_LOSS"
            "           a.jpg  truncated\n"
            "2025-10-09 08:53:20Z  run-7  pets          -         -     -  shard ended    "
            "RESOURCE_EXHAUSTED  -      raise batch.max_bytes\n");
}

TEST(Listing, ShowsOneJobWithAllThatIsKnownOfIt) {
  v1::Job job = running_job();
  job.mutable_ledger()->set_conflict("shard 1 came with 11/4007");
  std::ostringstream out;
  print_job(job, out);
  const std::string text = out.str();
  EXPECT_EQ(text.substr(text.find("owner")),
            "owner      0; made by its first rank\n"
            "epochs     auto, 90 in all; of 5004 steps, 1281167 items, seed 42\n"
            "batches    64 rows on each of 4 shards with 2 replicas\n"
            "replaced   3 items after data errors, of 12811 that may be\n"
            "limits     weight 0.5, 4 CPU workers at most\n"
            "used       1h 40m of CPU, arenas of 3.0 MiB\n"
            "saved      33m 20s of CPU (25 %): 10250240 rows had been made by other jobs\n"
            "ledger     11/4008, position 1026048; on disk since 2025-10-09 08:53:20Z\n"
            "           shard 1 came with 11/4007\n"
            "\n"
            "FROM  VERSION  BATCH  VARS\n"
            "0/0         3     64  size=224\n"
            "12/0        4     64  size=224\n"
            "\n"
            "SHARD  REPLICA  SESSION  PID  EPOCH  STEP\n"
            "    0        0        4  900     12     0\n"
            "    0        1        5  900     11  4013\n"
            "    1        0        -    -     11  4012\n");
}

TEST(Listing, SaysOfAFreshJobThatNothingIsSharedAndNothingIsKept) {
  v1::Job job;
  job.set_job("run");
  std::ostringstream out;
  print_job(job, out);
  EXPECT_NE(out.str().find("saved      nothing: no other job and no cache had its rows\n"),
            std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("ledger     0/0, position 0; not on disk yet\n"), std::string::npos);
  EXPECT_EQ(out.str().find("REPLICA"), std::string::npos);
}

TEST(Listing, SaysOneOfWhatThereIsOneOf) {
  v1::Job job;
  job.set_job("run");
  job.set_steps_per_epoch(1);
  job.set_items(1);
  job.set_batch_size(1);
  job.set_num_shards(1);
  job.set_replaced(1);
  job.mutable_limits()->set_weight(1);
  job.mutable_limits()->set_cpus(1);
  std::ostringstream out;
  print_job(job, out);
  const std::string text = out.str();
  const std::size_t epochs = text.find("epochs");
  EXPECT_EQ(text.substr(epochs, text.find("used") - epochs),
            "epochs     auto; of 1 step, 1 item, seed 0\n"
            "batches    1 row on 1 shard\n"
            "replaced   1 item after data errors, of 0 that may be\n"
            "limits     weight 1, 1 CPU worker at most\n");
  v1::Daemon daemon;
  daemon.set_pipelines(1);
  daemon.set_jobs(1);
  daemon.set_sessions(1);
  daemon.set_batches(1);
  daemon.set_rows(1);
  std::ostringstream status;
  print_status(daemon, "/run/spdld", status);
  EXPECT_NE(status.str().find("serving    1 pipeline, 1 job, 1 session\n"
                              "delivered  1 batch, 1 row\n"),
            std::string::npos)
      << status.str();
}

TEST(Listing, ShowsReplicasOfSessionsOnlyWhereThereAreAny) {
  google::protobuf::RepeatedPtrField<v1::Session> sessions;
  v1::Session& session = *sessions.Add();
  session.set_id(7);
  session.set_job("run-7");
  session.set_pipeline("imagenet-train");
  session.set_pipeline_version(3);
  session.set_num_shards(8);
  session.set_epoch(11);
  session.set_step(4012);
  session.set_client("python");
  session.set_rows_per_s(3.46);
  EXPECT_EQ(printed(sessions_table(sessions)),
            "SESSION  JOB    PIPELINE        VERSION  SHARD  PID  UID       AT  HELD  READY  "
            "ROWS/S  BATCHES"
            "  WAITED  MEMORY  DEVICE  COMMAND\n"
            "      7  run-7  imagenet-train        3    0/8  ?      0  11/4012   0/0      0     "
            "3.5        0"
            "       -     0 B  host    python\n");
  *sessions.Add() = session;
  sessions.Mutable(1)->set_replica(1);
  EXPECT_NE(printed(sessions_table(sessions)).find("SHARD  REPLICA  PID"), std::string::npos);
}

TEST(Listing, ShowsWhichGpuASessionReadsOn) {
  google::protobuf::RepeatedPtrField<v1::Session> sessions;
  sessions.Add()->set_gpu("GPU-8f2a1b3c-0000-0000-0000-000000000000");
  EXPECT_NE(printed(sessions_table(sessions)).find(" GPU-8f2a1b3c "), std::string::npos);
}

TEST(Listing, ShowsHowJpegsWereReadOnceThereWereAny) {
  v1::Daemon daemon;
  v1::JpegIndex& jpeg = *daemon.mutable_jpeg();
  jpeg.set_limit_bytes(1 << 30);
  const auto shown = [&] {
    std::ostringstream out;
    print_status(daemon, "/run/spdld", out);
    return out.str();
  };
  EXPECT_EQ(shown().find("jpeg"), std::string::npos);
  jpeg.set_bytes(3 << 20);
  jpeg.set_files(500);
  jpeg.mutable_images()->set_indexed(1000);
  jpeg.mutable_images()->set_from_begin(500);
  jpeg.mutable_images()->set_by_libjpeg(2);
  EXPECT_NE(shown().find("jpeg       index: 3.0 MiB of 1.0 GiB, 500 files; images: 1000 by index, "
                         "500 from begin, 2 by libjpeg\n"),
            std::string::npos);
  jpeg.set_limit_bytes(0);
  EXPECT_NE(shown().find("jpeg       index: off; images: 1000 by index"), std::string::npos);
  EXPECT_EQ(shown().find("verify"), std::string::npos);
  jpeg.set_compared(20);
  EXPECT_NE(shown().find("           verify: 20 images compared, all with libjpeg's pixels\n"),
            std::string::npos);
  EXPECT_EQ(shown().find("report it"), std::string::npos);
  jpeg.set_different(1);
  EXPECT_NE(shown().find("verify: 20 images compared, 1 with other pixels than libjpeg's, which "
                         "were taken: report it\n"),
            std::string::npos);
}

TEST(Listing, ShowsAProcessOfAnotherPidNamespaceByItsHost) {
  google::protobuf::RepeatedPtrField<v1::Session> sessions;
  v1::Session& session = *sessions.Add();
  session.set_id(7);
  session.set_host("pod-7");
  session.set_host_pid(17);
  session.set_command("python train.py --lr 0.1");
  session.set_waited_s(4.0);
  session.set_waits(3);
  const std::string table = printed(sessions_table(sessions));
  EXPECT_NE(table.find("  17@pod-7  "), std::string::npos) << table;
  EXPECT_NE(table.find("  python train.py --lr 0.1\n"), std::string::npos) << table;
  session.set_pid(4711);  // in the daemon's own
  EXPECT_EQ(printed(sessions_table(sessions)).find("pod-7"), std::string::npos);
}

TEST(Listing, ShowsHowFastStagesAreAndHowBusy) {
  google::protobuf::RepeatedPtrField<v1::Stage> stages;
  v1::Stage& stage = *stages.Add();
  stage.set_job("run-7");
  stage.set_pipeline("pets");
  stage.set_stage("fetch");
  stage.set_tasks(128);
  stage.set_busy_s(0.5);
  stage.set_concurrency(16);
  stage.set_p50_us(4);
  stage.set_p99_us(18);
  *stages.Add() = stage;
  stages.Mutable(1)->set_rows_per_s(1234.5);
  stages.Mutable(1)->set_served(4.1);
  stages.Mutable(1)->set_busy_share(0.256);
  stages.Mutable(1)->set_bytes_per_s(3 << 20);
  EXPECT_EQ(
      printed(stages_table(stages)),
      "JOB    PIPELINE  STAGE  ROWS/S  SERVED  BUSY%  TASKS  FAILED   BUSY  WAITED  RUNNING  P50  "
      " P99   READ/S\n"
      "run-7  pets      fetch       -       -      -    128       0  0.50s   0.00s     0/16  4us  "
      "18us        -\n"
      "run-7  pets      fetch    1234     4.1     26    128       0  0.50s   0.00s     0/16  4us  "
      "18us  3.0 MiB\n");
  v1::OpTime& decode = *stages.Mutable(1)->add_ops();
  decode.set_field("image");
  decode.set_ops("decode_image");
  decode.set_rows(4);
  decode.set_spent_s(0.002);
  EXPECT_NE(printed(stages_table(stages)).find("image: decode_image 500us"), std::string::npos);
}

TEST(Listing, ShowsHowLongReadsWaitForThreadsAndForADevice) {
  google::protobuf::RepeatedPtrField<v1::Storage> storage;
  v1::Storage& slow = *storage.Add();
  slow.set_device("0:31");
  slow.set_mount("/data");
  slow.set_reading(240);
  slow.set_most(240);
  slow.set_stuck(2);
  slow.set_longest_s(12.5);
  slow.set_waiting(60);
  slow.set_reads(1000);
  slow.set_queued_s(0.0051);
  slow.set_served_s(0.02);
  storage.Add()->set_device("elsewhere");
  EXPECT_EQ(printed(storage_table(storage)),
            "DEVICE     MOUNT  READING  STUCK  LONGEST  WAITING  READS  QUEUED  SERVED\n"
            "0:31       /data  240/240      2   12.50s       60   1000   5.1ms  20.0ms\n"
            "elsewhere  -          0/0      0      0us        0      0     0us     0us\n");
}

TEST(Listing, ShowsTheProcessesThatCallFunctionsAndWhatOthersWaitFor) {
  google::protobuf::RepeatedPtrField<v1::Runner> runners;
  v1::Runner& serves = *runners.Add();
  serves.set_owner(1000);
  serves.set_call("mypkg.aug:cutout");
  serves.set_supervisor(70);
  serves.set_pid(72);
  serves.set_calls(10);
  serves.set_rows(320);
  serves.set_p50_us(1500);
  serves.set_p99_us(60);
  serves.set_restarts(1);
  serves.set_pss_bytes(std::uint64_t{30} << 20);
  serves.set_why("it was killed by signal 9");
  v1::Runner& lacks = *runners.Add();
  lacks.set_owner(1000);
  lacks.set_call("mypkg.aug:mix");
  lacks.set_why("start them by 'python'");
  EXPECT_EQ(
      printed(runners_table(runners)),
      " UID  PID  STARTED BY  CALLS  ROWS    P50   P99  RESTARTS    MEMORY  CALL              "
      "WHY\n"
      "1000   72          70     10   320  1.5ms  60us         1  30.0 MiB  mypkg.aug:cutout  "
      "it was killed by signal 9\n"
      "1000    -           -      0     0      -     -         0         -  mypkg.aug:mix     "
      "start them by 'python'\n");
}

TEST(Listing, ShowsHowManyRowsAStageHasRejected) {
  google::protobuf::RepeatedPtrField<v1::Stage> stages;
  stages.Add()->set_stage("fetch");
  EXPECT_EQ(printed(stages_table(stages)).find("REJECTED"), std::string::npos);
  stages.Add()->set_rejected(1234567);
  EXPECT_NE(printed(stages_table(stages)).find(" REJECTED\n"), std::string::npos);
  EXPECT_NE(printed(stages_table(stages)).find(" 1234567\n"), std::string::npos);
}

TEST(Listing, ShowsInWhichWayAStageReadItsJpegs) {
  google::protobuf::RepeatedPtrField<v1::Stage> stages;
  stages.Add()->set_stage("fetch");
  EXPECT_EQ(printed(stages_table(stages)).find("JPEG"), std::string::npos);
  stages.Add()->set_stage("decode_image");
  v1::JpegImages& images = *stages.Mutable(1)->mutable_jpeg();
  images.set_indexed(1000);
  images.set_from_begin(500);
  EXPECT_NE(printed(stages_table(stages)).find("  1000 by index, 500 from begin\n"),
            std::string::npos)
      << printed(stages_table(stages));
  images.set_by_libjpeg(2);
  images.set_by_coefficients(7);
  images.set_recoded(3);
  EXPECT_NE(
      printed(stages_table(stages))
          .find("  1000 by index, 500 from begin, 2 by libjpeg, 7 by coefficients, 3 recoded\n"),
      std::string::npos)
      << printed(stages_table(stages));
}

TEST(Listing, ShowsWhatAUserHasOfWhatOneMayHave) {
  google::protobuf::RepeatedPtrField<v1::User> users;
  v1::User& user = *users.Add();
  user.set_uid(1001);
  user.mutable_connections()->set_used(7);
  user.mutable_connections()->set_limit(512);
  user.mutable_attaches()->set_used(3);
  user.mutable_arena_bytes()->set_used(3 << 20);
  user.mutable_file_bytes()->set_used(2 << 20);
  user.mutable_file_bytes()->set_limit(512 << 20);
  user.mutable_listing_bytes()->set_used(5 << 20);
  user.mutable_unread_bytes()->set_used(1 << 20);
  user.mutable_unread_bytes()->set_limit(64 << 20);
  EXPECT_EQ(
      printed(users_table(users)),
      " UID  CONNECTIONS  WAITING  CONTROL  CALLS  LISTINGS  PIPELINES   LISTED  JOBS   ARENAS  "
      "            FILES  UNATTACHED            UNREAD    CPU\n"
      "1001        7/512        3        0      0         0          0  5.0 MiB     0  3.0 MiB  "
      "2.0 MiB/512.0 MiB         0 B  1.0 MiB/64.0 MiB  0.00s\n");
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
            "process    PSS not known, CPU pressure not known, priority not known\n"
            "arenas     512.0 MiB of 2.0 GiB (25 %), memfd\n"
            "serving    1 pipeline, 0 jobs, 0 sessions\n"
            "delivered  10 batches, 640 rows\n"
            "warning    state_dir is full\n");
  daemon.set_batches_per_s(2);
  daemon.set_rows_per_s(128);
  std::ostringstream later;
  print_status(daemon, "/run/spdld", later);
  EXPECT_NE(
      later.str().find("delivered  10 batches, 640 rows; 2.0 batches/s, 128 rows/s of late\n"),
      std::string::npos)
      << later.str();
}

TEST(Listing, ShowsWhatTheDaemonTakesAndByWhatItGivesWay) {
  v1::Daemon daemon;
  daemon.set_pss_bytes(3 << 20);
  daemon.set_cpu_pressure(0.126);
  const auto process = [&](const std::string& by, int value, const std::string& cgroup) {
    daemon.mutable_priority()->set_by(by);
    daemon.mutable_priority()->set_value(value);
    daemon.mutable_priority()->set_cgroup(cgroup);
    std::ostringstream out;
    print_status(daemon, "/run/spdld", out);
    const std::string text = out.str();
    const std::size_t begin = std::min(text.find("process "), text.size());
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const std::string takes = "process    PSS 3.0 MiB, CPU pressure 13 %, priority ";
  EXPECT_EQ(process("niceness", 10, ""), takes + "by niceness 10");
  EXPECT_EQ(process("autogroup", 0, ""), takes + "by niceness 0 of its session (autogroup)");
  daemon.mutable_priority()->set_niceness(7);
  EXPECT_EQ(process("cpu_weight", 10, "/a\n"),
            takes + "by CPU weight 10 of cgroup /a\\n, and in it by niceness 7");
}

TEST(Listing, ShowsEachGpuAndWhatTheDaemonHasThere) {
  v1::Daemon daemon;
  daemon.set_gpu_driver("CUDA 12.4");
  v1::Gpu* gpu = daemon.add_gpus();
  gpu->set_name("NVIDIA H100");
  gpu->set_uuid("GPU-1");
  gpu->set_memory_bytes(80ull << 30);
  gpu->set_compute_mode("default");
  gpu->set_deliverable(true);
  gpu->set_context(true);
  gpu->set_arena_used(64 << 20);
  gpu->set_arena_budget(2ull << 30);
  *daemon.add_gpus() = *gpu;
  gpu = daemon.mutable_gpus(1);
  gpu->set_memory_bytes(1ull << 30);
  gpu->set_context(false);
  gpu->set_arena_used(0);
  gpu = daemon.add_gpus();
  gpu->set_name("NVIDIA A100 MIG 1g.5gb");
  gpu->set_uuid("MIG-2");
  gpu->set_mig(true);
  gpu->set_memory_bytes(5ull << 30);
  gpu->set_compute_mode("exclusive process");
  gpu->set_why_not("it is in exclusive-process mode");
  gpu = daemon.add_gpus();
  gpu->set_name("GPU 3");
  gpu->set_why_not("the driver does not tell its name");
  gpu->set_why_no_pinning("its driver cannot register memory of a process");
  std::ostringstream out;
  print_status(daemon, "/run/spdld", out);
  const std::string text = out.str();
  EXPECT_EQ(text.substr(std::min(text.find("gpu "), text.size())),
            "gpu        NVIDIA H100, GPU-1, 80.0 GiB, CUDA 12.4, compute mode default\n"
            "           batches: 64.0 MiB of 2.0 GiB, and the daemon's context\n"
            "gpu        NVIDIA H100, GPU-1, 1.0 GiB, CUDA 12.4, compute mode default\n"
            "           batches can be delivered there, up to 1.0 GiB\n"
            "gpu        NVIDIA A100 MIG 1g.5gb, a MIG instance, MIG-2, 5.0 GiB, CUDA 12.4, "
            "compute mode exclusive process\n"
            "           no batches there: it is in exclusive-process mode\n"
            "gpu        GPU 3\n"
            "           no batches there: the driver does not tell its name\n"
            "           loaders there copy by a buffer: its driver cannot register memory of a "
            "process\n");
}

TEST(Listing, SaysWhyThereIsNoGpu) {
  v1::Daemon daemon;
  daemon.set_no_gpu("there is no NVIDIA driver here");
  std::ostringstream out;
  print_status(daemon, "/run/spdld", out);
  EXPECT_NE(out.str().find("gpu        none: there is no NVIDIA driver here\n"), std::string::npos)
      << out.str();
}

}  // namespace
}  // namespace spdld::ctl
