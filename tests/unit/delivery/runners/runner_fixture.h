// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "delivery/peer.h"
#include "delivery/runners/runner_server.h"
#include "tests/support/scratch_dir.h"

namespace spdld::delivery {

// Waits for what no condition variable tells. The test's watchdog bounds it.
template <typename Predicate>
void wait_until(const Predicate& holds) {
  while (!holds()) ::poll(nullptr, 0, 1);
}

// A row and the memory of its arguments.
struct TestRow {
  CallRow row;
  std::vector<std::string> bytes;  // of the arguments
  std::vector<std::array<std::int64_t, wire::kMaxRank>> shapes = {};

  void point() {
    row.arguments.clear();
    for (std::size_t i = 0; i < bytes.size(); ++i)
      row.arguments.push_back(
          {std::as_bytes(std::span(bytes[i])),
           i < shapes.size() ? shapes[i] : std::array<std::int64_t, wire::kMaxRank>{}});
  }
  std::string answer(std::size_t i = 0) const {
    const auto view = row.answers[i].view;
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }
};

template <typename T>
std::string bytes_of_number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Writes down what came of the rows.
class TestSink final : public CallSink {
 public:
  void called(std::uint64_t token, Status status) override {
    MutexLock lock(mutex_);
    ++times_[token];
    told_[token] = std::move(status);
    changed_.notify_all();
  }
  // Waits until so many have come back.
  void wait(std::size_t rows) {
    MutexLock lock(mutex_);
    while (told_.size() < rows) changed_.wait(mutex_);
  }
  void wait_for(std::uint64_t token) {
    MutexLock lock(mutex_);
    while (!told_.contains(token)) changed_.wait(mutex_);
  }
  std::size_t count() {
    MutexLock lock(mutex_);
    return told_.size();
  }
  Status status(std::uint64_t token) {
    MutexLock lock(mutex_);
    return told_.at(token);
  }
  // Each row that came back did so once.
  bool each_once() {
    MutexLock lock(mutex_);
    return std::all_of(times_.begin(), times_.end(), [](const auto& t) { return t.second == 1; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, Status> told_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, int> times_ SPDLD_GUARDED_BY(mutex_);
};

inline CallField array_field(std::string name, DType dtype, std::vector<std::int64_t> shape,
                             std::uint64_t max_bytes = 1 << 20) {
  return {
      .name = std::move(name), .dtype = dtype, .shape = std::move(shape), .max_bytes = max_bytes};
}
inline CallField field_of(std::string name, CallField::Kind kind,
                          std::uint64_t max_bytes = 1 << 20) {
  return {.name = std::move(name), .kind = kind, .max_bytes = max_bytes};
}

// A runner server on a socket of its own, and real supervisors: `python -m spdld.runner`.
class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() { spdlog::set_level(spdlog::level::warn); }
  void TearDown() override {
    for (const pid_t pid : supervisors_) end(pid);
    if (HasFailure()) std::cerr << log() << std::flush;
  }

  void start(RunnerServerOptions options = {}) {
    options.address = dir_.path();
    auto listener = listen_unix(lock_, dir_.path() + "/runner.sock", SOCK_SEQPACKET, 0666);
    ASSERT_TRUE(listener);
    server_ = std::move(*RunnerServer::start(std::move(*listener), std::move(options), budget_));
  }

  // A function `f` of one file, which has this text behind the usual imports. Its one input is the
  // text `x`, and it gives the text `y`.
  CallSpec text_call(const std::string& text, int children = 1) {
    const std::string file = write_code("user" + std::to_string(files_++) + ".py", text);
    CallSpec spec;
    spec.call = file + ":f";
    spec.in = {field_of("x", CallField::Kind::kText)};
    spec.out = {field_of("y", CallField::Kind::kText)};
    spec.concurrency = children;
    return spec;
  }

  std::string write_code(const std::string& name, const std::string& text) {
    return dir_.write(name,
                      "import os, random, signal, sys, time, asyncio, threading\n"
                      "import numpy as np\nimport spdld\nHERE = os.path.dirname(__file__)\n" +
                          text);
  }
  // Another text in the place of text_call()'s.
  void rewrite(const CallSpec& spec, const std::string& text) {
    const std::string file = spec.call.substr(0, spec.call.rfind(':'));
    write_code(std::filesystem::path(file).filename(), text);
  }

  std::shared_ptr<RowCaller> open(const CallSpec& spec) { return server_->open(::geteuid(), spec); }

  // Of one that nobody serves yet.
  static std::string key_of(const RowCaller& caller) {
    EXPECT_NE(caller.waits_for().find("--pool " + caller.wanted()), std::string::npos);
    return caller.wanted();
  }

  pid_t start_supervisor(const std::string& key) {
    const char* python = std::getenv("SPDLD_TEST_PYTHON");
    EXPECT_NE(python, nullptr) << "ctest sets it";
    std::vector<std::string> words{
        python ? python : "python3", "-m", "spdld.runner", "--address", dir_.path(), "--pool", key};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = dir_.path() + "/log";
    for (const int fd : {1, 2})
      posix_spawn_file_actions_addopen(&actions, fd, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0600);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    supervisors_.push_back(pid);
    return pid;
  }
  pid_t start_supervisor(const RowCaller& caller) { return start_supervisor(key_of(caller)); }

  // Kills it, if it is there yet.
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    std::erase(supervisors_, pid);
  }
  // Waits for its end; its exit status.
  int exit_status(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    std::erase(supervisors_, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Calls with these texts; `sink_` is told, the index in `rows_` as token.
  void call(RowCaller& caller, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::uint64_t token = rows_.size();
      TestRow& row = rows_.emplace_back();
      row.bytes = {text};
      row.row.position = token;
      row.row.item = token;
      row.point();
      caller.call(row.row, sink_, token);
    }
  }
  void wait() { sink_.wait(rows_.size()); }

  void touch(const std::string& name) { dir_.write(name, ""); }
  bool exists(const std::string& name) { return std::filesystem::exists(dir_.path() + "/" + name); }
  std::string log() {
    std::ifstream file(dir_.path() + "/log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  test::ScratchDir dir_;
  RuntimeLock lock_ = std::move(*RuntimeLock::take(dir_.path()));
  ArenaBudget budget_{std::uint64_t{1} << 30};
  TestSink sink_;
  std::deque<TestRow> rows_;
  std::unique_ptr<RunnerServer> server_;
  std::vector<pid_t> supervisors_;
  int files_ = 0;
};

}  // namespace spdld::delivery
