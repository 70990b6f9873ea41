// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/un.h>

#include <random>
#include <thread>

#include "tests/unit/delivery/runners/runner_fixture.h"

namespace spdld::delivery {
namespace {

using runner::RunnerFrameType;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

template <typename T>
Bytes frame_bytes(T frame, RunnerFrameType type, std::string_view text = {}) {
  Bytes bytes(sizeof frame + text.size());
  frame.header = {type, static_cast<std::uint32_t>(bytes.size())};
  std::memcpy(bytes.data(), &frame, sizeof frame);
  text.copy(reinterpret_cast<char*>(bytes.data()) + sizeof frame, text.size());
  return bytes;
}

// A runner's end of a connection that says what the test wants it to say.
class RawRunner {
 public:
  explicit RawRunner(const std::string& dir)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (dir + "/runner.sock").c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }

  void send(const Bytes& frame) {
    (void)!::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }

  // The next frame of this type; false: the daemon hung up.
  template <typename T>
  bool receive(RunnerFrameType type, T& frame) {
    for (;;) {
      alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
      Bytes bytes(runner::kMaxRunnerFrameBytes);
      iovec part{bytes.data(), bytes.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
      if (got < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
      if (got <= 0) return false;
      if (const cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr) {
        fds_.clear();
        for (std::size_t i = 0; i < (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof fd, sizeof fd);
          fds_.emplace_back(fd);
        }
      }
      runner::RunnerHeader header{};
      std::memcpy(&header, bytes.data(), sizeof header);
      if (header.type != type) continue;
      std::memcpy(&frame, bytes.data(), sizeof frame);
      return true;
    }
  }
  bool has_word() const {
    pollfd ready{socket_.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0;
  }
  // Says no more, and waits until the daemon has heard all.
  void finish() {
    ::shutdown(socket_.get(), SHUT_WR);
    EXPECT_TRUE(hung_up());
  }
  bool hung_up() {
    runner::End frame{};
    return !receive(RunnerFrameType::kEnd, frame);
  }

  std::vector<UniqueFd>& fds() { return fds_; }

 private:
  UniqueFd socket_;
  std::vector<UniqueFd> fds_;
};

// A supervisor and a child that the test speaks for.
class HostileRunnerTest : public RunnerTest {
 protected:
  void open_call(RunnerServerOptions options = {}) {
    start(std::move(options));
    caller_ = open(text_call(""));
    key_ = key_of(*caller_);
  }

  runner::SupervisorHello supervisor_hello() const {
    runner::SupervisorHello hello{};
    hello.magic = runner::kRunnerMagic;
    hello.version = runner::kRunnerVersion;
    std::memcpy(hello.key, key_.data(), sizeof hello.key);
    return hello;
  }
  runner::ChildHello child_hello(std::uint32_t number = 0) const {
    runner::ChildHello hello{};
    hello.magic = runner::kRunnerMagic;
    hello.version = runner::kRunnerVersion;
    std::memcpy(hello.key, key_.data(), sizeof hello.key);
    std::memcpy(hello.token, token_.token, sizeof hello.token);
    hello.number = number;
    hello.pid = 77;
    return hello;
  }
  void attach() {
    supervisor_ = std::make_unique<RawRunner>(dir_.path());
    supervisor_->send(frame_bytes(supervisor_hello(), RunnerFrameType::kSupervisorHello));
    ASSERT_TRUE(supervisor_->receive(RunnerFrameType::kPoolOpen, token_));
    attach_child();
  }
  void attach_child() {
    child_ = std::make_unique<RawRunner>(dir_.path());
    child_->send(frame_bytes(child_hello(), RunnerFrameType::kChildHello));
    ASSERT_TRUE(child_->receive(RunnerFrameType::kCellsOpen, cells_));
    ASSERT_EQ(child_->fds().size(), 2u);
    void* base = ::mmap(nullptr, runner::kCells * cells_.answer_cell_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED, child_->fds()[1].get(), 0);
    ASSERT_NE(base, MAP_FAILED);
    answers_ = static_cast<std::byte*>(base);
  }
  void TearDown() override {
    if (answers_ != nullptr) ::munmap(answers_, runner::kCells * cells_.answer_cell_bytes);
    RunnerTest::TearDown();
  }

  runner::Call next_call() {
    runner::Call call{};
    EXPECT_TRUE(child_->receive(RunnerFrameType::kCall, call));
    return call;
  }
  // Writes this answer to a row's entry of its cell, behind no bytes of its own.
  void put(const runner::Call& call, std::uint32_t row, runner::FieldEntry field,
           runner::AnswerKind kind = runner::AnswerKind::kFields) {
    const runner::AnswerEntry head{kind, static_cast<std::uint32_t>(call.call), 0, 0};
    std::byte* entry =
        answers_ + call.cell * cells_.answer_cell_bytes + row * (sizeof head + sizeof field);
    std::memcpy(entry + sizeof head, &field, sizeof field);
    std::memcpy(entry, &head, sizeof head);
  }
  static Bytes answer(const runner::Call& call, std::uint32_t first = 0, std::uint32_t count = 1) {
    runner::Answer frame{};
    frame.call = call.call;
    frame.first = first;
    frame.count = count;
    return frame_bytes(frame, RunnerFrameType::kAnswer);
  }
  // What a supervisor says of its only child's end.
  void say_ended() {
    runner::ChildEnded ended{};
    ended.pid = 77;
    ended.status = 9;
    supervisor_->send(frame_bytes(ended, RunnerFrameType::kChildEnded));
  }

  std::shared_ptr<RowCaller> caller_;
  std::string key_;
  runner::PoolOpen token_{};
  runner::CellsOpen cells_{};
  std::unique_ptr<RawRunner> supervisor_;
  std::unique_ptr<RawRunner> child_;
  std::byte* answers_ = nullptr;
};

TEST_F(HostileRunnerTest, ARunnerIsLentMemoryThatItCannotResizeAndInputThatItCannotWrite) {
  open_call();
  attach();
  const int input = child_->fds()[0].get();
  const int answers = child_->fds()[1].get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, input, 0), MAP_FAILED);
  EXPECT_LT(::pwrite(input, "a", 1, 0), 0);
  EXPECT_NE(::ftruncate(input, 0), 0);
  EXPECT_NE(::ftruncate(answers, 0), 0);
}

TEST_F(HostileRunnerTest, ADescriptionThatNobodyAskedForEndsTheChild) {
  open_call();
  attach();
  call(*caller_, {"a"});
  const runner::Call of_row = next_call();
  put(of_row, 0, {}, runner::AnswerKind::kDescription);
  child_->send(answer(of_row));
  EXPECT_TRUE(child_->hung_up());
}

TEST_F(HostileRunnerTest, AnAnswerOutsideOfItsCellEndsTheChild) {
  const std::uint64_t far = std::uint64_t{1} << 62;
  const runner::FieldEntry bad[] = {{.offset = 1 << 20, .bytes = 1, .shape = {}},
                                    {.offset = ~std::uint64_t{0}, .bytes = 2, .shape = {}},
                                    {.offset = 0, .bytes = far, .shape = {}},
                                    {.offset = 1, .bytes = ~std::uint64_t{0}, .shape = {}}};
  open_call();
  attach();
  for (const runner::FieldEntry& field : bad) {
    call(*caller_, {"a"});
    const std::size_t row = rows_.size() - 1;
    for (int end = 0; end < 2; ++end) {
      const runner::Call told = next_call();
      put(told, 0, field);
      child_->send(answer(told));
      EXPECT_TRUE(child_->hung_up());
      runner::Kill kill{};
      ASSERT_TRUE(supervisor_->receive(RunnerFrameType::kKill, kill));
      EXPECT_EQ(kill.pid, 77);
      say_ended();
      attach_child();
    }
    wait();
    EXPECT_EQ(sink_.status(row).code(), Code::kDataLoss);
    EXPECT_THAT(sink_.status(row).message(), HasSubstr("ended 2 processes"));
  }
  EXPECT_TRUE(sink_.each_once());
}

TEST_F(HostileRunnerTest, AnArraysShapeIsHeldAgainstWhatIsDeclared) {
  start();
  CallSpec spec = text_call("");
  spec.out = {array_field("y", DType::kInt32, {-1, 4}, 1024)};
  caller_ = open(spec);
  key_ = key_of(*caller_);
  attach();
  const runner::FieldEntry bad[] = {
      {.offset = 8192, .bytes = 16, .shape = {2, 4}},
      {.offset = 8192, .bytes = 16, .shape = {1, 3}},
      {.offset = 8192, .bytes = 16, .shape = {-1, 4}},
      {.offset = 8192, .bytes = 1040, .shape = {65, 4}},
      {.offset = 8192, .bytes = 0, .shape = {std::int64_t{1} << 62, 4}}};
  for (const runner::FieldEntry& field : bad) {
    call(*caller_, {"a"});
    for (int end = 0; end < 2; ++end) {
      const runner::Call told = next_call();
      put(told, 0, field);
      child_->send(answer(told));
      EXPECT_TRUE(child_->hung_up());
      say_ended();
      attach_child();
    }
    wait();
    EXPECT_EQ(sink_.status(rows_.size() - 1).code(), Code::kDataLoss);
  }
  call(*caller_, {"a"});
  const runner::Call told = next_call();
  put(told, 0, {.offset = 8192, .bytes = 1024, .shape = {64, 4}});
  child_->send(answer(told));
  wait();
  EXPECT_TRUE(sink_.status(rows_.size() - 1).ok());
}

TEST_F(HostileRunnerTest, AnAnswerThatNobodyAskedForEndsTheChild) {
  open_call();
  attach();
  call(*caller_, {"a"});
  const auto ends = [&](const std::function<void(const runner::Call&)>& say) {
    const runner::Call told = next_call();
    say(told);
    EXPECT_TRUE(child_->hung_up());
    say_ended();
    attach_child();
  };
  const std::uint64_t before = server_->protocol_errors();
  // The row goes on to the next child, as it has ended none but the first.
  ends([&](runner::Call told) {
    told.call += 100;
    child_->send(answer(told));
  });
  ends([&](const runner::Call& told) {
    put(told, 0, {});
    child_->send(answer(told));
    child_->send(answer(told));  // of a row that has come back
  });
  wait();
  EXPECT_TRUE(sink_.status(0).ok());
  call(*caller_, {"a"});
  ends([&](const runner::Call& told) { child_->send(answer(told, 0, 2)); });
  ends([&](const runner::Call& told) { child_->send(answer(told, 0, 1)); });  // it wrote none
  wait();
  EXPECT_EQ(sink_.status(1).code(), Code::kDataLoss);
  call(*caller_, {"a"});
  ends([&](const runner::Call& told) {
    put(told, 0, {}, runner::AnswerKind::kNoRoom);
    child_->send(answer(told));
  });
  EXPECT_EQ(server_->protocol_errors() - before, 5u);
  EXPECT_TRUE(sink_.each_once());
}

TEST_F(HostileRunnerTest, WhatADeadChildHadWrittenCounts) {
  open_call();
  attach();
  call(*caller_, {"a"});
  const runner::Call told = next_call();
  put(told, 0, {});
  child_.reset();
  say_ended();
  wait();
  EXPECT_TRUE(sink_.status(0).ok());
}

TEST_F(HostileRunnerTest, ACellThatChangesWhileItIsReadHarmsNobody) {
  open_call();
  attach();
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    call(*caller_, {"a"});
    while (sink_.count() < rows_.size()) {
      const runner::Call told = next_call();
      put(told, 0, {.offset = 9000, .bytes = 64, .shape = {}});
      std::atomic<bool> done{false};
      std::thread scribbler([&] {
        auto* words =
            reinterpret_cast<std::uint64_t*>(answers_ + told.cell * cells_.answer_cell_bytes);
        while (!done) {
          const std::uint64_t values[] = {0, 64, 9000, 1 << 20, ~std::uint64_t{0}, random()};
          words[3 + random() % 2] = values[random() % 6];  // its offset, or its bytes
        }
      });
      child_->send(answer(told));
      wait_until([&] { return sink_.count() == rows_.size() || child_->has_word(); });
      done = true;
      scribbler.join();
      if (sink_.count() == rows_.size() && !child_->has_word()) continue;
      EXPECT_TRUE(child_->hung_up());
      say_ended();
      attach_child();
    }
    if (sink_.status(rows_.size() - 1).ok()) {
      EXPECT_LE(rows_.back().answer().size(), std::size_t{1} << 20);
    }
  }
  EXPECT_TRUE(sink_.each_once());
}

TEST_F(HostileRunnerTest, TenThousandMutatedFramesHarmNobody) {
  open_call();
  std::mt19937 random(11);
  attach();
  for (int i = 0; i < 10'000; ++i) {
    if (i % 100 == 0) call(*caller_, {"a"});
    RawRunner runner(dir_.path());
    runner::ChildEnded ended{};
    ended.text_bytes = 3;
    runner::ImportFailed failed{};
    failed.text_bytes = 3;
    Bytes frames[] = {frame_bytes(supervisor_hello(), RunnerFrameType::kSupervisorHello),
                      frame_bytes(child_hello(1 + i), RunnerFrameType::kChildHello),
                      answer({.header = {}, .call = 1, .cell = 0, .rows = 1}),
                      frame_bytes(ended, RunnerFrameType::kChildEnded, "abc"),
                      frame_bytes(failed, RunnerFrameType::kImportFailed, "abc")};
    // Every other begins as a supervisor, or as a child, of the pool should be.
    if (i % 4 == 0) runner.send(frames[0]);
    if (i % 4 == 2) runner.send(frames[1]);
    Bytes frame = frames[random() % std::size(frames)];
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < changes; ++change) {
      const std::size_t at = random() % frame.size();
      switch (random() % 4) {
        case 0: frame[at] = static_cast<std::byte>(random()); break;
        case 1: frame[at] = static_cast<std::byte>(0xff); break;
        case 2: frame.resize(1 + at); break;
        default: frame.insert(frame.end(), random() % 64, std::byte{1}); break;
      }
      if (random() % 2 == 0 && frame.size() >= 8) {
        const auto bytes = static_cast<std::uint32_t>(frame.size());
        std::memcpy(frame.data() + 4, &bytes, sizeof bytes);
      }
    }
    runner.send(frame);
    runner.finish();
  }
  EXPECT_GT(server_->protocol_errors(), 1000u);
  // It goes on with the others.
  EXPECT_TRUE(sink_.each_once());
  const auto caller = open(text_call("def f(x): return x\n"));
  start_supervisor(*caller);
  call(*caller, {"b"});
  sink_.wait_for(rows_.size() - 1);
  EXPECT_TRUE(sink_.status(rows_.size() - 1).ok());
}

TEST_F(HostileRunnerTest, WhoSaysNothingIsHungUpOn) {
  open_call({.hello_timeout = std::chrono::milliseconds(1)});
  RawRunner runner(dir_.path());
  EXPECT_TRUE(runner.hung_up());
}

TEST_F(HostileRunnerTest, AUserHasABoundedNumberOfConnections) {
  open_call({.connections = {.per_user = 2}});
  attach();
  RawRunner third(dir_.path());
  runner::TurnedAway frame{};
  ASSERT_TRUE(third.receive(RunnerFrameType::kTurnedAway, frame));
  EXPECT_EQ(frame.code, static_cast<std::uint32_t>(Code::kResourceExhausted));
}

TEST_F(HostileRunnerTest, AChildNeedsItsSupervisorsToken) {
  open_call();
  attach();
  token_.token[0] ^= 1;
  RawRunner stranger(dir_.path());
  stranger.send(frame_bytes(child_hello(1), RunnerFrameType::kChildHello));
  runner::TurnedAway frame{};
  ASSERT_TRUE(stranger.receive(RunnerFrameType::kTurnedAway, frame));
  EXPECT_EQ(frame.code, static_cast<std::uint32_t>(Code::kNotFound));
}

}  // namespace
}  // namespace spdld::delivery
