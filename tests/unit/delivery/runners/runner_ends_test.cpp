// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/delivery/runners/runner_fixture.h"

namespace spdld::delivery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> twenty_with(const std::string& one, std::size_t at) {
  std::vector<std::string> texts(20, "a");
  texts[at] = one;
  return texts;
}

class RunnerEndsTest : public RunnerTest {
 protected:
  // All rows but this one came back as they should, each once.
  void expect_others(std::size_t but) {
    EXPECT_TRUE(sink_.each_once());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (i == but) continue;
      ASSERT_TRUE(sink_.status(i).ok()) << i << ": " << sink_.status(i).message();
      EXPECT_EQ(rows_[i].answer(), "a");
    }
  }

  // Other processes with another file come under the job: its next row.
  void expect_change_to_be_refused(RowCaller& caller, const CallSpec& spec, pid_t supervisor,
                                   const std::string& key) {
    rewrite(spec, "def f(x): return 'new'\n");
    end(supervisor);
    wait_until([&] { return !caller.wanted().empty(); });
    call(caller, {"a"});
    start_supervisor(key);
    wait();
    const Status refused = sink_.status(rows_.size() - 1);
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("has changed since rows were first made"));
  }
};

TEST_F(RunnerEndsTest, RowsOfAKilledChildGoToAnother) {
  start();
  const auto caller =
      open(text_call("def f(x):\n"
                     "    if x == 'once' and not os.path.exists(HERE + '/done'):\n"
                     "        open(HERE + '/done', 'w').close()\n"
                     "        os.kill(os.getpid(), signal.SIGKILL)\n"
                     "    return 'a'\n"));
  call(*caller, twenty_with("once", 7));
  start_supervisor(*caller);
  wait();
  expect_others(20);
  wait_until([&] { return server_->runners().at(0).restarts == 1; });
}

TEST_F(RunnerEndsTest, ARowThatEndsTwoProcessesIsToBlame) {
  start();
  const auto caller =
      open(text_call("def f(x):\n"
                     "    if x == 'kill':\n"
                     "        print('the last line', file=sys.stderr)\n"
                     "        os.kill(os.getpid(), signal.SIGKILL)\n"
                     "    if x == 'exit': os._exit(5)\n"
                     "    return 'a'\n",
                     2));
  call(*caller, twenty_with("kill", 7));
  start_supervisor(*caller);
  wait();
  expect_others(7);
  EXPECT_EQ(sink_.status(7).code(), Code::kDataLoss);
  EXPECT_THAT(sink_.status(7).message(), AllOf(HasSubstr("ended 2 processes"),
                                               HasSubstr("signal 9"), HasSubstr("the last line")));
  call(*caller, {"exit"});
  wait();
  EXPECT_EQ(sink_.status(20).code(), Code::kDataLoss);
  EXPECT_THAT(sink_.status(20).message(), HasSubstr("exit status 5"));
}

TEST_F(RunnerEndsTest, AHangEndsAtTheTimeout) {
  start();
  CallSpec spec = text_call(
      "def f(x):\n"
      "    while x == 'hang': time.sleep(1)\n"
      "    return 'a'\n");
  spec.timeout = std::chrono::milliseconds(300);
  const auto caller = open(spec);
  call(*caller, twenty_with("hang", 7));
  start_supervisor(*caller);
  wait();
  expect_others(7);
  EXPECT_EQ(sink_.status(7).code(), Code::kDataLoss);
  EXPECT_THAT(sink_.status(7).message(), HasSubstr("it took longer than timeout (0.3 s)"));
}

TEST_F(RunnerEndsTest, AChildThatGrowsBeyondItsBoundEnds) {
  start();
  CallSpec spec = text_call(
      "kept = []\n"
      "def f(x):\n"
      "    while x == 'grow':\n"
      "        kept.append(np.ones(1 << 23, np.uint8))\n"
      "        time.sleep(0.01)\n"
      "    return 'a'\n");
  spec.max_rss = 300 << 20;
  const auto caller = open(spec);
  call(*caller, twenty_with("grow", 0));
  start_supervisor(*caller);
  wait();
  expect_others(0);
  EXPECT_THAT(sink_.status(0).message(), HasSubstr("it grew beyond max_rss (300.0 MiB)"));
}

TEST_F(RunnerEndsTest, ACopyThatTheFunctionForkedSaysNothing) {
  start();
  const auto caller = open(text_call("def f(x):\n    os.fork()\n    return 'a'\n"));
  start_supervisor(*caller);
  call(*caller, std::vector<std::string>(20, "a"));
  wait();
  expect_others(20);
}

TEST_F(RunnerEndsTest, RowsOutliveTheirSupervisor) {
  start();
  const auto caller =
      open(text_call("def f(x):\n"
                     "    open(HERE + '/began', 'w').write(str(os.getpid()))\n"
                     "    while not os.path.exists(HERE + '/go'): time.sleep(0.01)\n"
                     "    return 'a'\n",
                     2));
  const std::string key = key_of(*caller);
  call(*caller, std::vector<std::string>(20, "a"));
  const pid_t supervisor = start_supervisor(key);
  wait_until([&] { return exists("began") && !std::filesystem::is_empty(dir_.path() + "/began"); });
  std::string child;
  std::ifstream(dir_.path() + "/began") >> child;
  end(supervisor);
  wait_until([&] { return ::kill(std::stoi(child), 0) != 0; });  // it does not outlive it
  wait_until([&] { return caller->waits_for().find("start them by") != std::string::npos; });
  EXPECT_THAT(caller->waits_for(),
              HasSubstr("python -m spdld.runner --address " + dir_.path() + " --pool " + key));
  EXPECT_EQ(sink_.count(), 0u);
  touch("go");
  start_supervisor(key);
  wait();
  expect_others(20);
}

TEST_F(RunnerEndsTest, ASecondSupervisorOfAPoolGoesAgain) {
  start();
  const auto caller = open(text_call("def f(x): return str(os.getppid())\n"));
  const std::string key = key_of(*caller);
  EXPECT_EQ(caller->wanted(), key);
  const pid_t first = start_supervisor(key);
  wait_until([&] { return caller->wanted().empty(); });
  EXPECT_EQ(exit_status(start_supervisor(key)), 0);
  call(*caller, {"a"});
  wait();
  EXPECT_EQ(rows_[0].answer(), std::to_string(first));
}

TEST_F(RunnerEndsTest, CodeThatChangedBetweenTwoJobsIsImportedAnew) {
  start();
  const CallSpec spec = text_call("def f(x): return 'old'\n");
  auto caller = open(spec);
  start_supervisor(*caller);
  call(*caller, {"a"});
  wait();
  const auto open_again = [&] {
    caller.reset();
    caller = open(spec);
  };
  open_again();
  call(*caller, {"a"});
  wait();
  EXPECT_EQ(rows_.back().answer(), "old");
  rewrite(spec, "def f(x): return 'new'\n");
  // Until the last one has been let go of before the next one came.
  wait_until([&] {
    open_again();
    return !caller->wanted().empty();
  });
  start_supervisor(*caller);
  call(*caller, {"a"});
  wait();
  EXPECT_EQ(rows_.back().answer(), "new");
}

TEST_F(RunnerEndsTest, CodeThatChangesUnderAJobEndsItRatherThanMakeOtherRows) {
  start();
  const CallSpec spec = text_call("def f(x): return 'old'\n");
  const auto caller = open(spec);
  const std::string key = key_of(*caller);
  const pid_t supervisor = start_supervisor(key);
  call(*caller, {"a"});
  wait();
  expect_change_to_be_refused(*caller, spec, supervisor, key);
}

TEST_F(RunnerEndsTest, CodeThatChangesUnderALaterJobEndsItLikewise) {
  start();
  const CallSpec spec = text_call("def f(x): return 'old'\n");
  auto caller = open(spec);
  const std::string key = key_of(*caller);
  const pid_t supervisor = start_supervisor(key);
  call(*caller, {"a"});
  wait();
  caller.reset();
  caller = open(spec);  // the supervisor looks, and goes on
  call(*caller, {"a"});
  wait();
  EXPECT_TRUE(sink_.status(1).ok());
  expect_change_to_be_refused(*caller, spec, supervisor, key);
}

TEST_F(RunnerEndsTest, ASupervisorThatDoesNotLookForALaterJobIsGivenUp) {
  start({.patience = std::chrono::milliseconds(200)});
  const CallSpec spec = text_call("def f(x): return x\n");
  auto caller = open(spec);
  const std::string key = key_of(*caller);
  const pid_t supervisor = start_supervisor(key);
  call(*caller, {"a"});
  wait();
  ::kill(supervisor, SIGSTOP);
  caller.reset();
  caller = open(spec);
  call(*caller, {"b"});
  wait_until([&] { return !caller->wanted().empty(); });
  end(supervisor);
  start_supervisor(key);
  wait();
  EXPECT_EQ(rows_.back().answer(), "b");
}

TEST_F(RunnerEndsTest, ASupervisorGoesOnWithTheNextDaemon) {
  start();
  CallSpec spec = text_call("def f(x): return x\n");
  auto caller = open(spec);
  start_supervisor(*caller);
  call(*caller, {"a"});
  wait();
  server_.reset();
  start();
  caller = open(spec);
  call(*caller, {"a"});
  wait();
  expect_others(20);
}

TEST_F(RunnerEndsTest, ASupervisorThatDoesNotEndItsChildIsGivenUp) {
  start({.patience = std::chrono::milliseconds(100)});
  CallSpec spec = text_call(
      "def f(x):\n"
      "    if os.path.exists(HERE + '/stopped'): return 'a'\n"
      "    os.kill(os.getppid(), signal.SIGSTOP)\n"
      "    open(HERE + '/stopped', 'w').close()\n"
      "    while True: time.sleep(1)\n");
  spec.timeout = std::chrono::milliseconds(200);
  const auto caller = open(spec);
  const std::string key = key_of(*caller);
  start_supervisor(key);
  wait_until([&] { return caller->wanted().empty(); });
  call(*caller, {"a"});
  wait_until([&] { return caller->waits_for().find("start them by") != std::string::npos; });
  start_supervisor(key);
  wait();
  expect_others(20);
}

TEST_F(RunnerEndsTest, AnotherUsersRunnerIsToldThatThereIsNoSuchPool) {
  start({.peer = [](int socket) {
    auto peer = peer_of(socket);
    peer->uid = 4242;
    return peer;
  }});
  const auto caller = open(text_call("open('/nowhere/at/all')\n"));
  call(*caller, {"a"});
  const pid_t supervisor = start_supervisor(*caller);
  EXPECT_EQ(exit_status(supervisor), 1);
  EXPECT_THAT(log(), AllOf(HasSubstr("there is no pool " + key_of(*caller) + " of this user"),
                           ::testing::Not(HasSubstr("nowhere"))));
  EXPECT_EQ(sink_.count(), 0u);
}

}  // namespace
}  // namespace spdld::delivery
