// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_tables.h"

#include <string_view>
#include <utility>

#include "source/file/disk.h"
#include "source/listing/classes.h"

namespace spdld::source {
namespace {

constexpr std::string_view kTable = ".cols";

}  // namespace

std::string KeptTables::path(const std::string& name) const {
  return directory_ + "/" + name + std::string(kTable);
}

TableDatasetPtr KeptTables::add(const std::string& key, KeptColumns table,
                                std::vector<std::string> classes, ListingMemory::SharePtr memory,
                                Status& kept) {
  std::string id = listed_id(key, table.columns.digest());
  const std::string file = path(id);
  Status with_classes;
  if (!classes.empty()) with_classes = classes_.keep(classes, id);
  // Its columns are the same, if its time is, too.
  if (TableDatasetPtr known = datasets_.find(id);
      known && is_as_indexed(known->table.file, table.file)) {
    kept = with_classes;
    return known;
  }
  kept = save_columns(table, file);
  if (kept.ok()) kept = with_classes;
  return datasets_.put(
      id, std::make_shared<const TableDataset>(TableDataset{.id = id,
                                                            .table = std::move(table),
                                                            .classes = std::move(classes),
                                                            .memory = std::move(memory)}));
}

Result<TableDatasetPtr> KeptTables::open(const std::string& id, ListingMemory::SharePtr memory) {
  const auto parts = parse_listed_id(id);
  if (!parts) return error(Code::kDataLoss, "'" + id + "' names no table");
  if (TableDatasetPtr known = datasets_.find(id)) return known;
  const std::string file = path(parts->data);
  TableDataset dataset{.id = id};
  SPDLD_ASSIGN(dataset.table, load_columns(file));
  if (dataset.table.columns.digest() != parts->data_digest)
    return error(Code::kDataLoss, file + " holds another table than its name says");
  SPDLD_ASSIGN(dataset.classes, classes_.load(*parts));
  SPDLD_TRY(memory->resize(dataset.table.columns.memory_bytes() + memory_bytes(dataset.classes))
                .with_context(file));
  dataset.memory = std::move(memory);
  return datasets_.put(id, std::make_shared<const TableDataset>(std::move(dataset)));
}

void KeptTables::add_files(const std::string& id, std::set<std::string>& files) const {
  const auto parts = parse_listed_id(id);
  if (!parts) return;
  files.insert(parts->data + std::string(kTable));
  classes_.add_file(*parts, files);
}

}  // namespace spdld::source
