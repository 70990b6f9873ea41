// SPDX-License-Identifier: Apache-2.0
#include "source/item/value_column.h"

#include <span>
#include <utility>

#include "base/check.h"
#include "base/text/printable.h"

namespace spdld::source {

std::optional<ValueType> common_type(ValueType a, ValueType b) {
  if (a == b) return a;
  const auto are = [a, b](ValueType integers, ValueType numbers) {
    return (a == integers && b == numbers) || (a == numbers && b == integers);
  };
  if (are(ValueType::kInt64, ValueType::kFloat64)) return ValueType::kFloat64;
  if (are(ValueType::kInt64List, ValueType::kFloat64List)) return ValueType::kFloat64List;
  return std::nullopt;
}

std::string sample_place(const std::string& shard, std::string_view key) {
  return shard + ", sample '" + printable(key) + "'";
}

Status mixed_types(const std::string& field, ValueType type, const std::string& place,
                   ValueType other_type, const std::string& other) {
  const auto named = [](ValueType of) { return std::string(value_type_name(of)); };
  return Status(Code::kInvalidArgument,
                "'" + field + "' is of type " + named(type) + " in " + place + ", but of type " +
                    named(other_type) + " in " + other +
                    "; a field has one type (integers may stand among float64): correct the data, "
                    "or leave the field out");
}

Value converted(const Value& value, ValueType type, std::vector<double>& numbers) {
  if (type_of(value) == type) return value;
  if (type == ValueType::kFloat64) return static_cast<double>(std::get<std::int64_t>(value));
  SPDLD_CHECK(type == ValueType::kFloat64List);
  const auto integers = std::get<std::span<const std::int64_t>>(value);
  numbers.assign(integers.begin(), integers.end());
  return std::span<const double>(numbers);
}

void ValueColumn::make_float() {
  type_ = type_ == ValueType::kInt64 ? ValueType::kFloat64 : ValueType::kFloat64List;
  numbers_.assign(integers_.begin(), integers_.end());
  integers_ = {};
}

Status ValueColumn::add(const Value& value, std::string_view key) {
  const ValueType given = type_of(value);
  if (!std::exchange(is_typed_, true)) {
    type_ = given;
    key_ = key;
    for (std::uint64_t absent = std::exchange(rows_, 0); absent > 0; --absent)
      append(no_value(type_));
  }
  const std::optional<ValueType> common = common_type(type_, given);
  if (!common)
    return mixed_types(field_, type_, sample_place(shard_, key_), given, sample_place(shard_, key));
  if (*common != type_) {
    make_float();
    key_ = key;
  }
  std::vector<double> as_floats;
  append(converted(value, type_, as_floats));
  return {};
}

void ValueColumn::add_absent() {
  if (is_typed_)
    append(no_value(type_));
  else
    ++rows_;
}

void ValueColumn::append(const Value& held) {
  switch (type_) {
    case ValueType::kInt64: integers_.push_back(std::get<std::int64_t>(held)); break;
    case ValueType::kFloat64: numbers_.push_back(std::get<double>(held)); break;
    case ValueType::kBool: integers_.push_back(std::get<bool>(held) ? 1 : 0); break;
    case ValueType::kText:
      text_ += std::get<std::string_view>(held);
      ends_.push_back(text_.size());
      break;
    case ValueType::kInt64List: {
      const auto list = std::get<std::span<const std::int64_t>>(held);
      integers_.insert(integers_.end(), list.begin(), list.end());
      ends_.push_back(integers_.size());
      break;
    }
    case ValueType::kFloat64List: {
      const auto list = std::get<std::span<const double>>(held);
      numbers_.insert(numbers_.end(), list.begin(), list.end());
      ends_.push_back(numbers_.size());
      break;
    }
  }
  ++rows_;
}

void ValueColumn::copy_to(ColumnsBuilder& builder, std::size_t column) const {
  const auto part = [this](const auto& all, std::uint64_t row) {
    const std::uint64_t begin = row == 0 ? 0 : ends_[row - 1];
    return std::span(all.data() + begin, ends_[row] - begin);
  };
  for (std::uint64_t row = 0; row < rows_; ++row) {
    if (!is_typed_) {
      builder.add(column, no_value(type_));
      continue;
    }
    switch (type_) {
      case ValueType::kInt64: builder.add(column, integers_[row]); break;
      case ValueType::kFloat64: builder.add(column, numbers_[row]); break;
      case ValueType::kBool: builder.add(column, integers_[row] != 0); break;
      case ValueType::kText: {
        const auto text = part(text_, row);
        builder.add(column, std::string_view(text.data(), text.size()));
        break;
      }
      case ValueType::kInt64List: builder.add(column, part(integers_, row)); break;
      case ValueType::kFloat64List: builder.add(column, part(numbers_, row)); break;
    }
  }
}

}  // namespace spdld::source
