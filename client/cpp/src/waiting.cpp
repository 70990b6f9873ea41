// SPDX-License-Identifier: Apache-2.0
#include "waiting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "text.h"

namespace spdld::client {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSlice{100};
constexpr milliseconds kFirstNotice{10'000};
constexpr milliseconds kFurtherNotices{30'000};

milliseconds since(SteadyTime then) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - then);
}

}  // namespace

void notify(const LoaderOptions& options, const std::string& text) {
  if (options.on_notice) {
    options.on_notice(text);
  } else {
    std::fprintf(stderr, "spdld: %s\n", text.c_str());
  }
}

Waiting::Waiting(const LoaderOptions& options, std::string what)
    : options_(options),
      what_(std::move(what)),
      start_(std::chrono::steady_clock::now()),
      asked_(start_),
      alive_(start_),
      next_notice_(start_ + kFirstNotice) {}

bool Waiting::wait(int fd, short events, milliseconds at_most) {
  const milliseconds left = options_.timeout - since(alive_);
  if (left <= milliseconds::zero()) {
    throw TimeoutError(kDeadlineExceeded,
                       stands_ ? join("no headway for ", options_.timeout.count(),
                                      " ms while waiting for ", what_, ": ", doing_)
                               : join("no sign of life from the daemon for ",
                                      options_.timeout.count(), " ms while waiting for ", what_,
                                      doing_.empty() ? "" : "; its last word: " + doing_,
                                      "; `spdlctl status` says what it is doing"));
  }
  pollfd look{.fd = fd, .events = events, .revents = 0};
  const auto slice = std::clamp(std::min(left, at_most), milliseconds(0), kSlice);
  const int ready = ::poll(&look, fd < 0 ? 0 : 1, static_cast<int>(slice.count()));
  if (ready > 0) return true;
  // A signal ends the slice early.
  if (options_.on_wait && (ready < 0 || since(asked_) >= kSlice)) {
    asked_ = std::chrono::steady_clock::now();
    options_.on_wait();
  }
  if (std::chrono::steady_clock::now() >= next_notice_) notice();
  return false;
}

void Waiting::notice() {
  next_notice_ += kFurtherNotices;
  notify(options_, notice_text());
}

std::string Waiting::notice_text() const {
  std::string text = join("waiting for ", what_, " for ", waited().count() / 1000, " s");
  if (!disconnected_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(-since(gives_up_));
    return join(text, ": ", disconnected_, "this ends in ", std::max<std::int64_t>(left.count(), 0),
                " s");
  }
  return text + (doing_.empty() ? "; the daemon does not say why" : ": " + doing_);
}

void Waiting::alive() { alive_ = std::chrono::steady_clock::now(); }

void Waiting::progress(std::uint64_t done, std::uint64_t total, const std::string& text) {
  alive();
  stands_ = false;
  doing_ = text;
  if (total > 0) {
    doing_ += join(" (", done, " of ", total, ")");
  } else if (done > 0) {
    doing_ += join(" (", done, ")");
  }
}

void Waiting::standstill(const std::string& text) {
  stands_ = true;
  doing_ = text;
}

void Waiting::disconnected(const std::string& text, SteadyTime until) {
  disconnected_ = text;
  gives_up_ = until;
  // What an earlier connection said is of no matter any more.
  stands_ = false;
  doing_.clear();
}

void Waiting::reconnected() { disconnected_.clear(); }

milliseconds Waiting::waited() const { return since(start_); }

Backoff::Backoff() : random_(std::random_device{}()) {}

milliseconds Backoff::next() {
  std::uniform_int_distribution<std::int64_t> draw(pause_.count() / 2, pause_.count());
  const milliseconds out{draw(random_)};
  pause_ = std::min(pause_ * 2, milliseconds{1'000});
  return out;
}

}  // namespace spdld::client
