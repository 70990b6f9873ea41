// SPDX-License-Identifier: Apache-2.0
#include "base/mounts.h"

#include <sys/sysmacros.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

namespace spdld {
namespace {

// "259:2"
std::optional<dev_t> device_of(std::string_view text) {
  unsigned major = 0;
  unsigned minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  return makedev(major, minor);
}

// Blanks, tabs, newlines and backslashes stand there as "\040" and the like.
std::string unescaped(std::string_view text) {
  std::string path;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned code = 0;
    if (text[at] == '\\' && at + 3 < text.size() &&
        std::from_chars(text.data() + at + 1, text.data() + at + 4, code, 8).ptr ==
            text.data() + at + 4) {
      path += static_cast<char>(code);
      at += 3;
    } else {
      path += text[at];
    }
  }
  return path;
}

std::string_view take_word(std::string_view& line) {
  const std::size_t end = line.find(' ');
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return word;
}

}  // namespace

std::map<dev_t, std::string> mount_points(std::string_view mountinfo) {
  std::map<dev_t, std::string> mounts;
  while (!mountinfo.empty()) {
    const std::size_t end = mountinfo.find('\n');
    std::string_view line = mountinfo.substr(0, end);
    mountinfo.remove_prefix(end == std::string_view::npos ? mountinfo.size() : end + 1);
    take_word(line);  // the mount's id, and its parent's
    take_word(line);
    const std::optional<dev_t> device = device_of(take_word(line));
    take_word(line);  // what of the file system is mounted there
    const std::string_view path = take_word(line);
    if (device && !path.empty()) mounts.try_emplace(*device, unescaped(path));
  }
  return mounts;
}

std::map<dev_t, std::string> mount_points() {
  std::ifstream file("/proc/self/mountinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return mount_points(text);
}

}  // namespace spdld
