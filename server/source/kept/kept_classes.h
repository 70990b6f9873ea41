// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "source/kept/dataset_id.h"

namespace spdld::source {

// The class names of datasets in their order: CLASSES.classes in KeptDatasets' directory, each name
// ended by a zero byte; CLASSES is the digest of these bytes. A value without state of its own; any
// thread. An error names the file.
class KeptClasses {
 public:
  explicit KeptClasses(std::string directory) : directory_(std::move(directory)) {}

  // Keeps them, and adds their digest to the id of their dataset, whether or not they could be
  // kept.
  Status keep(const std::vector<std::string>& classes, std::string& id) const;
  // None where `id` names none. kNotFound, there is no such file; kDataLoss, it is damaged.
  Result<std::vector<std::string>> load(const ListedId& id) const;
  void add_file(const ListedId& id, std::set<std::string>& files) const;

 private:
  std::string path(const std::string& digest) const;

  const std::string directory_;
};

}  // namespace spdld::source
