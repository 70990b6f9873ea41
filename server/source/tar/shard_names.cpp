// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_names.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text/printable.h"
#include "source/listing/glob.h"
#include "source/listing/walk.h"
#include "source/tar/brace_expansion.h"

namespace spdld::source {
namespace {

constexpr std::string_view kBetweenNames = "::";

Status invalid_shards(const std::string& what, const std::string& why) {
  return Status(Code::kInvalidArgument,
                "source.webdataset.shards: '" + printable(what) + "' " + why);
}

// What WebDataset reads and this does not.
Status check_local(const std::string& name) {
  if (name.starts_with("pipe:"))
    return invalid_shards(
        name,
        "is a command, and none is run: copy the shards to this machine, or mount "
        "them there");
  if (name.find("://") != std::string::npos)
    return invalid_shards(name,
                          "is an address, and this version reads files alone: copy the shards to "
                          "this machine, or mount them there");
  if (!name.starts_with('/')) return invalid_shards(name, "is no absolute path");
  if (name.find('\0') != std::string::npos) return invalid_shards(name, "holds a zero byte");
  return {};
}

// The path that a pattern without '*', '?' and '[' stands for.
std::string unescaped(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    path += pattern[i];
  }
  return path;
}

// Where the first '*', '?' or '[' that stands for something else is; npos: nowhere.
std::size_t first_wildcard(std::string_view pattern) {
  for (std::size_t i = 0; i < pattern.size(); i = pattern_atom_end(pattern, i)) {
    const char c = pattern[i];
    if (c == '*' || c == '?') return i;
    if (c == '[' && pattern_atom_end(pattern, i) > i + 1) return i;
  }
  return std::string_view::npos;
}

// Braces and brackets that are still there stand for themselves, which Glob must be told.
std::string glob_text(std::string_view pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size();) {
    const std::size_t end = pattern_atom_end(pattern, i);
    if (pattern[i] == '{' || pattern[i] == '}' || (pattern[i] == '[' && end == i + 1)) text += '\\';
    text += pattern.substr(i, end - i);
    i = end;
  }
  return text;
}

class ShardFinder {
 public:
  ShardFinder(const Access& access, const ShardNameOptions& options)
      : access_(access), options_(options) {}

  Status add(const std::string& name) {
    SPDLD_TRY(check_local(name));
    std::vector<std::string> expanded;
    SPDLD_TRY(expand_braces(name, options_.max_shards, expanded)
                  .with_context("source.webdataset.shards"));
    for (const std::string& pattern : expanded) {
      const std::size_t wildcard = first_wildcard(pattern);
      if (wildcard == std::string::npos) {
        SPDLD_TRY(take(unescaped(pattern)));
      } else {
        SPDLD_TRY(match(pattern, pattern.rfind('/', wildcard)));
      }
    }
    return {};
  }

  std::vector<std::string> paths() && { return std::move(paths_); }

 private:
  Status take(std::string path) {
    if (paths_.size() >= options_.max_shards)
      return Status(Code::kResourceExhausted, "source.webdataset.shards: there are more than the " +
                                                  std::to_string(options_.max_shards) +
                                                  " shards that a source may have");
    if (!seen_.insert(path).second)
      return invalid_shards(path, "is named twice; name each shard once");
    paths_.push_back(std::move(path));
    return {};
  }

  // `slash` ends the directory below which the names are looked for.
  Status match(const std::string& pattern, std::size_t slash) {
    const std::string directory = slash == 0 ? "/" : unescaped(pattern.substr(0, slash));
    Result<Glob> glob = Glob::parse(glob_text(pattern.substr(slash + 1)));
    if (!glob) return invalid_shards(pattern, "cannot be matched: " + glob.error().message());
    Access::Opened opened;
    const Denial denial = access_.open(AT_FDCWD, directory, Access::Links::kFollow,
                                       O_PATH | O_DIRECTORY | O_CLOEXEC, opened);
    if (denial.err == ENOENT || denial.err == ENOTDIR)
      return Status(Code::kNotFound, "source.webdataset.shards: '" + printable(pattern) +
                                         "' matches nothing: there is no directory " +
                                         printable(directory) + " where spdld runs");
    if (denial.err != 0) return Access::status(denial, "cannot list", directory);
    SPDLD_ASSIGN(Walk found, walk(opened.fd.get(), *glob, access_,
                                  {.root = directory,
                                   .links = Access::Links::kFollow,
                                   .threads = options_.threads,
                                   .max_items = options_.max_shards,
                                   .max_directories = options_.max_directories,
                                   .progress = {},
                                   .stop = options_.stop}));
    if (options_.warnings != nullptr)
      std::move(found.warnings.begin(), found.warnings.end(),
                std::back_inserter(*options_.warnings));
    const Listing& names = found.listing;
    if (names.size() == 0)
      return Status(Code::kNotFound,
                    "source.webdataset.shards: '" + printable(pattern) +
                        "' matches none of the files below " + printable(directory) +
                        (found.a_file.empty() ? "" : ", such as " + printable(found.a_file)) +
                        "; correct it");
    const std::string before = directory == "/" ? directory : directory + "/";
    for (std::uint64_t i = 0; i < names.size(); ++i) SPDLD_TRY(take(before + names.uri(i)));
    return {};
  }

  const Access& access_;
  const ShardNameOptions& options_;
  std::vector<std::string> paths_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

Result<std::vector<std::string>> shard_paths(const std::vector<std::string>& patterns,
                                             const Access& access,
                                             const ShardNameOptions& options) {
  ShardFinder finder(access, options);
  for (const std::string& pattern : patterns) {
    for (std::size_t begin = 0; begin <= pattern.size();) {
      const std::size_t end = std::min(pattern.find(kBetweenNames, begin), pattern.size());
      SPDLD_TRY(finder.add(pattern.substr(begin, end - begin)));
      begin = end + kBetweenNames.size();
      // "a::" names nothing behind the '::'.
      if (end < pattern.size() && begin == pattern.size())
        return tl::unexpected(invalid_shards(pattern, "ends with '::'; name a shard behind it"));
    }
  }
  std::vector<std::string> paths = std::move(finder).paths();
  if (paths.empty())
    return error(Code::kInvalidArgument,
                 "source.webdataset.shards names no shard; give at least one");
  return paths;
}

}  // namespace spdld::source
