// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

namespace spdld::source {

// One kind of kept dataset, as the collection of unused files sees it: how a dataset of this kind
// is added and opened again is each kind's own. Owned by KeptDatasets; thread-safe.
class KeptKind {
 public:
  virtual ~KeptKind() = default;

  // Adds the ids of the datasets that sources have open.
  virtual void add_open(std::set<std::string>& ids) = 0;
  // Adds the files of this kind that hold the dataset `id`, relative to the directory of
  // KeptDatasets; none for a dataset of another kind. `id` is that of one dataset, or of clips of
  // one.
  virtual void add_files(const std::string& id, std::set<std::string>& files) const = 0;
};

}  // namespace spdld::source
