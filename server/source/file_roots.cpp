// SPDX-License-Identifier: Apache-2.0
#include "source/file_roots.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "source/file/access.h"
#include "source/file/root_disk.h"
#include "source/files_source.h"
#include "source/joined_source.h"
#include "source/kept/dataset_id.h"
#include "source/listing/glob.h"

namespace spdld::source {
namespace {

using Sources = std::vector<std::unique_ptr<Source>>;

// The specs of the roots, each on its own.
std::vector<FilesSpec> split(const FilesSpec& spec) {
  std::vector<FilesSpec> specs(1 + spec.more_roots.size(), spec);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].more_roots.clear();
    if (i > 0) specs[i].root = spec.more_roots[i - 1];
  }
  return specs;
}

Status invalid_root(const std::string& why) {
  return Status(Code::kInvalidArgument, why).with_context(kFilesRootKey);
}

// Whether items of the directory `below` the root of `spec` may be items of that root.
Result<bool> may_have(const FilesSpec& spec, std::string_view below) {
  for (const std::string& pattern : spec.exclude) {
    SPDLD_ASSIGN(const Glob glob, Glob::parse(pattern));
    if (glob.covers(below)) return false;
  }
  SPDLD_ASSIGN(const Glob glob, Glob::parse(spec.pattern));
  return !glob.at(below).dead();
}

std::string_view path_below(std::string_view path, std::string_view directory) {
  path.remove_prefix(directory.size());
  if (path.starts_with('/')) path.remove_prefix(1);
  return path;
}

// No file is to be an item of two roots. A root that cannot be opened is another's error.
Status check_apart(const std::vector<FilesSpec>& specs, const SourceOptions& options) {
  const Access access(options.access, options.reader);
  std::vector<std::pair<const FilesSpec*, std::string>> roots;  // with their real paths
  for (const FilesSpec& spec : specs) {
    Result<Root> root = open_root(spec.root, access, kFilesRootKey);
    if (root) roots.emplace_back(&spec, std::move(root->path));
  }
  for (const auto& [inner, path] : roots) {
    for (const auto& [outer, directory] : roots) {
      if (inner == outer || !is_beneath(path, directory)) continue;
      const std::string below(path_below(path, directory));
      if (below.empty())
        return invalid_root(inner->root + " and " + outer->root + " are one directory, " + path +
                            "; name one of them");
      SPDLD_ASSIGN(const bool twice, may_have(*outer, below));
      if (twice)
        return invalid_root(
            inner->root + " lies in " + outer->root +
            ", whose items have its files already; name one of them, or add 'exclude: "
            "\"" +
            below + "/**\"'");
    }
  }
  return {};
}

// What tells an item of one root from those of the others: the root's path below the directory that
// all of them lie in, or all of it where that is "/". Each ends with a slash, or is empty.
std::vector<std::string> prefixes_of(const std::vector<FilesSpec>& specs) {
  std::vector<std::string> prefixes;
  prefixes.reserve(specs.size());
  for (const FilesSpec& spec : specs)
    prefixes.push_back(spec.root.ends_with('/') ? spec.root : spec.root + "/");
  std::size_t common = prefixes.front().size();
  for (const std::string& prefix : prefixes) {
    const auto end = std::min(common, prefix.size());
    const auto differs =
        std::mismatch(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(end),
                      prefixes.front().begin());
    common = static_cast<std::size_t>(differs.first - prefix.begin());
  }
  common = prefixes.front().substr(0, common).rfind('/') + 1;
  if (common == 1) return prefixes;
  for (std::string& prefix : prefixes) prefix.erase(0, common);
  return prefixes;
}

Result<Sources> open_each(const std::vector<FilesSpec>& specs,
                          const std::vector<std::string>& datasets, const SourceOptions& options) {
  Sources sources;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SourceOptions each = options.for_another();
    each.dataset = datasets[i];
    if (options.progress)
      each.progress = [&options, before](std::uint64_t items, const std::string& what) {
        options.progress(before + items, what);
      };
    SPDLD_ASSIGN(std::unique_ptr<Source> source, open_files(specs[i], std::move(each)));
    before += source->size();
    if (before > options.max_items)
      return error(Code::kResourceExhausted,
                   "source.files.root: its roots hold more than the " +
                       std::to_string(options.max_items) +
                       " items that a dataset may have; narrow the pattern, or name fewer roots");
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace

Result<std::unique_ptr<Source>> open_file_roots(const FilesSpec& spec, SourceOptions options) {
  if (spec.more_roots.empty()) return open_files(spec, std::move(options));
  std::vector<FilesSpec> specs = split(spec);
  std::vector<std::string> datasets = split_dataset(options.dataset);
  // What was applied has as many, unless its record is another pipeline's.
  if (!options.dataset.empty() && datasets.size() != specs.size())
    return error(Code::kDataLoss, "what was applied had " + std::to_string(datasets.size()) +
                                      " roots; apply the pipeline again");
  if (options.dataset.empty()) SPDLD_TRY(check_apart(specs, options));
  datasets.resize(specs.size());
  SPDLD_ASSIGN(Sources sources, open_each(specs, datasets, options));
  std::set<std::string> classes;
  for (const auto& source : sources)
    classes.insert(source->classes().begin(), source->classes().end());
  const auto has_all = [&classes](const auto& source) {
    return source->classes().size() == classes.size();
  };
  if (!std::all_of(sources.begin(), sources.end(), has_all)) {
    for (FilesSpec& each : specs)
      each.classes = {.kind = ClassesSpec::Kind::kList, .names = {classes.begin(), classes.end()}};
    // What they have listed is kept, and so not walked again.
    SPDLD_ASSIGN(sources, open_each(specs, datasets, options));
  }
  return join_sources(std::move(sources), prefixes_of(specs));
}

}  // namespace spdld::source
