// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ctl/complete/complete.h"
#include "ctl/complete/shell_value.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

// What `spdlctl __complete WORDS...` prints.
struct Answer {
  Words words;
  std::string also;  // behind the ':' of the last line
  std::string err;
  int exit_code = -1;
};

Answer completed(Words words) {
  words.insert(words.begin(), "__complete");
  const Outcome outcome = spdlctl(words);
  Answer answer;
  answer.err = outcome.err;
  answer.exit_code = outcome.exit_code;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    answer.words.push_back(line.substr(0, line.find('\t')));
  if (answer.words.empty()) return answer;
  answer.also = answer.words.back();
  answer.words.pop_back();
  return answer;
}

Words words_of(const Words& typed) { return completed(typed).words; }

class CompletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("SPDLD_ADDRESS", daemon_.path().c_str(), 1), 0);
    daemon_.service.pipeline_view.name = "pets";
    daemon_.service.job_view.job = "run-7";
    daemon_.service.job_view.pipeline = "pets";
    daemon_.service.session_views.resize(1);
    daemon_.service.session_views[0].id = 31;
  }
  void TearDown() override { ::unsetenv("SPDLD_ADDRESS"); }

  FakeDaemon daemon_;
};

TEST_F(CompletionTest, NamesTheCommands) {
  EXPECT_THAT(words_of({"ge"}), ElementsAre("get"));
  EXPECT_THAT(words_of({"get", ""}),
              UnorderedElementsAre("pipelines", "jobs", "sessions", "users", "runners", "stages",
                                   "storage", "failures", "classes"));
  EXPECT_THAT(words_of({"job", "re"}), ElementsAre("resize"));
  EXPECT_THAT(words_of({"service", ""}), UnorderedElementsAre("install", "status", "remove"));
  EXPECT_THAT(words_of({"service", "remove", "--f"}), ElementsAre("--force"));
  const Words all = words_of({""});
  for (const std::string command :
       {"status", "get", "job", "init", "apply", "consume", "completion"})
    EXPECT_THAT(all, Contains(command));
  EXPECT_THAT(all, Not(Contains("__complete")));
}

TEST_F(CompletionTest, TakesTheSingularOfANounForItsPlural) {
  EXPECT_THAT(words_of({"get", "stage", "--e"}), ElementsAre("--ended"));
}

TEST_F(CompletionTest, NamesTheOptionsOfACommandAndOfThoseAboveIt) {
  EXPECT_THAT(words_of({"get", "jobs", "--"}),
              UnorderedElementsAre("--help", "--output", "--pipeline", "--ended", "--address",
                                   "--timeout", "--version"));
  EXPECT_THAT(words_of({"get", "jobs", "--o"}), ElementsAre("--output"));
}

TEST_F(CompletionTest, NamesAnOptionTwiceOnlyWhereItMayBeGivenTwice) {
  const Words again = words_of({"apply", "-f", "a", "--var", "x=1", "--dry-run", "--"});
  EXPECT_THAT(again, Contains("--var"));
  EXPECT_THAT(again, Not(Contains("--file")));
  EXPECT_THAT(again, Not(Contains("--dry-run")));
}

TEST_F(CompletionTest, NamesTheChoicesOfAnOption) {
  EXPECT_THAT(words_of({"get", "jobs", "-o", ""}), ElementsAre("table", "json"));
  EXPECT_THAT(words_of({"get", "pipelines", "--output", "y"}), ElementsAre("yaml"));
  EXPECT_THAT(words_of({"get", "jobs", "--output=j"}), ElementsAre("--output=json"));
  EXPECT_THAT(words_of({"job", "create", "run", "--epochs", ""}), ElementsAre("auto", "manual"));
  EXPECT_THAT(words_of({"completion", ""}), ElementsAre("bash", "zsh"));
}

TEST_F(CompletionTest, LeavesTheUserToFillInAForm) {
  const Answer forms = completed({"apply", "--at", ""});
  EXPECT_THAT(forms.words, ElementsAre("next-epoch", "now", "step:"));
  EXPECT_EQ(completed({"rollback", "pets", "--at", "s"}).also, ":nospace");
  EXPECT_EQ(completed({"rollback", "pets", "--at", "ne"}).also, ":");
}

TEST_F(CompletionTest, OffersFilesForAPath) {
  EXPECT_EQ(completed({"init", ""}).also, ":files");
  EXPECT_EQ(completed({"init", "data", "-o", ""}).also, ":files");
  EXPECT_EQ(completed({"init", "data", "--root", ""}).also, ":directories");
}

TEST_F(CompletionTest, NamesWhatCannotBeLeftOut) {
  EXPECT_THAT(words_of({"apply", ""}), ElementsAre("--file"));
  EXPECT_THAT(words_of({"apply", "-fpets.yaml", ""}), IsEmpty());
}

TEST_F(CompletionTest, LeavesFilesAndDirectoriesToTheShell) {
  EXPECT_EQ(completed({"apply", "-f", "pe"}).also, ":files");
  EXPECT_EQ(completed({"apply", "--file=pe"}).also, ":files");
  EXPECT_EQ(completed({"--address", ""}).also, ":directories");
  EXPECT_EQ(completed({"status", ""}).also, ":");
}

TEST_F(CompletionTest, AsksTheDaemonForNames) {
  daemon_.start();
  EXPECT_THAT(words_of({"consume", ""}), ElementsAre("pets"));
  EXPECT_THAT(words_of({"get", "stages", "--pipeline", "p"}), ElementsAre("pets"));
  EXPECT_THAT(words_of({"get", "jobs", "run"}), ElementsAre("run-7"));
  EXPECT_THAT(words_of({"apply", "-f", "a", "--job=r"}), ElementsAre("--job=run-7"));
  EXPECT_THAT(words_of({"delete", "job", ""}), ElementsAre("run-7"));
  EXPECT_THAT(words_of({"evict", ""}), ElementsAre("31"));
  EXPECT_THAT(daemon_.service.calls(),
              ElementsAre("pipelines", "pipelines", "jobs", "jobs", "jobs", "sessions"));
}

TEST_F(CompletionTest, NamesJobsThatHaveEndedWhereTheyAreMeant) {
  daemon_.start();
  EXPECT_THAT(words_of({"get", "jobs", "--ended", ""}), ElementsAre("run-7"));
  EXPECT_THAT(daemon_.service.calls(), ElementsAre("ended_jobs"));
}

TEST_F(CompletionTest, AsksForNoNamesThatTheCommandWouldMake) {
  daemon_.start();
  EXPECT_THAT(words_of({"job", "create", ""}), IsEmpty());
  EXPECT_THAT(words_of({"job", "resize", "run", "--shards", ""}), IsEmpty());
  EXPECT_THAT(daemon_.service.calls(), IsEmpty());
}

TEST_F(CompletionTest, OffersNoNameThatAShellWouldRun) {
  for (const std::string name : {"$(reboot)", "a;b", "a b", "--all-jobs", "a\nb"}) {
    daemon_.service.job_view.job = name;
    daemon_.start();
    EXPECT_THAT(words_of({"delete", "job", ""}), IsEmpty()) << name;
    daemon_.die();
  }
}

TEST_F(CompletionTest, AsksTheDaemonThatTheLineNames) {
  daemon_.start();
  ::setenv("SPDLD_ADDRESS", "/nowhere", 1);
  ::setenv("COMPLETION_TEST_DIR", daemon_.path().c_str(), 1);
  EXPECT_THAT(words_of({"consume", ""}), IsEmpty());
  EXPECT_THAT(words_of({"--address", "\"$COMPLETION_TEST_DIR\"", "consume", ""}),
              ElementsAre("pets"));
  ::unsetenv("COMPLETION_TEST_DIR");
}

TEST_F(CompletionTest, SaysNothingWhereNoDaemonAnswers) {
  const Answer answer = completed({"consume", ""});
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_THAT(answer.words, IsEmpty());
  EXPECT_EQ(answer.err, "");
}

TEST_F(CompletionTest, SaysNothingBehindWordsThatMeanNothing) {
  EXPECT_THAT(words_of({"gett", ""}), IsEmpty());
  EXPECT_THAT(words_of({"status", "--wide", "--"}), IsEmpty());
  EXPECT_THAT(words_of({"status", "now", "--"}), IsEmpty());
  EXPECT_THAT(words_of({"get", "jobs", "--", "--"}), IsEmpty());
}

TEST_F(CompletionTest, PrintsAScriptForEachShell) {
  for (const std::string shell : {"bash", "zsh"}) {
    const Outcome script = spdlctl({"completion", shell});
    EXPECT_EQ(script.exit_code, 0) << script.err;
    EXPECT_NE(script.out.find("__complete"), std::string::npos) << shell;
  }
  EXPECT_EQ(spdlctl({"completion", "fish"}).exit_code, 2);
  EXPECT_EQ(spdlctl({"completion"}).exit_code, 2);
}

TEST(ShellValue, IsWhatAShellWouldPassOn) {
  const std::map<std::string, std::string> set = {{"HOME", "/home/ann"}, {"A_1", "x y"}};
  const auto value = [&](const std::string& word) {
    return shell_value(word, [&](const std::string& name) -> std::optional<std::string> {
      const auto found = set.find(name);
      if (found == set.end()) return std::nullopt;
      return found->second;
    });
  };
  EXPECT_EQ(value("plain"), "plain");
  EXPECT_EQ(value("~/run"), "/home/ann/run");
  EXPECT_EQ(value("a~/run"), "a~/run");
  EXPECT_EQ(value("\"$A_1/run\""), "x y/run");
  EXPECT_EQ(value("'$A_1'"), "$A_1");
  EXPECT_EQ(value("${A_1}b$NONE"), "x yb");
  EXPECT_EQ(value("a\\ b\"it's\"'\\'"), "a bit's\\");
  EXPECT_EQ(value("$(reboot)${A_1"), "$(reboot)${A_1");
  EXPECT_EQ(value("$"), "$");
  EXPECT_EQ(value("open'"), "open");
}

}  // namespace
}  // namespace spdld::ctl
