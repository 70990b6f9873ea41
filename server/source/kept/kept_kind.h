// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

namespace spdld::source {

// One kind of what KeptDatasets keeps, as the collection of unused files sees it: how a dataset of
// this kind is added and opened again is each kind's own. Owned by KeptDatasets; thread-safe.
class KeptKind {
 public:
  virtual ~KeptKind() = default;

  // Adds the ids of what sources have open.
  virtual void add_open(std::set<std::string>& ids) = 0;
  // Adds the files of this kind that hold what `id` names, relative to the directory of
  // KeptDatasets. None is there if it names something of another kind. `id` is that of one dataset,
  // or of clips of one.
  virtual void add_files(const std::string& id, std::set<std::string>& files) const = 0;
};

}  // namespace spdld::source
