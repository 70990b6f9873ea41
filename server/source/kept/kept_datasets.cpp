// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_datasets.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "source/bytes/unused_files.h"
#include "source/kept/dataset_id.h"

namespace spdld::source {
namespace {

std::vector<std::string> with_parts(const std::string& id) {
  std::vector<std::string> each = split_dataset(id);
  each.push_back(id);  // clips, which are taken apart otherwise
  return each;
}

}  // namespace

KeptDatasets::KeptDatasets(const std::string& directory)
    : directory_(directory),
      classes_(directory),
      listings_(directory, classes_),
      tables_(directory, classes_),
      tar_indexes_(directory),
      media_indexes_(directory) {}

Result<std::vector<std::string>> KeptDatasets::classes_of(const std::string& id) const {
  const auto parts = parse_listed_id(id);
  if (!parts || parts->classes.empty())
    return error(Code::kNotFound, "'" + id + "' names no classes");
  return classes_.load(*parts);
}

bool KeptDatasets::has(const std::string& id) const {
  const auto has_all = [this](const KeptKind& kind, const std::string& of) {
    std::set<std::string> files;
    kind.add_files(of, files);
    return std::all_of(files.begin(), files.end(), [this](const std::string& file) {
      std::error_code failed;
      return std::filesystem::exists(directory_ + "/" + file, failed);
    });
  };
  const std::vector<std::string> each = with_parts(id);
  // Its name does not tell whether something is a listing of files or a table.
  return !id.empty() && std::all_of(each.begin(), each.end(), [&](const std::string& one) {
    return (has_all(listings_, one) || has_all(tables_, one)) && has_all(tar_indexes_, one) &&
           has_all(media_indexes_, one);
  });
}

std::set<std::string> KeptDatasets::in_use() {
  std::set<std::string> ids;
  for (KeptKind* const kind : kinds()) kind->add_open(ids);
  return ids;
}

Status KeptDatasets::collect(const std::set<std::string>& used,
                             std::filesystem::file_time_type::duration grace) {
  std::set<std::string> ids = in_use();
  ids.insert(used.begin(), used.end());
  std::set<std::string> needed;
  for (const std::string& id : ids) {
    for (const std::string& one : with_parts(id)) {
      for (const KeptKind* const kind : kinds()) kind->add_files(one, needed);
    }
  }
  for (const std::string& below : {std::string(), std::string(KeptTarIndexes::kBelow),
                                   std::string(KeptMediaIndexes::kBelow)}) {
    const std::string path = below.empty() ? "" : "/" + below;
    const auto is_used = [&](const std::filesystem::path& file) {
      return needed.contains(below.empty() ? file.string() : below + "/" + file.string());
    };
    SPDLD_TRY(remove_unused_files(directory_ + path, is_used, grace));
  }
  return {};
}

}  // namespace spdld::source
