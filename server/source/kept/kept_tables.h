// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/kept/kept_classes.h"
#include "source/kept/kept_kind.h"
#include "source/kept/open_values.h"
#include "source/table/columns_file.h"

namespace spdld::source {

// The columns that a table or an annotation file has of the items, and the items' classes in their
// order. Immutable.
struct TableDataset {
  std::string id = {};  // names it to KeptTables::open(); empty: it is not kept
  KeptColumns table = {};
  std::vector<std::string> classes = {};
  ListingMemory::SharePtr memory = nullptr;  // that it counts in
};
using TableDatasetPtr = std::shared_ptr<const TableDataset>;

// The columns of the tables that were applied (source/table/columns_file.h). Sources with the same
// table share it in memory.
//
// Owned by KeptDatasets; thread-safe. A file that cannot be written or read is an error of that
// call alone.
class KeptTables final : public KeptKind {
 public:
  // `directory` is made when it is needed.
  KeptTables(const std::string& directory, const KeptClasses& classes)
      : directory_(directory), classes_(classes) {}

  // The dataset of a table that was read as `key` says, which is kept by this call. Unless that was
  // possible, which `kept` says, its id is good as long as it is in use.
  TableDatasetPtr add(const std::string& key, KeptColumns table, std::vector<std::string> classes,
                      ListingMemory::SharePtr memory, Status& kept);
  // One that is not open counts in `memory`. An error names the file: kNotFound, there is none;
  // kDataLoss, it is damaged; kResourceExhausted, the share has no room for it.
  Result<TableDatasetPtr> open(const std::string& id, ListingMemory::SharePtr memory);

  void add_open(std::set<std::string>& ids) override { datasets_.add_names(ids); }
  void add_files(const std::string& id, std::set<std::string>& files) const override;

 private:
  std::string path(const std::string& name) const;

  const std::string directory_;
  const KeptClasses& classes_;
  OpenValues<TableDataset> datasets_;
};

}  // namespace spdld::source
