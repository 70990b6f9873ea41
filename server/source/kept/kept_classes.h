// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "source/kept/dataset_id.h"

namespace spdld::source {

// The class names of datasets in their order, as DIRECTORY/CLASSES.classes has them: each ended by
// a zero byte; CLASSES is the digest of these bytes. A value without state of its own; any thread.
// An error names the file.
class KeptClasses {
 public:
  explicit KeptClasses(std::string directory) : directory_(std::move(directory)) {}

  // Keeps them, and adds their digest to the id of what has them, whether or not they could be
  // kept.
  Status keep(const std::vector<std::string>& classes, std::string& id) const;
  // kNotFound, there are none; kDataLoss, the file is damaged.
  Result<std::vector<std::string>> load(const std::string& digest) const;
  void add_file(const ListedId& id, std::set<std::string>& files) const;

 private:
  std::string path(const std::string& digest) const;

  const std::string directory_;
};

}  // namespace spdld::source
