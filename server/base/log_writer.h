// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace spdld {

struct LogWriterOptions {
  int fd = 2;
  std::size_t capacity_bytes = 1 << 20;  // of lines that wait; the oldest go first
  // The line that stands where so many are missing.
  std::function<std::string(std::uint64_t dropped)> dropped_line;
};

// Lines on their way to a file descriptor that others may not read: a bounded queue, and the one
// thread ("spdld-log") that writes. Thread-safe; nothing but drain() waits for the descriptor. The
// thread blocks all signals, and is not waited for when the writer dies: one that is stuck in the
// kernel must not keep a process that leaves. What cannot be written (nobody has the other end of
// the pipe any more) is dropped and counted.
class LogWriter {
 public:
  explicit LogWriter(LogWriterOptions options);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // A line, with its line feed.
  void push(std::string line);
  // Waits until all that was pushed before has been written or dropped. False: `patience` ended
  // first.
  bool drain(std::chrono::nanoseconds patience);
  // Nothing waits to be written. From signal handlers, too.
  bool drained() const noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too
};

}  // namespace spdld
