// SPDX-License-Identifier: Apache-2.0
#include "session/history.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace spdld::session {
namespace {

// In the history, of a version that repeats an earlier one.
constexpr std::string_view kRollback = "rollback to version ";

std::optional<std::uint32_t> repeats(const store::StoredRevision& revision) {
  const std::string& note = revision.note;
  if (!note.starts_with(kRollback)) return std::nullopt;
  std::uint32_t version = 0;
  const char* const end = note.data() + note.size();
  const auto [stopped, failed] = std::from_chars(note.data() + kRollback.size(), end, version);
  if (failed != std::errc() || stopped != end) return std::nullopt;
  return version;
}

// The version that first had the content of `version`: follows the revisions that repeat another.
std::uint32_t applied_as(const std::vector<store::StoredRevision>& revisions,
                         std::uint32_t version) {
  for (auto revision = revisions.rbegin(); revision != revisions.rend(); ++revision) {
    if (revision->version == version) version = repeats(*revision).value_or(version);
  }
  return version;
}

}  // namespace

std::string rollback_note(std::uint32_t version) {
  return std::string(kRollback) + std::to_string(version);
}

const store::StoredRevision* find_revision(const std::vector<store::StoredRevision>& revisions,
                                           std::uint32_t version) {
  for (const store::StoredRevision& revision : revisions) {
    if (revision.version == version) return &revision;
  }
  return nullptr;
}

Result<const store::StoredRevision*> one_further_back(
    const std::vector<store::StoredRevision>& revisions, const pipeline::PipelineVersion& current,
    const std::string& name) {
  const std::uint32_t now = applied_as(revisions, current.version);
  const bool repeated = now != current.version;
  const store::StoredRevision* before = nullptr;
  for (const store::StoredRevision& revision : revisions) {
    if (revision.version < now) before = &revision;
  }
  if (before != nullptr) before = find_revision(revisions, applied_as(revisions, before->version));
  if (before != nullptr) return before;
  return error(Code::kNotFound,
               "pipeline '" + name + "' is at version " + std::to_string(current.version) +
                   (repeated ? ", which repeats version " + std::to_string(now) : "") +
                   ", and nothing is kept of what was before " + (repeated ? "that" : "it") +
                   ": 'spdlctl get pipelines " + name +
                   " --history' lists its versions, and --to names one");
}

}  // namespace spdld::session
