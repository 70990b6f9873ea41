// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "session/store.h"
#include "tests/support/scratch_dir.h"

namespace spdld::session {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoreOpenTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() const { return open(directory_); }
  static std::unique_ptr<Store> open(const std::string& directory) {
    auto store = Store::open(directory);
    EXPECT_TRUE(store) << store.error().message();
    return store ? std::move(*store) : nullptr;
  }
  static StoredPipeline train(std::uint32_t version) {
    StoredPipeline pipeline{.id = "train", .version = version, .owner = 1000, .request = {}};
    pipeline.request.yaml = "pipeline: train\n";
    return pipeline;
  }
  void keep_train() const { ASSERT_TRUE(open()->put_pipeline(train(3), {.version = 3}).ok()); }
  std::string content() const {
    std::ifstream in(file_, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return std::move(bytes).str();
  }
  void run_sql(const char* sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  // Runs `part` where the directory and the file can be read and not written: in a child that is
  // not root.
  void where_nothing_can_be_written(const std::function<void()>& part) const {
    if (fs::exists(file_)) fs::permissions(file_, fs::perms(0444));
    fs::permissions(directory_, fs::perms(0555));
    const pid_t child = fork();
    if (child == 0) {
      if (geteuid() != 0 || setuid(65534) == 0) part();
      std::cout.flush();
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "what failed stands above";
    fs::permissions(directory_, fs::perms(0700));
  }

  test::ScratchDir scratch_;
  const std::string directory_ = scratch_.path();
  const std::string file_ = directory_ + "/spdld.sqlite";
};

TEST_F(StoreOpenTest, CurrentFileIsOpenedWithoutAWrite) {
  keep_train();
  const std::string before = content();
  const auto store = open();
  EXPECT_THAT(store->warnings(), IsEmpty());
  EXPECT_EQ(store->pipelines()->size(), 1U);
  EXPECT_TRUE(before == content());
}

TEST_F(StoreOpenTest, ReadOnlyDirectoryIsReadAndRefusesChanges) {
  keep_train();
  where_nothing_can_be_written([&] {
    const auto store = open();
    ASSERT_NE(store, nullptr);
    ASSERT_EQ(store->pipelines()->size(), 1U);
    EXPECT_EQ(store->pipelines()->front().version, 3U);
    EXPECT_EQ(store->put_pipeline(train(4), {.version = 4}).code(), Code::kPermissionDenied);
    EXPECT_EQ(store->pipelines()->front().version, 3U);
    EXPECT_THAT(store->warnings(),
                ::testing::Contains(AllOf(
                    HasSubstr("state_dir " + directory_ + " cannot be written by uid " +
                              std::to_string(geteuid())),
                    HasSubstr("chown it to the daemon's user, mount it writable"),
                    HasSubstr("what was kept is known, and what would change it is refused"))));
  });
}

TEST_F(StoreOpenTest, EarlierSchemaIsBroughtUpToDate) {
  keep_train();
  run_sql("DROP TABLE ended; DROP TABLE failures; PRAGMA user_version = 2");
  const auto store = open();
  EXPECT_THAT(store->warnings(), IsEmpty());
  EXPECT_TRUE(store->ended_jobs(std::nullopt));
  EXPECT_TRUE(store->failures(std::nullopt));
  EXPECT_EQ(store->pipelines()->front().version, 3U);
}

TEST_F(StoreOpenTest, EarlierSchemaThatCannotBeWrittenIsReadAllTheSame) {
  keep_train();
  run_sql("DROP TABLE jobs; PRAGMA user_version = 1");
  where_nothing_can_be_written([&] {
    const auto store = open();
    ASSERT_NE(store, nullptr);
    ASSERT_EQ(store->pipelines()->size(), 1U);
    EXPECT_TRUE(store->declared_jobs()->empty());
    EXPECT_FALSE(store->put_pipeline(train(4), {.version = 4}).ok());
  });
  EXPECT_EQ(open()->pipelines()->front().version, 3U);
}

TEST_F(StoreOpenTest, TransactionCutShortIsUndoneWhereNothingCanBeWritten) {
  keep_train();
  const pid_t child = fork();
  if (child == 0) {
    // Dies with half of its change in the file, and the journal beside it.
    sqlite3* db = nullptr;
    sqlite3_open(file_.c_str(), &db);
    sqlite3_exec(db,
                 "PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; UPDATE pipelines SET "
                 "version = 9; CREATE TABLE big (x); INSERT INTO big WITH RECURSIVE n(i) AS "
                 "(SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT randomblob(500) "
                 "FROM n",
                 nullptr, nullptr, nullptr);
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(fs::exists(file_ + "-journal"));
  fs::permissions(file_ + "-journal", fs::perms(0444));
  where_nothing_can_be_written([&] {
    const auto store = open();
    ASSERT_NE(store, nullptr);
    ASSERT_EQ(store->pipelines()->size(), 1U);
    EXPECT_EQ(store->pipelines()->front().version, 3U);
    EXPECT_FALSE(store->put_pipeline(train(4), {.version = 4}).ok());
  });
}

TEST_F(StoreOpenTest, FileThatIsNoDatabaseIsLeftAloneAndNamed) {
  std::ofstream(file_) << std::string(4096, 'x');
  {
    const auto store = open();
    EXPECT_THAT(store->warnings(),
                ElementsAre(AllOf(HasSubstr(file_), HasSubstr("move the file away"),
                                  HasSubstr("is forgotten when the daemon ends"))));
    EXPECT_TRUE(store->pipelines()->empty());
    ASSERT_TRUE(store->put_pipeline(train(1), {.version = 1}).ok());
    EXPECT_EQ(store->pipelines()->size(), 1U);
  }
  EXPECT_EQ(content(), std::string(4096, 'x'));
  EXPECT_TRUE(open()->pipelines()->empty());
}

TEST_F(StoreOpenTest, DirectoryThatCannotBeMadeIsDoneWithout) {
  std::ofstream(directory_ + "/file") << "not a directory";
  const auto store = open(directory_ + "/file/state");
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(store->warnings(), ElementsAre(HasSubstr("--set state_dir=DIR")));
  EXPECT_TRUE(store->put_pipeline(train(1), {.version = 1}).ok());
}

TEST_F(StoreOpenTest, FileOfANewerVersionIsRefused) {
  open();
  run_sql("PRAGMA user_version = 99");
  const auto store = Store::open(directory_);
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message(), HasSubstr("written by a newer spdld"));
}

TEST_F(StoreOpenTest, SecondDaemonIsToldWhoHasTheDirectory) {
  const auto first = open();
  const auto second = Store::open(directory_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  EXPECT_THAT(second.error().message(),
              AllOf(HasSubstr("state_dir " + directory_ + " belongs to another daemon (pid " +
                              std::to_string(getpid()) + " on host " + host + ", since 2"),
                    HasSubstr("--set state_dir=DIR")));
}

// Users 1000 and 1001, neither an admin nor who runs the test.
TEST_F(StoreOpenTest, PipelinesOfAnEarlierVersionBecomeTheirOwnersOrShared) {
  const JobKey own{.uid = 1000, .job = "run", .pipeline = "own"};
  {
    const auto store = open();
    for (const auto& [name, owner] : std::map<std::string, uid_t>{{"own", 1000},
                                                                  {"read-by-others", 1000},
                                                                  {"of-admin", 77},
                                                                  {"of-daemon", geteuid()},
                                                                  {"of-root", 0}}) {
      StoredPipeline pipeline = train(3);
      pipeline.id = name;
      pipeline.owner = owner;
      ASSERT_TRUE(store->put_pipeline(pipeline, {.version = 3}).ok());
    }
    StoredJob job;
    job.key = own;
    job.declared = true;
    ASSERT_TRUE(store->put_new_job(job).ok());
    ASSERT_TRUE(store->put_jobs({job}, {{.key = own, .at = {2, 5}}}).ok());
    ASSERT_TRUE(store->add_replaced(own, 9).ok());
    job.key = {.uid = 1001, .job = "run", .pipeline = "read-by-others"};
    ASSERT_TRUE(store->put_new_job(job).ok());
    // Its pipeline is gone.
    job.key = {.uid = 1000, .job = "old", .pipeline = "gone"};
    ASSERT_TRUE(store->put_jobs({job}, {{.key = job.key, .at = {1, 1}}}).ok());
  }
  run_sql("PRAGMA user_version = 3");
  const auto store = std::move(*Store::open(directory_, {77}));
  std::vector<std::string> ids;
  const auto pipelines = store->pipelines();
  ASSERT_TRUE(pipelines) << pipelines.error().message();
  for (const StoredPipeline& pipeline : *pipelines) ids.push_back(pipeline.id);
  EXPECT_THAT(ids, ElementsAre("1000/own", "of-admin", "of-daemon", "of-root", "read-by-others"));
  EXPECT_TRUE(store->position({.uid = 1000, .job = "old", .pipeline = "1000/gone"})->has_value());
  EXPECT_TRUE(store->job({.uid = 1001, .job = "run", .pipeline = "read-by-others"})->has_value());
  EXPECT_EQ(store->history("1000/own")->size(), 1U);
  const JobKey now{.uid = 1000, .job = "run", .pipeline = "1000/own"};
  EXPECT_TRUE(store->job(now)->has_value());
  EXPECT_FALSE(store->job(own)->has_value());
  EXPECT_EQ(store->position(now)->value().at, (StepAt{2, 5}));
  EXPECT_THAT(*store->replaced(now), ElementsAre(9U));
}

TEST_F(StoreOpenTest, NamesAreTakenOverOnce) {
  keep_train();
  // Who was an admin when it was applied, and is none any more.
  EXPECT_EQ(open()->pipelines()->front().id, "train");
}

TEST_F(StoreOpenTest, SecondDaemonThatMayOnlyReadIsRefusedToo) {
  const auto first = open();
  where_nothing_can_be_written([&] {
    const auto second = Store::open(directory_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  });
}

TEST_F(StoreOpenTest, DeadDaemonsLockKeepsNobodyOut) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto store = Store::open(directory_);
    (void)!write(ready[1], store ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char opened = 0;
  ASSERT_EQ(::read(ready[0], &opened, 1), 1);
  EXPECT_EQ(opened, 'y');
  EXPECT_FALSE(Store::open(directory_));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THAT(open()->warnings(), IsEmpty());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(StoreOpenTest, DirectoryThatCannotBeLockedIsUsedWithAWarning) {
  fs::create_directory(directory_ + "/spdld.lock");
  const auto store = open();
  EXPECT_THAT(store->warnings(),
              ElementsAre(AllOf(HasSubstr("state_dir " + directory_ + " cannot be locked"),
                                HasSubstr("give each a state_dir of its own"))));
  EXPECT_TRUE(store->put_pipeline(train(1), {.version = 1}).ok());
}

}  // namespace
}  // namespace spdld::session
