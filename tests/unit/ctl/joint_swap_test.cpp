// SPDX-License-Identifier: Apache-2.0
// One job on two daemons: all change at the same step, or none.
#include "ctl/joint_swap.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "ctl/failure.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using session::Service;
using std::chrono::milliseconds;
using Calls = std::vector<std::string>;

class JointSwapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_up(first_, "t-1");
    set_up(second_, "t-2");
  }

  void set_up(FakeDaemon& daemon, const std::string& token) {
    session::SwapView& view = daemon.service.swap_view;
    view.pipeline.name = "pets";
    view.pipeline.version = 4;
    view.pipeline.order_digest = "aa";
    view.jobs = {{"run", "pets", 4, {2, 7}, false}};
    view.token = token;
    view.hold_ms = 1'000;
    daemon.start();
  }

  // Swaps both; returns what the failure says, or "" and the results.
  std::string swap(std::vector<v1::SwapResult>* results = nullptr) {
    JointSwap joint;
    joint.directories = {first_.path(), second_.path()};
    joint.text.set_yaml("pipeline: pets");
    joint.swap.set_job("run");
    joint.swap.set_at(v1::SWAP_POINT_STEP);
    joint.swap.mutable_step()->set_epoch(2);
    joint.swap.mutable_step()->set_step(7);
    joint.alone = [](const std::string& directory) { return "mend " + directory; };
    Pace pace;
    pace.now = [&, main = std::this_thread::get_id()] {
      const std::lock_guard lock(mutex_);
      const milliseconds now(now_ms_.load());
      if (std::this_thread::get_id() == main) return now;
      if (++looks_ == 1) one_prepared_.set_value();
      if (looks_ == 2) both_prepared();
      return now;
    };
    pace.pause = [&](milliseconds time) {
      now_ms_ += time.count();
      ++pauses_;
      paused();
    };
    try {
      const auto done = swap_everywhere(
          joint, [](const v1::Progress&) {}, pace);
      if (results != nullptr) *results = done;
      return "";
    } catch (const Failure& failure) {
      exit_code_ = failure.exit_code();
      return failure.what();
    }
  }

  // For the second daemon's `work`: lets it go on when the first's answer has come.
  void await_the_first() { one_prepared_.get_future().wait(); }

  std::string unreachable(const FakeDaemon& daemon) const {
    return "no daemon answers at " + daemon.path() + "/control.sock: there is no such socket;";
  }

  FakeDaemon first_;
  FakeDaemon second_;
  std::atomic<std::int64_t> now_ms_ = 5'000;
  std::atomic<int> pauses_ = 0;
  // When the second answer has come, before anything is committed; and in a pause of the commit.
  std::function<void()> both_prepared = [] {};
  std::function<void()> paused = [] {};
  int exit_code_ = 0;

 private:
  std::mutex mutex_;
  int looks_ = 0;  // at the clock, by the threads of calls: one with each answer, first of all
  std::promise<void> one_prepared_;
};

TEST_F(JointSwapTest, CommitsOnAllWhenAllHavePrepared) {
  std::vector<v1::SwapResult> results;
  EXPECT_EQ(swap(&results), "");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].jobs(0).from().step(), 7u);
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "daemon", "commit t-1"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "daemon", "commit t-2"}));
  EXPECT_EQ(second_.service.last_swap()->at.step, (session::StepAt{2, 7}));
}

TEST_F(JointSwapTest, AbortsOnTheOthersWhenOneRefuses) {
  second_.service.work = [&](const Service::Progress&) {
    await_the_first();
    return Status(Code::kFailedPrecondition, "job 'run' is beyond step 7 of epoch 2");
  };
  EXPECT_EQ(swap(), "nothing has changed: " + second_.path() +
                        " refused: job 'run' is beyond step 7 of epoch 2");
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "abort t-1"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare"}));
}

TEST_F(JointSwapTest, EndsThePreparingOfTheOthersWhenOneRefuses) {
  std::promise<void> begun;
  first_.service.work = [&](const Service::Progress& progress) {
    begun.set_value();
    while (progress(0, 0, "listing")) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  second_.service.work = [&](const Service::Progress&) {
    begun.get_future().wait();
    return Status(Code::kInvalidArgument, "pets.yaml:1:1: no source");
  };
  EXPECT_EQ(swap(),
            "nothing has changed: " + second_.path() + " refused: pets.yaml:1:1: no source");
  EXPECT_EQ(exit_code_, 1);
  first_.server.reset();
  EXPECT_EQ(first_.service.calls(), Calls{"prepare"});
}

TEST_F(JointSwapTest, PreparesNothingWhenOneIsNotThere) {
  second_.die();
  const std::string said = swap();
  EXPECT_TRUE(said.starts_with(unreachable(second_))) << said;
  EXPECT_EQ(exit_code_, 3);
  EXPECT_EQ(first_.service.calls(), Calls{});
}

TEST_F(JointSwapTest, ChangesNothingWhenOneDiesBeforeTheFirstCommit) {
  both_prepared = [&] { second_.die(); };
  const std::string said = swap();
  EXPECT_TRUE(said.starts_with("nothing has changed: " + second_.path() +
                               " is gone: " + unreachable(second_)))
      << said;
  EXPECT_NE(said.find("\n" + second_.path() + " could not be told to abort: "), std::string::npos)
      << said;
  EXPECT_TRUE(said.ends_with("; it lets its shards go on by itself after 1.0 s")) << said;
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(first_.service.calls().back(), "abort t-1");
}

TEST_F(JointSwapTest, SaysHowToMendADaemonThatDiesAfterTheFirstCommit) {
  first_.service.committing = [&] {
    second_.die();
    return Status();
  };
  const std::string said = swap();
  EXPECT_TRUE(said.starts_with("job 'run' changes at epoch 2, step 7 on 1 of 2 daemons only:\n  " +
                               first_.path() + ": changes\n  " + second_.path() +
                               ": not known to have changed: " + unreachable(second_)))
      << said;
  EXPECT_TRUE(said.ends_with("\n    to do it there: mend " + second_.path())) << said;
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(pauses_, 5) << "it is tried again for as long as the daemon holds";
}

TEST_F(JointSwapTest, CommitsOnADaemonThatComesBackInTime) {
  first_.service.committing = [&] {
    second_.die();
    return Status();
  };
  paused = [&] {
    if (pauses_ == 3) second_.start();
  };
  EXPECT_EQ(swap(), "");
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "daemon", "commit t-2"}));
}

TEST_F(JointSwapTest, TriesACommitWithoutAnAnswerAgain) {
  int tries = 0;
  second_.service.committing = [&] {
    return ++tries < 3 ? Status(Code::kUnavailable, "the disk is busy") : Status();
  };
  EXPECT_EQ(swap(), "");
  EXPECT_EQ(tries, 3);
}

TEST_F(JointSwapTest, TriesACommitThatIsRefusedOnlyOnce) {
  second_.service.committing = [] {
    return Status(Code::kNotFound, "swap 't-2' is not prepared: its hold has passed");
  };
  EXPECT_EQ(swap(), "job 'run' changes at epoch 2, step 7 on 1 of 2 daemons only:\n  " +
                        first_.path() + ": changes\n  " + second_.path() +
                        ": not known to have changed: swap 't-2' is not prepared: its hold has "
                        "passed\n    to do it there: mend " +
                        second_.path());
  EXPECT_EQ(pauses_, 0);
}

TEST_F(JointSwapTest, AbortsOnTheOthersWhenTheFirstCommitIsRefused) {
  first_.service.committing = [] { return Status(Code::kFailedPrecondition, "no longer held"); };
  EXPECT_EQ(swap(), "nothing has changed: " + first_.path() + " refused to commit: no longer held");
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "daemon", "abort t-2"}));
}

TEST_F(JointSwapTest, DoesNotClaimToKnowWhatAFirstCommitWithoutAnAnswerDid) {
  first_.service.committing = [] { return Status(Code::kUnavailable, "the disk is busy"); };
  EXPECT_EQ(swap(), "nothing has changed but perhaps on " + first_.path() +
                        ", which did not answer whether it has committed: the disk is busy\nThe "
                        "others go on as they were. 'spdlctl --address " +
                        first_.path() + " get jobs run' shows what it runs");
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "daemon", "commit t-1"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "daemon", "abort t-2"}));
}

TEST_F(JointSwapTest, AbortsWhenPreparingTookMoreThanHalfOfTheShortestHold) {
  second_.service.swap_view.hold_ms = 60'000;
  second_.service.work = [&](const Service::Progress&) {
    await_the_first();
    now_ms_ += 501;
    return Status();
  };
  EXPECT_EQ(swap(),
            "nothing has changed: preparing took too long to commit safely: 0.5 s since "
            "the first daemon was ready, and " +
                first_.path() +
                " lets its shards go on after 1.0 s: try again when the daemons have less "
                "to do");
  EXPECT_EQ(first_.service.calls().back(), "abort t-1");
  EXPECT_EQ(second_.service.calls().back(), "abort t-2");
}

TEST_F(JointSwapTest, DoesNotWaitForADaemonThatCanNoLongerBeInTime) {
  second_.service.work = [&](const Service::Progress& progress) {
    await_the_first();
    now_ms_ += 501;
    while (progress(0, 0, "listing")) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  const std::string said = swap();
  EXPECT_TRUE(
      said.starts_with("nothing has changed: preparing took too long to commit safely: 0.5 s"))
      << said;
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "abort t-1"}));
  second_.server.reset();
  EXPECT_EQ(second_.service.calls(), Calls{"prepare"});
}

TEST_F(JointSwapTest, CommitsWhenJustHalfOfTheHoldHasPassed) {
  second_.service.work = [&](const Service::Progress&) {
    await_the_first();
    now_ms_ += 500;
    return Status();
  };
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, AbortsWhenTheDaemonsListOtherData) {
  second_.service.swap_view.pipeline.order_digest = "bb";
  EXPECT_EQ(swap(), "nothing has changed: " + first_.path() + " and " + second_.path() +
                        " do not list the same data (order digests aa and bb), and one job's "
                        "shards must: let them see the same files");
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "abort t-1"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "abort t-2"}));
}

TEST_F(JointSwapTest, AbortsWhenTheJobChangesElsewhereOnOneOfThem) {
  first_.service.swap_view.jobs = {{"run", "pets", 4, {1, 3}, false}};
  EXPECT_EQ(swap(), "nothing has changed: on " + first_.path() +
                        " the job runs this from epoch 1, step 3 on, and not from epoch 2, step 7: "
                        "name that place, or roll it back there first");
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "abort t-1"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"prepare", "abort t-2"}));
}

TEST_F(JointSwapTest, TakesValuesThatChangeAtOnceOnAll) {
  first_.service.swap_view.jobs = {{"run", "pets", 4, {1, 3}, true}};
  second_.service.swap_view.jobs = {{"run", "pets", 4, {1, 2}, true}};
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, SaysWhereEvenTheAbortFailed) {
  second_.service.swap_view.pipeline.order_digest = "bb";
  first_.service.aborting = [] { return Status(Code::kInternal, "no idea"); };
  const std::string said = swap();
  EXPECT_TRUE(said.ends_with("\n" + first_.path() +
                             " could not be told to abort: no idea; it lets its shards go on by "
                             "itself after 1.0 s"))
      << said;
}

TEST_F(JointSwapTest, ChangesNothingWhenItIsInterruptedBeforeTheFirstCommit) {
  second_.service.work = [&](const Service::Progress& progress) {
    await_the_first();
    std::raise(SIGINT);
    while (progress(0, 0, "listing")) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  EXPECT_EQ(swap(), "nothing has changed: interrupted");
  EXPECT_EQ(first_.service.calls(), (Calls{"prepare", "abort t-1"}));
  second_.server.reset();
  EXPECT_EQ(second_.service.calls(), Calls{"prepare"});
}

TEST_F(JointSwapTest, FinishesWhatIsInterruptedAfterTheFirstCommit) {
  first_.service.committing = [] {
    std::raise(SIGINT);
    return Status();
  };
  EXPECT_EQ(swap(), "");
  EXPECT_EQ(second_.service.calls().back(), "commit t-2");
}

TEST_F(JointSwapTest, BoundsAHoldThatADaemonMakesUp) {
  first_.service.swap_view.hold_ms = UINT64_MAX;
  second_.service.swap_view.hold_ms = UINT64_MAX;
  EXPECT_EQ(swap(), "");
}

// The command, with the clock on the wall.
class JointApplyTest : public JointSwapTest {
 protected:
  std::vector<std::string> apply(const std::vector<std::string>& more = {}) {
    first_.service.swap_view.hold_ms = second_.service.swap_view.hold_ms = 600'000;
    std::vector<std::string> arguments = {"--address",
                                          first_.path() + "," + second_.path(),
                                          "apply",
                                          "-f",
                                          first_.write("pets.yaml", "pipeline: pets\n"),
                                          "--job",
                                          "run",
                                          "--at",
                                          "step:2/7"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(JointApplyTest, PrintsWhatEachDaemonDoes) {
  const std::string done =
      "pipeline 'pets' version 4 applied: 0 items, 0 classes, batches of 0\n"
      "job 'run' changes to version 4 at epoch 2, step 7\n";
  const Outcome outcome = spdlctl(apply());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, first_.path() + "\n" + done + second_.path() + "\n" + done);
}

TEST_F(JointApplyTest, PrintsWhatEachDaemonDoesAsJson) {
  const auto json = nlohmann::json::parse(spdlctl(apply({"-o", "json"})).out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["address"], second_.path());
  EXPECT_EQ(json[1]["swap"]["jobs"][0]["version"], 4);
}

TEST_F(JointApplyTest, EndsWithOneAndTheCommandThatMends) {
  second_.service.committing = [] { return Status(Code::kNotFound, "not prepared"); };
  const Outcome outcome = spdlctl(apply({"--allow-schema-change", "--var", "size=32"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("\n    to do it there: spdlctl --address " + second_.path() +
                             " apply -f " + first_.path() +
                             "/pets.yaml --var size=32 --job run --at step:2/7 "
                             "--allow-schema-change\n"),
            std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace spdld::ctl
