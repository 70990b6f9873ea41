// SPDX-License-Identifier: Apache-2.0
#include "base/log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace spdld {
namespace {

// A pipe that poll() calls writable takes so much at once (PIPE_BUF): write() does not block then,
// unless another process has filled the same pipe in between.
constexpr std::size_t kChunkBytes = 4096;
// How often a thread that waits for a reader looks whether its writer is still there.
constexpr int kPollMs = 100;

}  // namespace

struct LogWriter::State {
  explicit State(LogWriterOptions given) : options(std::move(given)) {}

  struct Chunk {
    std::string text;
    std::uint64_t lines = 0;  // 0: the writer is gone, and nothing is left
    std::uint64_t told = 0;   // dropped ones that its first line tells of
  };

  void run();
  // The next lines, once there are some.
  Chunk take() SPDLD_EXCLUDES(mutex);
  // False: the descriptor takes nothing any more, or the writer is gone.
  bool write_all(std::string_view text);
  void note_gone(const Chunk& chunk, bool written) SPDLD_EXCLUDES(mutex);

  const LogWriterOptions options;
  std::atomic<bool> closed{false};  // the writer is gone: what does not go out now never does
  // Counts of lines, which only grow. A signal handler reads them without the lock. Release and
  // acquire: a line that is seen to be gone has been written.
  std::atomic<std::uint64_t> pushed{0};
  std::atomic<std::uint64_t> gone{0};  // written or dropped

  Mutex mutex;
  CondVar changed;  // a line was pushed, written or dropped, or the writer has gone
  std::deque<std::string> queue SPDLD_GUARDED_BY(mutex);
  std::size_t queued_bytes SPDLD_GUARDED_BY(mutex) = 0;
  std::uint64_t dropped SPDLD_GUARDED_BY(mutex) = 0;  // not told yet
};

LogWriter::LogWriter(LogWriterOptions options)
    : state_(std::make_shared<State>(std::move(options))) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  MutexLock lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void LogWriter::push(std::string line) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  state.queued_bytes += line.size();
  state.queue.push_back(std::move(line));
  state.pushed.fetch_add(1, std::memory_order_release);
  while (state.queued_bytes > state.options.capacity_bytes && state.queue.size() > 1) {
    state.queued_bytes -= state.queue.front().size();
    state.queue.pop_front();
    ++state.dropped;
    state.gone.fetch_add(1, std::memory_order_release);
  }
  state.changed.notify_all();
}

bool LogWriter::drain(std::chrono::nanoseconds patience) {
  State& state = *state_;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(state.mutex);
  const std::uint64_t wanted = state.pushed.load(std::memory_order_relaxed);
  while (state.gone.load(std::memory_order_relaxed) < wanted) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return false;
    (void)state.changed.wait_for(state.mutex, left);
  }
  return true;
}

bool LogWriter::drained() const noexcept {
  return state_->gone.load(std::memory_order_acquire) ==
         state_->pushed.load(std::memory_order_acquire);
}

LogWriter::State::Chunk LogWriter::State::take() {
  MutexLock lock(mutex);
  while (queue.empty()) {
    if (closed) return {};
    changed.wait(mutex);
  }
  Chunk chunk;
  chunk.told = std::exchange(dropped, 0);
  if (chunk.told > 0) chunk.text = options.dropped_line(chunk.told);
  while (!queue.empty() &&
         (chunk.lines == 0 || chunk.text.size() + queue.front().size() <= kChunkBytes)) {
    queued_bytes -= queue.front().size();
    chunk.text += queue.front();
    queue.pop_front();
    ++chunk.lines;
  }
  return chunk;
}

bool LogWriter::State::write_all(std::string_view text) {
  while (!text.empty()) {
    pollfd waits{.fd = options.fd, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&waits, 1, kPollMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) {
      if (closed) return false;
      continue;
    }
    const ssize_t put = ::write(options.fd, text.data(), std::min(text.size(), kChunkBytes));
    if (put < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

void LogWriter::State::note_gone(const Chunk& chunk, bool written) {
  MutexLock lock(mutex);
  if (!written) dropped += chunk.lines + chunk.told;
  gone.fetch_add(chunk.lines, std::memory_order_release);
  changed.notify_all();
}

void LogWriter::State::run() {
  ::pthread_setname_np(::pthread_self(), "spdld-log");
  while (true) {
    const Chunk chunk = take();
    if (chunk.lines == 0) return;
    note_gone(chunk, write_all(chunk.text));
  }
}

}  // namespace spdld
