// SPDX-License-Identifier: Apache-2.0
#include "source/file_roots.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "source/files_source.h"
#include "source/joined_source.h"

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
  return join_sources(std::move(sources));
}

}  // namespace spdld::source
