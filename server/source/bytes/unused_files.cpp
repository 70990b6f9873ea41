// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/unused_files.h"

#include <system_error>
#include <vector>

namespace spdld::source {

namespace fs = std::filesystem;

Status remove_unused_files(const std::string& directory,
                           const std::function<bool(const fs::path& name)>& is_used,
                           fs::file_time_type::duration grace) {
  const auto now = fs::file_time_type::clock::now();
  std::error_code failed;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code gone;
    if (entry->is_directory(gone)) continue;
    const fs::file_time_type time = entry->last_write_time(gone);
    if (!gone && now - time >= grace && !is_used(entry->path().filename()))
      old.push_back(entry->path());
  }
  if (failed && failed != std::errc::no_such_file_or_directory)
    return errno_status(failed.value(), "cannot read " + directory);
  for (const fs::path& file : old) {
    fs::remove(file, failed);
    if (failed) return errno_status(failed.value(), "cannot remove " + file.string());
  }
  return {};
}

}  // namespace spdld::source
