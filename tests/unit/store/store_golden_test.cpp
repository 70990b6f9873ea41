// SPDX-License-Identifier: Apache-2.0
// The store's file is that of tests/goldens/state.sql: its tables, and a row of each kind.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"
#include "tests/support/scratch_dir.h"

namespace spdld::store {
namespace {

constexpr char kGolden[] = SPDLD_SOURCE_DIR "/tests/goldens/state.sql";

class Database {
 public:
  explicit Database(const std::string& path) { sqlite3_open(path.c_str(), &db_); }
  ~Database() { sqlite3_close(db_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void run(const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db_);
  }
  std::vector<std::vector<std::string>> rows(const std::string& sql) {
    std::vector<std::vector<std::string>> rows;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
      auto& row = rows.emplace_back();
      for (int column = 0; column < sqlite3_column_count(statement); ++column)
        row.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, column)));
    }
    sqlite3_finalize(statement);
    return rows;
  }
  // SQL that makes this database.
  std::string dump() {
    std::ostringstream out;
    for (const char* pragma : {"application_id", "user_version"})
      out << "PRAGMA " << pragma << " = " << rows(std::string("PRAGMA ") + pragma)[0][0] << ";\n";
    for (const auto& table : rows("SELECT name, sql FROM sqlite_master WHERE sql <> '' ORDER BY 1"))
      out << dump_table(table[0], table[1]);
    return std::move(out).str();
  }

 private:
  std::string dump_table(const std::string& name, const std::string& sql) {
    std::string values;
    for (const auto& column : rows("SELECT name FROM pragma_table_info('" + name + "')"))
      values += (values.empty() ? "quote(" : " || ',' || quote(") + column[0] + ")";
    std::string out = sql + ";\n";
    for (const auto& row : rows("SELECT " + values + " FROM " + name + " ORDER BY 1"))
      out += "INSERT INTO " + name + " VALUES (" + row[0] + ");\n";
    return out;
  }

  sqlite3* db_ = nullptr;
};

job::ApplyRequest request() {
  job::ApplyRequest request;
  request.yaml = "pipeline: train\n";
  request.file = "/etc/spdld/train.yaml";
  request.vars = {{"size", "224"}};
  request.env = {{"HOME", "/root"}};
  request.dataset = "files-1";
  request.bucket_run = 128;
  request.from_loader = true;
  request.reader = Credentials{.uid = 1000, .gid = 1001, .groups = {27, 100}};
  return request;
}

const job::JobKey kKey{.uid = 1000, .job = "run", .pipeline = "1000/train"};

// An edit of each kind.
job::ScheduleRecord schedule() {
  const job::OwnSeek entry{.turn = 25, .to = {4, 9}, .position = 864, .version = 0, .skip = 1};
  return {
      .run = 0x123456789abcdef0,
      .versions = {{0, {.items = 1000, .tail = Tail::kDrop, .batch = 48, .order = "A"}},
                   {2, {.items = 1000, .tail = Tail::kKeep, .batch = 32, .order = "A"}},
                   {3, {.items = 600, .tail = Tail::kPad, .batch = 48, .order = "B"}}},
      .versions_made = 4,
      .earlier = {0, 3},
      .base =
          {.epoch = 1, .step = 2, .position = 192, .shards = 2, .version = 0, .next_version = 3},
      .base_turn = 12,
      .oldest = 13,
      .edits = {{.turn = 20, .change = job::Edit::Seek{{4, 2}}},
                {.turn = 20, .change = job::Edit::Skip{.epoch = 4, .steps = 3}},
                {.turn = 25, .change = job::Edit::Resize{.shards = 3, .entry = entry}},
                {.turn = 30, .change = job::Edit::Swap{2}}},
      .planned = job::PlannedSwap{.from = 31, .place = job::StepAt{6, 5}, .version = 3},
      .partings = {{.branch = 1, .turn = 14}, {.branch = 2, .turn = 22}}};
}

StoredPhase phase(std::uint32_t version) {
  return {.version = version,
          .owner = 1000,
          .request = request(),
          .batch_size = 48,
          .overrides = {"size"},
          .reader = {.uid = 1000, .gid = 1001, .groups = {27, 100}}};
}

StoredJob job() {
  StoredJob job;
  job.key = kKey;
  job.declared = true;
  job.incarnation = 3;
  job.seed = 0xffffffffffffffff;
  job.replicas = 4;
  job.epochs = job::EpochMode::kManual;
  job.open_epochs = 4;
  job.max_epochs = 90;
  job.limits = {
      .weight = 2.5, .cpus = 3, .bytes = 1 << 20, .fetching = 64, .processing = 2, .prefetch = 8};
  job.first_limits = {.weight = 1.5};
  job.vars = {{"size", "192"}};
  job.first_vars = {{"size", "224"}};
  job.batch_size = 32;
  job.start = {2, 17};
  job.phases = {{0, phase(7)}, {2, phase(8)}, {3, phase(9)}};
  job.schedule = schedule();
  job.members = {{.member = {2, 1},
                  .presence = job::MemberRecord::Presence::kAway,
                  .progress = {.sent = 28,
                               .next = {4, 12},
                               .released = 26,
                               .at = {4, 10},
                               .position = 960,
                               .order = "A"}}};
  job.reserved = 284;
  job.reached = 290;
  job.done = {{0, 1}};
  job.kept_unix_ms = 1'700'000'000'000;
  StoredEnd& end = job.end.emplace();
  end.end = job::EndView{.unix_ms = 1'700'000'000'001, .how = "failed: it's over", .at = {3, 7}};
  job::StageView& stage = end.stages.emplace_back();
  stage.stage = "fetch";
  stage.jpeg = {.indexed = 1, .from_begin = 2, .by_libjpeg = 3, .by_coefficients = 4, .recoded = 5};
  job.failures = {
      {.number = 1,
       .facts = {.unix_ms = 1'700'000'000'002,
                 .sample =
                     engine::FailedSample{
                         .epoch = 1, .position = 2, .item = 9, .uri = "a.jpg", .replaced_by = 4},
                 .code = "DATA_LOSS",
                 .message = "truncated",
                 .ended_stream = false}}};
  job.replaced = {9};
  return job;
}

StoredPosition position() {
  return {.key = kKey,
          .cursor = {.order = "order",
                     .at = {3, 7},
                     .position = 896,
                     .run = 0x123456789abcdef0,
                     .branch = 2,
                     .turn = 26},
          .kept_unix_ms = 1'700'000'000'000};
}

void fill(Store& store) {
  ASSERT_TRUE(
      store
          .put_pipeline({.id = "1000/train", .version = 2, .owner = 1000, .request = request()},
                        {.version = 2,
                         .applied_unix_ms = 1'700'000'000'000,
                         .applied_by = 1000,
                         .content_digest = "d1",
                         .note = "rollback to 1",
                         .request = request()})
          .ok());
  ASSERT_TRUE(store.put_file("/etc/spdld/train.yaml", "f1").ok());
  ASSERT_TRUE(store.put_jobs({job()}, {position()}).ok());
  ASSERT_TRUE(store.put_tuned({{"executor.io_threads", "512"}}).ok());
  ASSERT_TRUE(store.put_drain(StoredDrain{.since_unix_ms = 1'700'000'000'003, .by = 1000}).ok());
}

std::string golden() {
  std::ostringstream text;
  text << std::ifstream(kGolden).rdbuf();
  return std::move(text).str();
}

class StoreGoldenTest : public ::testing::Test {
 protected:
  test::ScratchDir scratch_;
  const std::string file_ = scratch_.path() + "/spdld.sqlite";
};

// A difference that is meant raises kSchemaVersion (server/store/database.cpp), and the new
// text, which is printed, is the golden file.
TEST_F(StoreGoldenTest, FileThatIsWrittenIsTheGoldenOne) {
  fill(**Store::open(scratch_.path()));
  EXPECT_EQ(Database(file_).dump(), golden());
}

TEST_F(StoreGoldenTest, GoldenFileIsReadAndGivenBack) {
  Database(file_).run(golden());
  {
    const auto store = Store::open(scratch_.path());
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_EQ((*store)->file_digest("/etc/spdld/train.yaml").value(), "f1");
    EXPECT_EQ((*store)->tuned()->at("executor.io_threads"), "512");
    EXPECT_EQ((*store)->job(kKey)->value().first_limits, job().first_limits);
    EXPECT_EQ((*store)->pipelines()->front().request.dataset, "files-1");
    EXPECT_EQ((*store)->history("1000/train")->front().note, "rollback to 1");
    EXPECT_EQ((*store)->position(kKey)->value().cursor, position().cursor);
    EXPECT_EQ((*store)->replaced(kKey)->count(9), 1U);
    EXPECT_EQ((*store)->drain()->value().since_unix_ms, 1'700'000'000'003U);
    EXPECT_EQ((*store)->ended_jobs(1000)->front().end.how, "failed: it's over");
    EXPECT_EQ((*store)->failures(1000)->front().failure, job().failures.front());
    // All that a job is, once around.
    const auto kept = (*store)->job(kKey);
    ASSERT_TRUE(kept) << kept.error().message();
    EXPECT_EQ(kept->value().schedule, schedule());
    EXPECT_TRUE(job::Schedule::restored(kept->value().schedule));
    ASSERT_TRUE((*store)->put_jobs({kept->value()}).ok());
  }
  EXPECT_EQ(Database(file_).dump(), golden());
}

}  // namespace
}  // namespace spdld::store
