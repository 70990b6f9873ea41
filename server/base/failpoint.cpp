// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

namespace spdld::failpoint {
namespace {

constexpr std::uint32_t kMaxDelayMs = 60'000;

struct NamedErrno {
  std::string_view name;
  int value;
};
// What the places can meet in earnest.
constexpr std::array kErrnos{
    NamedErrno{"EACCES", EACCES}, NamedErrno{"EDQUOT", EDQUOT},       NamedErrno{"EIO", EIO},
    NamedErrno{"EMFILE", EMFILE}, NamedErrno{"ENOENT", ENOENT},       NamedErrno{"ENOMEM", ENOMEM},
    NamedErrno{"ENOSPC", ENOSPC}, NamedErrno{"EROFS", EROFS},         NamedErrno{"ESTALE", ESTALE},
    NamedErrno{"EPERM", EPERM},   NamedErrno{"ETIMEDOUT", ETIMEDOUT},
};

// Never freed: a thread may be at a point while the process ends.
std::atomic<Failpoints*> armed_points{nullptr};

Status wrong(std::string_view part, std::string_view why) {
  return Status(Code::kInvalidArgument, fmt::format("SPDLD_FAILPOINTS: '{}': {}", part, why));
}

template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& one : names) text += (text.empty() ? "" : ", ") + std::string(one.name);
  return text;
}

// The whole of `text` as a number within [least, most].
template <typename T>
std::optional<T> number(std::string_view text, T least, T most) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < least || value > most) return std::nullopt;
  return value;
}

// "delay(50)" for "delay": "50".
std::optional<std::string_view> argument(std::string_view text, std::string_view verb) {
  if (text.size() < verb.size() + 2 || text.substr(0, verb.size()) != verb) return std::nullopt;
  text.remove_prefix(verb.size());
  if (text.front() != '(' || text.back() != ')') return std::nullopt;
  return text.substr(1, text.size() - 2);
}

}  // namespace

Status Failpoints::parse_action(std::string_view text, const Point& point, Armed& armed) {
  if (text == "kill") {
    armed.action = Action::kKill;
  } else if (text == "stop") {
    armed.action = Action::kStop;
  } else if (const auto delay = argument(text, "delay")) {
    const auto delay_ms = number<std::uint32_t>(*delay, 1, kMaxDelayMs);
    if (!delay_ms) return wrong(text, fmt::format("a delay is 1 to {} ms", kMaxDelayMs));
    armed.action = Action::kDelay;
    armed.delay_ms = *delay_ms;
  } else if (const auto name = argument(text, "error")) {
    for (const NamedErrno& one : kErrnos) {
      if (one.name == *name) armed.err = one.value;
    }
    if (armed.err == 0) return wrong(text, "the errors are " + listed(kErrnos));
    if (!point.can_fail) return wrong(text, fmt::format("'{}' cannot fail", point.name));
    armed.action = Action::kError;
  } else {
    return wrong(text, "the actions are kill, stop, error(ERRNO) and delay(MS)");
  }
  return {};
}

Status Failpoints::parse_part(std::string_view part, Failpoints& into) {
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) return wrong(part, "wanted NAME=ACTION[@N[+]]");
  const std::string_view name = part.substr(0, equals);
  std::string_view action = part.substr(equals + 1);

  std::size_t index = 0;
  while (index < kPoints.size() && kPoints[index].name != name) ++index;
  if (index == kPoints.size()) {
    return wrong(part, fmt::format("there is no point '{}'; there are {}", name, listed(kPoints)));
  }
  Armed& armed = into.armed_[index];
  if (armed.action != Action::kNone) return wrong(part, "the point is named twice");

  if (const std::size_t at = action.find('@'); at != std::string_view::npos) {
    std::string_view hits = action.substr(at + 1);
    action = action.substr(0, at);
    armed.repeats = !hits.empty() && hits.back() == '+';
    if (armed.repeats) hits.remove_suffix(1);
    const auto first = number<std::uint64_t>(hits, 1, UINT64_MAX);
    if (!first)
      return wrong(part, "after '@' comes the number of a hit, from 1 on, then maybe '+'");
    armed.first = *first;
  }
  return parse_action(action, kPoints[index], armed);
}

Result<std::unique_ptr<Failpoints>> Failpoints::parse(std::string_view text) {
  auto points = std::make_unique<Failpoints>();
  while (!text.empty()) {
    const std::size_t end = text.find(';');
    SPDLD_TRY(parse_part(text.substr(0, end), *points));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) return detail::Failure{wrong(";", "nothing follows it")};
  }
  return points;
}

int Failpoints::hit(std::size_t point) {
  Armed& armed = armed_[point];
  if (armed.action == Action::kNone) return 0;
  const std::uint64_t number = armed.hits.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < armed.first || (number > armed.first && !armed.repeats)) return 0;
  switch (armed.action) {
    case Action::kNone: break;
    case Action::kKill: ::kill(::getpid(), SIGKILL); break;
    // To this thread, which then goes no step further; sent to the process, another might take it.
    case Action::kStop: ::raise(SIGSTOP); break;
    case Action::kDelay:
      std::this_thread::sleep_for(std::chrono::milliseconds(armed.delay_ms));
      break;
    case Action::kError: return armed.err;
  }
  return 0;
}

void arm(std::unique_ptr<Failpoints> points) {
  // Release: who sees the pointer sees what it points to.
  armed_points.store(points.release(), std::memory_order_release);
}

Status arm_from_environment() {
  const char* text = std::getenv("SPDLD_FAILPOINTS");
  if (text == nullptr) return {};
  SPDLD_ASSIGN(auto points, Failpoints::parse(text));
  arm(std::move(points));
  return {};
}

int hit(std::size_t point) {
  Failpoints* points = armed_points.load(std::memory_order_acquire);
  return points == nullptr ? 0 : points->hit(point);
}

Status hit_status(std::size_t point) {
  const int err = hit(point);
  return err == 0 ? Status()
                  : errno_status(err, fmt::format("failpoint '{}'", kPoints[point].name));
}

}  // namespace spdld::failpoint
