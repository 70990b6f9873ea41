// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "op/value.h"
#include "source/item/columns.h"

namespace spdld::source {

// The type that holds the values of both: integers become float64 beside such, alone and in lists.
// Nothing: there is none.
std::optional<ValueType> common_type(ValueType a, ValueType b);

// Values of one column whose type shows only as they come. One thread.
class ValueColumn {
 public:
  // Both for messages.
  ValueColumn(std::string field, std::string shard)
      : field_(std::move(field)), shard_(std::move(shard)) {}

  // The next row's, of the sample `key`. kInvalidArgument: the rows before have another type; it
  // names a sample of each.
  Status add(const Value& value, std::string_view key);

  // The next row's, of a sample that does not have it: no_value().
  void add_absent();

  std::uint64_t rows() const { return rows_; }
  ValueType type() const { return type_; }  // int64 where no row has a value
  // Of the first sample whose value made the type what it is; empty: no row has a value.
  const std::string& key() const { return key_; }
  // Adds all rows to `column` of a builder, where it has this type.
  void copy_to(ColumnsBuilder& builder, std::size_t column) const;

 private:
  void make_float();
  void append(const Value& value);

  const std::string field_;
  const std::string shard_;
  ValueType type_ = ValueType::kInt64;
  std::string key_;
  std::uint64_t rows_ = 0;
  bool is_typed_ = false;               // a row has a value
  std::vector<std::int64_t> integers_;  // also of bools
  std::vector<double> numbers_;
  std::string text_;
  std::vector<std::uint64_t> ends_;  // of texts and lists: where each row's part of those ends
};

// "SHARD, sample 'KEY'"
std::string sample_place(const std::string& shard, std::string_view key);

// "'width' is of type text in PLACE, but of type int64 in OTHER; ...".
Status mixed_types(const std::string& field, ValueType type, const std::string& place,
                   ValueType other_type, const std::string& other);

// A value of a column as one of the column `type` that holds it too, by common_type(). Lists are
// made in `numbers`.
Value converted(const Value& value, ValueType type, std::vector<double>& numbers);

}  // namespace spdld::source
