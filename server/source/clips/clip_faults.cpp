// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_faults.h"

#include <algorithm>
#include <utility>

namespace spdld::source {
namespace {

// The fault of a member of a shard without the shard's path, with which its text begins, as if the
// shard were to blame.
std::string_view own_words(std::string_view text, std::string_view uri) {
  const std::size_t end = text.find(": ");
  const std::size_t slash = uri.rfind('/');
  if (end == std::string_view::npos || slash == std::string_view::npos) return text;
  const std::string_view path = text.substr(0, end);
  const std::string_view shard = uri.substr(0, slash);
  const bool is_shards = path.ends_with(shard) && (path.size() == shard.size() ||
                                                   path[path.size() - shard.size() - 1] == '/');
  return is_shards ? text.substr(end + 2) : text;
}

}  // namespace

ClipFault& ClipFaults::find(const std::string& reason, std::uint64_t item,
                            const std::string& more) {
  const auto found = std::find_if(faults_.begin(), faults_.end(),
                                  [&](const ClipFault& known) { return known.reason == reason; });
  if (found != faults_.end()) return *found;
  std::string example = source_.uri(item);
  if (!more.empty()) example += " (" + more + ")";
  return faults_.emplace_back(
      ClipFault{.reason = reason, .example = std::move(example), .status = {}});
}

void ClipFaults::add(const std::string& reason, std::uint64_t item, const Status& status,
                     const std::string& more) {
  ClipFault& fault = find(reason, item, more);
  if (++fault.count == 1 && !status.ok())
    fault.status = Status(status.code(), source_.uri(item) + ": " + status.message());
}

void ClipFaults::add_times(const std::string& reason, std::uint64_t item, std::uint64_t count,
                           const std::string& more) {
  ClipFault& fault = find(reason, item, more);
  fault.of_times = true;
  fault.count += count;
}

void ClipFaults::add_unreadable(std::uint64_t item, Code code, std::string_view why) {
  const std::string text(own_words(why, source_.uri(item)));
  add("not readable as media", item, {code, text}, text);
}

}  // namespace spdld::source
