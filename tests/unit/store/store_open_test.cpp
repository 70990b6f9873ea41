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
#include <memory>
#include <sstream>
#include <string>

#include "store/store.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/zombie.h"

namespace spdld::store {
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
  void run_sql(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
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

TEST_F(StoreOpenTest, FileOfAnotherBuildIsRefusedByNameAndLeftAlone) {
  const std::string way_out =
      ", and this spdld reads schema 6 alone; move the directory away, or name another with --set "
      "state_dir=DIR. Pipelines that were applied, declared jobs and where jobs were are not taken "
      "over: apply and declare them again; ranks go on by their own cursors";
  const auto refusal = [&](const std::string& sql) {
    keep_train();
    run_sql(sql);
    const std::string before = content();
    const auto store = Store::open(directory_);
    EXPECT_TRUE(before == content());
    fs::remove(file_);
    return store ? "it was opened" : store.error().message();
  };
  const std::string begin =
      "state_dir " + directory_ + " cannot be used: " + file_ + " was written by ";
  for (const std::string schema : {"5", "7"}) {
    EXPECT_EQ(refusal("PRAGMA user_version = " + schema),
              begin + "another build of spdld (schema " + schema + ")" + way_out);
  }
  // The builds before schemas were counted anew had no application_id.
  for (const char* sql : {"PRAGMA application_id = 0; PRAGMA user_version = 5",
                          "PRAGMA application_id = 0; PRAGMA user_version = 1"})
    EXPECT_EQ(refusal(sql), begin + "an spdld from before schema 1" + way_out);
  EXPECT_EQ(refusal("PRAGMA application_id = 7"), begin + "another program" + way_out);
}

TEST_F(StoreOpenTest, FileOfAnotherBuildIsRefusedWhereNothingCanBeWrittenToo) {
  keep_train();
  run_sql("PRAGMA application_id = 0; PRAGMA user_version = 5");
  where_nothing_can_be_written([&] {
    const auto store = Store::open(directory_);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), Code::kFailedPrecondition);
  });
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

TEST_F(StoreOpenTest, FollowsAProcessThatWasKilledInATransactionAndCannotEnd) {
  keep_train();
  const std::string path = directory_ + "/spdld.sqlite";
  const test::Zombie dead([&] {
    sqlite3* db = nullptr;  // of a process that never closes it
    // More than its cache holds, so that pages are written and the journal is needed.
    return sqlite3_open(path.c_str(), &db) == SQLITE_OK &&
           sqlite3_exec(db,
                        "PRAGMA cache_size = 1; BEGIN EXCLUSIVE; DELETE FROM pipelines;"
                        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500)"
                        "INSERT INTO files SELECT i, hex(randomblob(500)) FROM n",
                        nullptr, nullptr, nullptr) == SQLITE_OK;
  });
  ASSERT_TRUE(fs::exists(path + "-journal"));
  const auto store = open();
  EXPECT_THAT(store->warnings(), IsEmpty());
  ASSERT_EQ(store->pipelines()->size(), 1U);
  EXPECT_EQ(store->pipelines()->front().version, 3U);
  EXPECT_TRUE(store->put_pipeline(train(4), {.version = 4}).ok());
}

}  // namespace
}  // namespace spdld::store
