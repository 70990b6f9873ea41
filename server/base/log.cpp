// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "base/line_quota.h"
#include "base/log_writer.h"
#include "base/mutex.h"
#include "base/text/printable.h"

#if FMT_VERSION < 100000 && !defined(FMT_HEADER_ONLY)
// For the sources that log.h keeps from making it: clang does not look for it in libfmt. Hidden, so
// that libfmt goes on with its own.
template __attribute__((visibility("hidden"))) void fmt::detail::vformat_to<char>(
    fmt::detail::buffer<char>&, fmt::string_view, fmt::basic_format_args<FMT_BUFFER_CONTEXT(char)>,
    fmt::detail::locale_ref);
#endif

namespace spdld::log {
namespace {

// A user's lines: enough for the ranks of a large job to fail once.
constexpr double kQuotaBurst = 100;
constexpr double kQuotaPerSecond = 1;
// A message may hold names and texts of any length that came from outside.
constexpr std::size_t kMaxMessageBytes = 16 << 10;
constexpr std::chrono::seconds kLastWordsPatience{1};

// What the line that this thread logs just now is about: spdlog's message has no field for it. It
// is read on the same thread, where spdlog formats the line.
thread_local const About* current_about = nullptr;

std::string clean(std::string_view message) {
  const bool too_long = message.size() > kMaxMessageBytes;
  std::string text = printable(message.substr(0, kMaxMessageBytes));
  if (too_long) text += " ... (" + std::to_string(message.size()) + " bytes in all)";
  return text;
}

// Of clean text.
void append_json(spdlog::memory_buf_t& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
}

void append(spdlog::memory_buf_t& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

// Each of these flags makes a part of a line; Format is a function of the message.
template <void (*Format)(const spdlog::details::log_msg&, spdlog::memory_buf_t&)>
class Flag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    Format(message, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Flag>(); }
};

// sd-daemon's "<N>" in front of a line, so that journald files it under the right priority.
void format_priority(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  static constexpr std::string_view kPrefix[] = {"<7>", "<7>", "<6>", "<4>", "<3>", "<2>", ""};
  append(out, kPrefix[message.level]);
}

void format_text(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  append(out, clean({message.payload.data(), message.payload.size()}));
}

// The message as the inside of a JSON string.
void format_json(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  append_json(out, clean({message.payload.data(), message.payload.size()}));
}

// ,"job":"run-7","pid":17
void format_fields(const spdlog::details::log_msg&, spdlog::memory_buf_t& out) {
  if (current_about == nullptr) return;
  const auto text = [&](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    append(out, key);
    append_json(out, clean(value));
    append(out, "\"");
  };
  const auto number = [&](std::string_view key, const auto& value) {
    if (!value) return;
    append(out, key);
    append(out, std::to_string(*value));
  };
  const About& about = *current_about;
  text(R"(,"job":")", about.job);
  text(R"(,"pipeline":")", about.pipeline);
  number(R"(,"session":)", about.session);
  number(R"(,"pid":)", about.pid);
  number(R"(,"uid":)", about.uid);
}

std::unique_ptr<spdlog::formatter> make_formatter(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Flag<format_priority>>('*')
      .add_flag<Flag<format_text>>('k')
      .add_flag<Flag<format_json>>('j')
      .add_flag<Flag<format_fields>>('w');
  formatter->set_pattern(pattern);
  return formatter;
}

std::chrono::nanoseconds monotonic_now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

// Where spdlog's lines go. Thread-safe; its lock is held to format one line, never to write it.
class Sink final : public spdlog::sinks::sink {
 public:
  Sink(const std::string& pattern, int fd)
      : formatter_(make_formatter(pattern)),
        // A formatter of its own: the writer's thread makes this line.
        writer_({.fd = fd,
                 .dropped_line = [own = std::shared_ptr(make_formatter(pattern))](auto dropped) {
                   return line(*own, spdlog::level::warn,
                               "log: " + std::to_string(dropped) +
                                   " lines are missing here, nobody read them in time");
                 }}) {}

  void log(const spdlog::details::log_msg& message) override {
    MutexLock lock(mutex_);
    const auto now = monotonic_now();
    if (current_about != nullptr && current_about->has_quota && current_about->uid &&
        !quota_.admit(*current_about->uid, now))
      return;
    spdlog::memory_buf_t out;
    formatter_->format(message, out);
    writer_.push(fmt::to_string(out));
  }
  void tell_left_out(bool all) {
    const auto now = monotonic_now();
    MutexLock lock(mutex_);
    for (const LineQuota::LeftOut& user : quota_.take_left_out(now, all)) {
      const About about{.uid = user.uid};
      const About* const before = std::exchange(current_about, &about);
      writer_.push(line(*formatter_, spdlog::level::warn,
                        "log: " + std::to_string(user.lines) + " lines that user " +
                            std::to_string(user.uid) + " has caused were left out"));
      current_about = before;
    }
  }
  void push(std::string text) { writer_.push(std::move(text)); }
  bool drain(std::chrono::nanoseconds patience) { return writer_.drain(patience); }
  bool drained() const noexcept { return writer_.drained(); }

  void flush() override {}
  void set_pattern(const std::string& pattern) override {
    MutexLock lock(mutex_);
    formatter_ = make_formatter(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    MutexLock lock(mutex_);
    formatter_ = std::move(formatter);
  }

 private:
  static std::string line(spdlog::formatter& formatter, spdlog::level::level_enum level,
                          const std::string& text) {
    spdlog::memory_buf_t out;
    formatter.format(spdlog::details::log_msg("spdld", level, text), out);
    return fmt::to_string(out);
  }

  Mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ SPDLD_GUARDED_BY(mutex_);
  LineQuota quota_ SPDLD_GUARDED_BY(mutex_){kQuotaBurst, kQuotaPerSecond};
  LogWriter writer_;
};

// The sink of configure()'s last call, for as long as the process lives: a process has one log, as
// spdlog has one default logger, and a signal handler must find it.
std::atomic<Sink*> live_sink{nullptr};

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction default_actions[std::size(kCrashes)];

// Waits until the writer's thread has written what was logged, then lets the crash take its course:
// the former action is restored, and the faulting instruction runs again, or the signal is sent
// again.
void on_crash(int signal, siginfo_t* info, void*) {
  const Sink* const sink = live_sink.load(std::memory_order_acquire);
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 10'000'000};
  for (int i = 0; i < 100 && sink != nullptr && !sink->drained(); ++i)
    (void)::nanosleep(&kPause, nullptr);
  for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
    if (kCrashes[i] == signal) (void)::sigaction(signal, &default_actions[i], nullptr);
  }
  if (info->si_code <= 0) (void)::raise(signal);  // somebody sent it: no instruction repeats it
}

void watch_crashes() {
  static const bool kOnce = [] {
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < std::size(kCrashes); ++i)
      (void)::sigaction(kCrashes[i], &action, &default_actions[i]);
    return true;
  }();
  (void)kOnce;
}

}  // namespace

Status configure(const std::string& level, const std::string& format, int fd) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    return Status(
        Code::kInvalidArgument,
        "log.level '" + level + "' is none of trace, debug, info, warning, error, critical, off");
  std::string pattern;
  if (format == "json") {
    pattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","thread":%t,"message":"%j"%w})";
  } else if (format == "text") {
    pattern = std::getenv("JOURNAL_STREAM") != nullptr ? "%*%k" : "%Y-%m-%d %H:%M:%S.%e %L %k";
  } else {
    return Status(Code::kInvalidArgument, "log.format '" + format + "' is neither text nor json");
  }
  // Kept for good: a thread or a signal handler may be about to use it.
  static auto& kept = *new std::vector<std::shared_ptr<Sink>>;
  const auto sink = std::make_shared<Sink>(pattern, fd);
  kept.push_back(sink);
  auto logger = std::make_shared<spdlog::logger>("spdld", sink);
  logger->set_level(parsed);
  // spdlog's own would write to stderr, and wait for it.
  logger->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(std::move(logger));
  live_sink.store(sink.get(), std::memory_order_release);
  watch_crashes();
  return {};
}

void tick() {
  if (Sink* const sink = live_sink.load(std::memory_order_acquire)) sink->tell_left_out(false);
}

bool drain(std::chrono::nanoseconds patience) {
  Sink* const sink = live_sink.load(std::memory_order_acquire);
  if (sink == nullptr) return true;
  sink->tell_left_out(true);
  return sink->drain(patience);
}

void last_words(const std::string& text) {
  if (Sink* const sink = live_sink.load(std::memory_order_acquire)) {
    sink->push(text + "\n");
    (void)sink->drain(kLastWordsPatience);
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

void write(spdlog::level::level_enum level, const About& about, std::string_view text) {
  const About* const before = std::exchange(current_about, &about);
  spdlog::log(level, text);
  current_about = before;
}

}  // namespace spdld::log
