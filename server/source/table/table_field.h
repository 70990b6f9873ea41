// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "op/value.h"
#include "source/item/columns.h"

namespace spdld::source {

// Gathers what a table has for one field, row by row, as CSV cells or as JSON values, never both.
// One thread. After an error it is of no more use.
class TableField {
 public:
  // The error for a value: says where it stands.
  using Fail = std::function<Status(const std::string& message)>;

  virtual ~TableField() = default;

  virtual Status add_cell(std::string_view cell, const Fail& fail) = 0;
  // `huge`: in the table it is an integer, or a list with one, that no int64 holds.
  virtual Status add_value(const Value& value, bool huge, const Fail& fail) = 0;
  // A row that does not have it, for which something stands all the same (no_value()).
  virtual Status add_absent() = 0;
  // The field's column; called once, after at least one row. What only all rows together show is
  // an error with the place of the row that it is about.
  virtual Result<Columns> finish() = 0;

  // About what it holds in memory.
  std::uint64_t bytes() const { return bytes_; }

 protected:
  void count(const Value& value);
  void count(std::uint64_t bytes) { bytes_ += bytes; }

 private:
  std::uint64_t bytes_ = 0;
};

// A column of uris relative to `root`, as texts.
std::unique_ptr<TableField> make_uri_field(const std::string& field, std::string root);

// Values of the type, or of the one that all rows have (op/table_spec.h says which).
std::unique_ptr<TableField> make_value_field(std::string field, std::optional<ValueType> type);

// The text of JSON, whatever it holds.
std::unique_ptr<TableField> make_json_field(const std::string& field);

// Class numbers. Without `classes`, integers stand for themselves, and the sorted distinct texts
// become `found`, which outlives the field.
std::unique_ptr<TableField> make_label_field(std::string field,
                                             std::optional<std::vector<std::string>> classes,
                                             std::vector<std::string>& found);

// As messages name it.
std::string type_text(ValueType type);

}  // namespace spdld::source
