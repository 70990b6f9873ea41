// SPDX-License-Identifier: Apache-2.0
#include "source/file/index_files.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

namespace spdld::source {

namespace fs = std::filesystem;

std::vector<std::string> IndexFiles::names(std::string_view prefix) const {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code failed;
  for (fs::directory_iterator entry(directory_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || (!is_part(name) && !is_whole(name))) continue;
    std::error_code gone;
    const fs::file_time_type written = entry->last_write_time(gone);
    if (!gone) found.emplace_back(written, std::move(name));
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [written, name] : found) names.push_back(std::move(name));
  return names;
}

void IndexFiles::touch(const std::string& name) const {
  std::error_code ignored;
  fs::last_write_time(path(name), fs::file_time_type::clock::now(), ignored);
}

void IndexFiles::remove(const std::string& name) const {
  std::error_code ignored;
  fs::remove(path(name), ignored);
}

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace spdld::source
