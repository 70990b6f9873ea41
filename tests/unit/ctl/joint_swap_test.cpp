// SPDX-License-Identifier: Apache-2.0
// One job on two daemons: all change at the same step, or none.
#include "ctl/joint_swap.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "ctl/failure.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using job::StepAt;
using session::Service;
using session::SwapOutlook;
using std::chrono::milliseconds;
using Calls = std::vector<std::string>;

// Its job 'run' has begun the steps of epoch 0 up to 99, of 100 in an epoch, at 2 steps a second.
class JointSwapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (FakeDaemon* daemon : {&first_, &second_}) {
      session::SwapView& view = daemon->service.swap_view;
      view.pipeline.name = "pets";
      view.pipeline.version = 4;
      view.pipeline.order_digest = "aa";
      view.jobs = {{"run", "pets", 4, {2, 7}, false}};
      view.jobs.front().outlook = SwapOutlook{.version_before = 3,
                                              .frontier = {1, 0},
                                              .steps_per_epoch = 100,
                                              .steps_per_s = 2.0,
                                              .known = false};
      daemon->service.going_back = [&view](const Service::Progress&) {
        view.pipeline.version = 3;  // what it was before
        return Status();
      };
      daemon->start();
    }
  }

  static session::JobSwap& job(FakeDaemon& daemon) { return daemon.service.swap_view.jobs.front(); }
  static SwapOutlook& outlook(FakeDaemon& daemon) { return *job(daemon).outlook; }

  // Swaps both; returns what the failure says, or "" and the results.
  std::string swap(std::vector<v1::SwapResult>* results = nullptr) {
    JointSwap joint;
    joint.directories = directories_;
    joint.text.set_yaml("pipeline: pets");
    joint.swap.set_job("run");
    joint.swap.set_at(v1::SWAP_POINT_STEP);
    joint.swap.mutable_step()->set_epoch(job(first_).from.epoch);
    joint.swap.mutable_step()->set_step(job(first_).from.step);
    joint.command = "the same again";
    joint.timeout = milliseconds(5'000);
    const NowMs now = [&] { return milliseconds(now_ms_.load()); };
    try {
      const auto done = swap_everywhere(joint, on_progress_, now);
      if (results != nullptr) *results = done;
      return "";
    } catch (const Failure& failure) {
      exit_code_ = failure.exit_code();
      return failure.what();
    }
  }

  std::string unreachable(const FakeDaemon& daemon) const {
    return "no daemon answers at " + daemon.path() + "/control.sock: there is no such socket;";
  }
  // The command that takes the change back on one of them.
  static std::string undoing(const FakeDaemon& daemon, const std::string& at = "step:2/7") {
    return "\n  spdlctl --address " + daemon.path() + " rollback pets --to 3 --job run --at " + at;
  }

  FakeDaemon first_;
  FakeDaemon second_;
  std::vector<std::string> directories_ = {first_.path(), second_.path()};
  Daemon::OnProgress on_progress_ = [](const v1::Progress&) {};
  std::atomic<std::int64_t> now_ms_ = 5'000;
  int exit_code_ = 0;
};

TEST_F(JointSwapTest, AsksAllAndThenChangesAll) {
  first_.service.changing = [&](const Service::Progress&) {
    EXPECT_EQ(second_.service.calls().front(), "swap dry");
    return Status();
  };
  std::vector<v1::SwapResult> results;
  EXPECT_EQ(swap(&results), "");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].jobs(0).from().step(), 7u);
  for (const FakeDaemon* daemon : {&first_, &second_}) {
    EXPECT_EQ(daemon->service.calls(), (Calls{"swap dry", "swap"}));
    EXPECT_EQ(daemon->service.last_swap()->at.step, (StepAt{2, 7}));
  }
}

TEST_F(JointSwapTest, ShowsProgressOfADaemonOnTheThreadThatAsks) {
  std::atomic<bool> shown = false;
  on_progress_ = [&, asks = std::this_thread::get_id()](const v1::Progress& progress) {
    EXPECT_EQ(std::this_thread::get_id(), asks);
    EXPECT_EQ(progress.what(), second_.path() + ": listing");
    shown = true;
  };
  second_.service.work = [&](const Service::Progress& progress) {
    while (!shown && progress(1, 2, "listing", {})) std::this_thread::yield();
    return Status();
  };
  EXPECT_EQ(swap(), "");
  EXPECT_TRUE(shown);
}

TEST_F(JointSwapTest, ChangesNothingWhenOneSaysThatItCouldNot) {
  second_.service.work = [](const Service::Progress&) {
    return Status(Code::kFailedPrecondition, "job 'run' is beyond step 7 of epoch 2");
  };
  EXPECT_EQ(swap(), "nothing has changed: " + second_.path() +
                        " refused: job 'run' is beyond step 7 of epoch 2");
  EXPECT_EQ(exit_code_, 1);
  for (FakeDaemon* daemon : {&first_, &second_}) {
    daemon->server.reset();
    for (const std::string& call : daemon->service.calls()) EXPECT_EQ(call, "swap dry");
  }
}

TEST_F(JointSwapTest, EndsAskingTheOthersWhenOneRefuses) {
  std::promise<void> begun;
  first_.service.work = [&](const Service::Progress& progress) {
    begun.set_value();
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  second_.service.work = [&](const Service::Progress&) {
    begun.get_future().wait();
    return Status(Code::kInvalidArgument, "pets.yaml:1:1: no source");
  };
  EXPECT_EQ(swap(),
            "nothing has changed: " + second_.path() + " refused: pets.yaml:1:1: no source");
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(JointSwapTest, AsksNobodyWhenOneIsNotThere) {
  second_.die();
  const std::string said = swap();
  EXPECT_TRUE(said.starts_with(unreachable(second_))) << said;
  EXPECT_EQ(exit_code_, 3);
  EXPECT_EQ(first_.service.calls(), Calls{});
}

TEST_F(JointSwapTest, ChangesNothingWhenOneIsSilentTooLong) {
  std::promise<void> over;
  second_.service.work = [&](const Service::Progress&) {
    now_ms_ += 5'001;
    over.get_future().wait();
    return Status();
  };
  EXPECT_EQ(swap(), "nothing has changed: " + second_.path() +
                        " did not answer: it has said nothing for 5.0 s");
  over.set_value();
  second_.server.reset();
  EXPECT_EQ(second_.service.calls(), Calls{"swap dry"});
  EXPECT_EQ(first_.service.calls(), Calls{"swap dry"});
}

TEST_F(JointSwapTest, ChangesNothingWhenItIsInterruptedWhileItAsks) {
  second_.service.work = [&](const Service::Progress& progress) {
    std::raise(SIGINT);
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  EXPECT_EQ(swap(), "nothing has changed: interrupted");
  second_.server.reset();
  EXPECT_EQ(second_.service.calls(), Calls{"swap dry"});
}

TEST_F(JointSwapTest, FinishesWhatIsInterruptedOnceItChanges) {
  first_.service.changing = [](const Service::Progress&) {
    std::raise(SIGINT);
    return Status();
  };
  EXPECT_EQ(swap(), "");
  EXPECT_EQ(second_.service.calls().back(), "swap");
}

TEST_F(JointSwapTest, ChangesNothingWhenTheDaemonsListOtherData) {
  second_.service.swap_view.pipeline.order_digest = "bb";
  EXPECT_EQ(swap(), "nothing has changed: " + first_.path() + " and " + second_.path() +
                        " do not list the same data (order digests aa and bb), and one job's "
                        "shards must: let them see the same files");
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"swap dry"}));
}

TEST_F(JointSwapTest, ChangesNothingWhenDaemonsWouldChangeAtDifferentPoints) {
  job(second_).from = {3, 0};
  EXPECT_EQ(swap(), "nothing has changed: the job would change at epoch 2, step 7 on " +
                        first_.path() + ", and at epoch 3, step 0 on " + second_.path() +
                        ": name a point that all of them have, or roll it back there first");
}

TEST_F(JointSwapTest, ComparesPointsOfTheOthersWhenTheFirstIsTuned) {
  FakeDaemon third;
  third.service.swap_view = second_.service.swap_view;
  third.start();
  directories_.push_back(third.path());
  job(first_).tuned = true;
  job(third).from = {3, 0};
  EXPECT_EQ(swap(), "nothing has changed: the job would change at epoch 2, step 7 on " +
                        second_.path() + ", and at epoch 3, step 0 on " + third.path() +
                        ": name a point that all of them have, or roll it back there first");
}

TEST_F(JointSwapTest, RefusesAPointWithinTenSecondsOfTheFastestRank) {
  outlook(second_).frontier = {1, 90};
  outlook(first_).steps_per_s = 4.0;
  for (FakeDaemon* daemon : {&first_, &second_}) job(*daemon).from = {2, 29};
  EXPECT_EQ(swap(),
            "nothing has changed: epoch 2, step 29 is too near: the next step on " +
                second_.path() +
                " is epoch 1, step 90, and at 4.0 steps/s a rank may be there in 9.8 s. A change "
                "must be 10.0 s ahead, for all daemons to know of it in time: --at step:2/30 is "
                "the nearest point that will do");
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry"}));
  for (FakeDaemon* daemon : {&first_, &second_}) job(*daemon).from = {2, 30};
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, NamesTheNextEpochThatIsFarEnough) {
  outlook(first_).frontier = {1, 90};
  for (FakeDaemon* daemon : {&first_, &second_}) job(*daemon).from = {2, 0};
  const std::string said = swap();
  EXPECT_NE(said.find(": --at step:3/0 is the nearest point"), std::string::npos) << said;
}

TEST_F(JointSwapTest, PointMustBeThreeTimesAsFarAsAskingTook) {
  second_.service.work = [&](const Service::Progress&) {
    now_ms_ += 4'900;
    return Status();
  };
  for (FakeDaemon* daemon : {&first_, &second_}) job(*daemon).from = {1, 29};
  const std::string said = swap();
  EXPECT_NE(said.find("A change must be 14.7 s ahead"), std::string::npos) << said;
  EXPECT_NE(said.find("--at step:1/30 "), std::string::npos) << said;
  for (FakeDaemon* daemon : {&first_, &second_}) job(*daemon).from = {1, 30};
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, ChangesNothingWhileARanksPaceIsUnknown) {
  outlook(second_).steps_per_s = std::nullopt;
  EXPECT_EQ(swap(), "nothing has changed: how fast the ranks of job 'run' at " + second_.path() +
                        " read is not known yet, since one has only just come: try again in a few "
                        "seconds");
}

TEST_F(JointSwapTest, TakesAnyPointAheadOfAJobThatNobodyReads) {
  for (FakeDaemon* daemon : {&first_, &second_}) {
    outlook(*daemon).steps_per_s = 0.0;
    job(*daemon).from = {1, 0};
  }
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, BoundsThePaceThatADaemonMakesUp) {
  outlook(first_).steps_per_s = 1e300;
  outlook(first_).steps_per_epoch = 0;
  const std::string said = swap();
  EXPECT_NE(said.find("is too near"), std::string::npos) << said;
}

TEST_F(JointSwapTest, TakesValuesThatChangeAtOnceOnAll) {
  for (FakeDaemon* daemon : {&first_, &second_}) {
    job(*daemon).tuned = true;
    outlook(*daemon).steps_per_s = std::nullopt;
  }
  job(second_).from = {1, 2};
  EXPECT_EQ(swap(), "");
}

TEST_F(JointSwapTest, UndoesItOnTheOthersWhenOneRefusesToChange) {
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kOutOfRange, "job 'run' has passed epoch 2, step 7");
  };
  EXPECT_EQ(swap(), "nothing has changed:\n  " + first_.path() +
                        ": has changed, and goes on as before again\n  " + second_.path() +
                        ": refused: job 'run' has passed epoch 2, step 7");
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry", "swap", "rollback pets 3"}));
  EXPECT_EQ(first_.service.last_swap()->job, "run");
  EXPECT_EQ(first_.service.last_swap()->at.step, (StepAt{2, 7}));
  EXPECT_EQ(second_.service.calls(), (Calls{"swap dry", "swap"}));
}

TEST_F(JointSwapTest, SaysWhatUndoingDoesNotTakeBack) {
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kOutOfRange, "job 'run' has passed epoch 2, step 7");
  };
  job(first_).replaces = {{2, {4, 0}}};
  first_.service.going_back = [&](const Service::Progress&) {
    first_.service.swap_view.unchanged = true;
    return Status();
  };
  EXPECT_EQ(swap(), "job 'run' changes on no daemon:\n  " + first_.path() +
                        ": has changed, and goes on as before again; the change to version 2 at "
                        "epoch 4, step 0 does not come any more; new jobs get version 4\n  " +
                        second_.path() + ": refused: job 'run' has passed epoch 2, step 7");
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(JointSwapTest, SaysHowToUndoWhatItCouldNotUndo) {
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kOutOfRange, "job 'run' has passed epoch 2, step 7");
  };
  first_.service.going_back = [](const Service::Progress&) {
    return Status(Code::kResourceExhausted, "there is no room");
  };
  EXPECT_EQ(swap(),
            "job 'run' does not change on all daemons at epoch 2, step 7:\n  " + first_.path() +
                ": changes, and could not be told to go on as before: there is no room\n  " +
                second_.path() +
                ": refused: job 'run' has passed epoch 2, step 7\nto undo it, before a rank is "
                "there:" +
                undoing(first_));
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(JointSwapTest, NamesDaemonsThatChangedWhenOneDiesOverIt) {
  std::promise<void> died;
  second_.service.changing = [&](const Service::Progress& progress) {
    std::error_code ignored;
    std::filesystem::remove(second_.dir.socket(), ignored);
    std::thread([&] {
      second_.server->stop(std::chrono::seconds(0));
      died.set_value();
    }).detach();
    while (progress(0, 0, "listing", {})) std::this_thread::yield();
    return Status(Code::kCancelled, "told to end");
  };
  const std::string said = swap();
  died.get_future().wait();
  EXPECT_TRUE(said.starts_with("job 'run' does not change on all daemons at epoch 2, step 7:\n  " +
                               first_.path() + ": changes\n  " + second_.path() +
                               ": not known to change: "))
      << said;
  EXPECT_TRUE(said.ends_with("\nto end it:\n  the same again\nto undo it, before a rank is there:" +
                             undoing(first_) + undoing(second_)))
      << said;
  EXPECT_EQ(exit_code_, 1);
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry", "swap"}));
}

TEST_F(JointSwapTest, NamesDaemonsThatChangedWhenOneIsSilentOverIt) {
  std::promise<void> over;
  second_.service.changing = [&](const Service::Progress&) {
    now_ms_ += 5'001;
    over.get_future().wait();
    return Status();
  };
  EXPECT_EQ(swap(), "job 'run' does not change on all daemons at epoch 2, step 7:\n  " +
                        first_.path() + ": changes\n  " + second_.path() +
                        ": not known to change: it has said nothing for 5.0 s\nto end it:\n  the "
                        "same again\nto undo it, before a rank is there:" +
                        undoing(first_) + undoing(second_));
  over.set_value();
}

TEST_F(JointSwapTest, NamesTheUndoForADaemonThatDidNotAnswer) {
  first_.service.changing = [](const Service::Progress&) {
    return Status(Code::kOutOfRange, "job 'run' has passed epoch 2, step 7");
  };
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kUnavailable, "the disk is busy");
  };
  EXPECT_EQ(swap(), "job 'run' does not change on all daemons at epoch 2, step 7:\n  " +
                        first_.path() + ": refused: job 'run' has passed epoch 2, step 7\n  " +
                        second_.path() +
                        ": not known to change: the disk is busy\nto undo it, before a rank is "
                        "there:" +
                        undoing(second_));
}

TEST_F(JointSwapTest, EndsAnEarlierCommandsChangeAtANearPoint) {
  outlook(first_).known = true;
  outlook(second_).frontier = {2, 6};
  EXPECT_EQ(swap(), "");
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry", "swap"}));
  EXPECT_EQ(second_.service.calls(), (Calls{"swap dry", "swap"}));
}

TEST_F(JointSwapTest, KeepsAnEarlierCommandsChangeAndNamesItsUndo) {
  outlook(first_).known = true;
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kOutOfRange, "job 'run' has passed epoch 2, step 7");
  };
  EXPECT_EQ(swap(), "job 'run' does not change on all daemons at epoch 2, step 7:\n  " +
                        first_.path() + ": changes\n  " + second_.path() +
                        ": refused: job 'run' has passed epoch 2, step 7\nto undo it, before a "
                        "rank is there:" +
                        undoing(first_));
  EXPECT_EQ(first_.service.calls(), (Calls{"swap dry", "swap"}));
}

TEST_F(JointSwapTest, NamesAnEarlierChangesUndoWhenItChangesNothing) {
  outlook(first_).known = true;
  second_.service.swap_view.pipeline.order_digest = "bb";
  const std::string said = swap();
  EXPECT_TRUE(said.starts_with("nothing has changed: ")) << said;
  EXPECT_TRUE(said.ends_with("\nto undo what an earlier command has done:" + undoing(first_)))
      << said;
}

// The command, with the clock on the wall.
class JointApplyTest : public JointSwapTest {
 protected:
  std::vector<std::string> apply(const std::vector<std::string>& more = {}) {
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

TEST_F(JointApplyTest, EndsWithOneAndTheCommandThatEndsIt) {
  second_.service.changing = [](const Service::Progress&) {
    return Status(Code::kUnavailable, "the disk is busy");
  };
  const Outcome outcome = spdlctl(apply({"--allow-schema-change", "--var", "size=32"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("\nto end it:\n  spdlctl --address " + first_.path() + " --address " +
                             second_.path() + " apply -f " + first_.path() +
                             "/pets.yaml --var size=32 --job run --at step:2/7 "
                             "--allow-schema-change\n"),
            std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace spdld::ctl
