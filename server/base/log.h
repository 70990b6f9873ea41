// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

#if FMT_VERSION < 100000 && !defined(FMT_HEADER_ONLY)
// libfmt has it. Versions before 10 do not say so, and each source that logs would compile it anew.
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::basic_format_args<FMT_BUFFER_CONTEXT(char)>,
                                                   fmt::detail::locale_ref);
#endif

// The daemon's log. A caller formats its line and goes on: one thread writes, and what it cannot
// write in time is dropped and counted (base/log_writer.h). Lines are valid UTF-8 without control
// characters, whatever names they hold.
namespace spdld::log {

// Sends spdlog to `fd`. `format` is "text" or "json"; under systemd (JOURNAL_STREAM) text lines
// carry the <N> priority prefix and no time. Call once, before other threads start. From then on a
// signal that ends the process by a crash first waits, a second at most, for what was logged.
Status configure(const std::string& level, const std::string& format, int fd = 2);

// Every second or so: tells what each user's quota has left out.
void tick();
// Waits until what was logged is written. False: nobody reads it, or not within `patience`.
bool drain(std::chrono::nanoseconds patience);
// Why the process ends: a line without time and level. Waits a second at most for it to be written;
// without a log, it goes to stderr.
void last_words(const std::string& text);

// What a line is about. JSON lines carry these as fields; text lines leave them out, so the message
// must name what matters.
struct About {
  std::string_view job = {};
  std::string_view pipeline = {};
  std::optional<std::uint64_t> session = {};
  std::optional<pid_t> pid = {};
  std::optional<uid_t> uid = {};
  // `uid` can cause such lines at will: beyond a quota they are left out, and their number told.
  bool has_quota = false;
};

// As spdlog::log() does, if the level is on.
void write(spdlog::level::level_enum level, const About& about, std::string_view text);

template <typename... Args>
void write(spdlog::level::level_enum level, const About& about,
           spdlog::format_string_t<Args...> format, Args&&... args) {
  if (spdlog::should_log(level))
    write(level, about, std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}
template <typename... Args>
void info(const About& about, spdlog::format_string_t<Args...> format, Args&&... args) {
  write(spdlog::level::info, about, format, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(const About& about, spdlog::format_string_t<Args...> format, Args&&... args) {
  write(spdlog::level::warn, about, format, std::forward<Args>(args)...);
}
template <typename... Args>
void error(const About& about, spdlog::format_string_t<Args...> format, Args&&... args) {
  write(spdlog::level::err, about, format, std::forward<Args>(args)...);
}

}  // namespace spdld::log
