// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_files.h"

#include <cstddef>
#include <map>

namespace spdld::source {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string common_directory(const std::string& a, const std::string& b) {
  std::string common = a;
  while (!is_beneath(b, common)) common = directory_of(common);
  return common;
}

// Shards of one group share a root: those in one of access.roots, or else of one directory.
std::string group_of(const std::string& path, const AccessRules& access) {
  for (const AccessRoot& allowed : access.roots) {
    if (is_beneath(path, allowed.path)) return allowed.path;
  }
  return directory_of(path);
}

}  // namespace

ShardFiles find_shards(const std::vector<ShardIndex>& shards, IndexedFiles* indexed,
                       const std::string& key, const AccessRules& access) {
  std::map<std::string, std::string> roots;  // by group
  for (const ShardIndex& shard : shards) {
    const std::string directory = directory_of(shard.path);
    const auto [known, is_new] = roots.emplace(group_of(shard.path, access), directory);
    if (!is_new) known->second = common_directory(known->second, directory);
  }
  ShardFiles files;
  std::map<std::string, std::size_t> numbers;
  for (const auto& [group, root] : roots) {
    numbers.emplace(group, files.roots.size());
    files.roots.push_back({.root = root, .key = key, .access = access});
  }
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const ShardIndex& shard = shards[number];
    const std::size_t root = numbers.at(group_of(shard.path, access));
    const std::string& path = files.roots[root].root;
    files.shards.push_back(
        {.root = root,
         .uri = shard.path.substr(path == "/" ? 1 : path.size() + 1),
         .expected = ExpectedContent{.stamp = shard.stamp, .files = indexed, .number = number}});
  }
  return files;
}

}  // namespace spdld::source
