// SPDX-License-Identifier: Apache-2.0
#include "source/table/table_field.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "op/json_events.h"
#include "source/bytes/shown_columns.h"
#include "source/listing/item_uri.h"
#include "source/table/cell_value.h"

namespace spdld::source {
namespace {

constexpr std::string_view kBeyond =
    "this integer is beyond int64; give the column the type float64, which rounds it, or in CSV "
    "text";

ColumnsBuilder builder_of(const std::string& field, ValueType type) {
  return ColumnsBuilder({{.name = field, .type = type}});
}

class UriField final : public TableField {
 public:
  UriField(const std::string& field, std::string root)
      : root_(std::move(root)), uris_(builder_of(field, ValueType::kText)) {}

  Status add_cell(std::string_view cell, const Fail& fail) override {
    const Result<std::string_view> uri = item_uri(cell, root_);
    if (!uri) return fail(uri.error().message());
    count(*uri);
    uris_.add(0, *uri);
    return {};
  }
  Status add_value(const Value& value, bool, const Fail& fail) override {
    if (const auto* text = std::get_if<std::string_view>(&value)) return add_cell(*text, fail);
    const ValueType type = type_of(value);
    // Of an empty one nothing tells of what it is a list.
    if (type == ValueType::kInt64List || type == ValueType::kFloat64List)
      return fail(
          "holds a list where the name of one file is wanted: a field is one file of each row. "
          "Columns of their own make several, {first: COLUMN, second: COLUMN}, which may be "
          "'optional'; or tar shards, where each image is a part of its sample");
    return fail("holds " + type_text(type) + " where the name of a file is wanted");
  }
  // No file has an empty name.
  Status add_absent() override {
    count(std::string_view());
    uris_.add(0, std::string_view());
    return {};
  }
  Result<Columns> finish() override { return std::move(uris_).finish(); }

 private:
  const std::string root_;
  ColumnsBuilder uris_;
};

class JsonField final : public TableField {
 public:
  explicit JsonField(const std::string& field) : texts_(builder_of(field, ValueType::kText)) {}

  Status add_cell(std::string_view cell, const Fail& fail) override {
    AnyJson any;
    JsonText text(cell);
    if (const std::string wrong = parse_json(text, any); !wrong.empty())
      return fail("holds " + shown_text(cell) + " where JSON is wanted: " + wrong);
    return add_value(cell, false, fail);
  }
  Status add_value(const Value& value, bool, const Fail&) override {
    count(value);
    texts_.add(0, value);
    return {};
  }
  Status add_absent() override { return add_value(no_value(ValueType::kText), false, {}); }
  Result<Columns> finish() override { return std::move(texts_).finish(); }

 private:
  // Takes no part of it.
  class AnyJson final : public JsonEvents {
   public:
    Next key(std::string_view) override { return Next::kRead; }
    bool scalar(const JsonScalar&) override { return true; }
    bool begin_object() override { return true; }
    bool begin_array() override { return true; }
    bool end_object() override { return true; }
    bool end_array() override { return true; }
  };

  ColumnsBuilder texts_;
};

// Holds what a converted value refers to.
struct ConvertedRoom {
  std::vector<double> numbers;
  std::string text;
};

// A value as another type, if that has the same value, or one as near as float64 comes. An integer
// is a text as it is one in CSV: its digits.
bool convert(const Value& value, ValueType type, ConvertedRoom& room, Value& converted) {
  converted = value;
  if (type_of(value) == type) return true;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    if (type == ValueType::kText) {
      room.text = std::to_string(*integer);
      converted = std::string_view(room.text);
      return true;
    }
    converted = static_cast<double>(*integer);
    return type == ValueType::kFloat64;
  }
  const auto* list = std::get_if<std::span<const std::int64_t>>(&value);
  if (list == nullptr || type != ValueType::kFloat64List) return false;
  room.numbers.assign(list->begin(), list->end());
  converted = std::span<const double>(room.numbers);
  return true;
}

bool is_float(ValueType type) {
  return type == ValueType::kFloat64 || type == ValueType::kFloat64List;
}

class ValueField final : public TableField {
 public:
  ValueField(std::string field, std::optional<ValueType> type)
      : field_(std::move(field)),
        declared_(type),
        type_(type.value_or(ValueType::kText)),
        values_(builder_of(field_, type_)) {}

  Status add_cell(std::string_view cell, const Fail& fail) override {
    if (!declared_) {
      narrow(cell, fail);
      count(cell);
      values_.add(0, cell);
      return {};
    }
    switch (reader_.read(cell, type_)) {
      case CellFit::kYes: break;
      case CellFit::kHuge: return fail(std::string(kBeyond));
      case CellFit::kNo:
        return fail("holds " + shown_text(cell) + " where " + type_text(type_) + " is wanted");
    }
    count(reader_.value());
    values_.add(0, reader_.value());
    return {};
  }

  Status add_value(const Value& value, bool huge, const Fail& fail) override {
    if (huge && !(declared_ && is_float(type_))) return fail(std::string(kBeyond));
    if (!declared_ && !begun_) {
      type_ = type_of(value);
      const std::uint64_t absent = std::move(values_).finish().rows();
      values_ = builder_of(field_, type_);
      for (std::uint64_t row = 0; row < absent; ++row) values_.add(0, no_value(type_));
    }
    Value converted;
    // Only a declared text takes integers: of others, which of the rows is wrong is not known.
    const bool is_mixed = !declared_ && type_ == ValueType::kText && type_of(value) != type_;
    if (is_mixed || !convert(value, type_, room_, converted)) {
      // Integers become numbers as soon as one of them has a fraction.
      const bool widens = !declared_ && is_float(type_of(value)) && widen(type_of(value));
      if (!widens || !convert(value, type_, room_, converted)) {
        return fail("holds " + type_text(type_of(value)) + " where " + type_text(type_) +
                    (declared_ ? " is wanted" : " is what the rows before hold") +
                    way_out_of(type_of(value)));
      }
    }
    begun_ = true;
    count(converted);
    values_.add(0, converted);
    return {};
  }

  // Until the rows settle the type, it is text.
  Status add_absent() override {
    count(std::string_view());
    values_.add(0, no_value(type_));
    return {};
  }

  Result<Columns> finish() override {
    Columns held = std::move(values_).finish();
    if (declared_ || begun_) return held;
    const std::optional<ValueType> type = narrowest();
    if (!type) return held;
    const bool integers = type == ValueType::kInt64 || type == ValueType::kInt64List;
    if (integers && !huge_.ok()) return tl::unexpected(huge_);
    ColumnsBuilder typed = builder_of(field_, *type);
    for (std::uint64_t row = 0; row < held.rows(); ++row) {
      const auto cell = std::get<std::string_view>(held.value(row, 0));
      // A row that does not have it: no value of another type than text is empty.
      if (!cell.empty()) reader_.read(cell, *type);
      typed.add(0, cell.empty() ? no_value(*type) : reader_.value());
    }
    held = {};
    return std::move(typed).finish();
  }

 private:
  // From the narrowest type on; integers are numbers of float64, too.
  static constexpr std::array<ValueType, 5> kTypes = {ValueType::kInt64, ValueType::kFloat64,
                                                      ValueType::kBool, ValueType::kInt64List,
                                                      ValueType::kFloat64List};

  void narrow(std::string_view cell, const Fail& fail) {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (!may_be_[i]) continue;
      const bool number = kTypes[i] == ValueType::kInt64 || kTypes[i] == ValueType::kFloat64;
      const CellFit fit =
          number && CellReader::is_code(cell) ? CellFit::kNo : reader_.read(cell, kTypes[i]);
      // It is an integer all the same, which matters only if all others are integers, too.
      if (fit == CellFit::kHuge && huge_.ok()) huge_ = fail(std::string(kBeyond));
      may_be_[i] = fit != CellFit::kNo;
      if (fit == CellFit::kYes && !is_float(kTypes[i]) && kTypes[i] != ValueType::kBool) ++i;
    }
  }

  std::optional<ValueType> narrowest() const {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (may_be_[i]) return kTypes[i];
    }
    return std::nullopt;
  }

  // Of JSON values that have not one type.
  std::string way_out_of(ValueType other) const {
    const auto is_either = [&](ValueType a, ValueType b) {
      return (type_ == a && other == b) || (type_ == b && other == a);
    };
    if (!declared_ && is_either(ValueType::kInt64, ValueType::kText))
      return "; give the column the type text, {column: NAME, type: text}, which integers are, too";
    if (declared_ && type_ != ValueType::kText) return {};
    return "; as its text, {column: NAME, type: json} takes whatever a row has";
  }

  bool widen(ValueType type) {
    const bool same_kind = (type_ == ValueType::kInt64 && type == ValueType::kFloat64) ||
                           (type_ == ValueType::kInt64List && type == ValueType::kFloat64List);
    if (!same_kind) return false;
    const Columns before = std::move(values_).finish();
    values_ = builder_of(field_, type);
    type_ = type;
    for (std::uint64_t row = 0; row < before.rows(); ++row) {
      Value converted;
      convert(before.value(row, 0), type, room_, converted);
      values_.add(0, converted);
    }
    return true;
  }

  const std::string field_;
  const std::optional<ValueType> declared_;
  ValueType type_;  // of values_
  ColumnsBuilder values_;
  CellReader reader_;
  ConvertedRoom room_;
  bool begun_ = false;  // with JSON values, which settle type_
  // Of cells without a declared type: by kTypes, which of them all cells so far are.
  std::array<bool, kTypes.size()> may_be_ = {true, true, true, true, true};
  Status huge_;
};

}  // namespace

std::string type_text(ValueType type) { return std::string(value_type_name(type)); }

void TableField::count(const Value& value) {
  bytes_ += 8;
  if (const auto* text = std::get_if<std::string_view>(&value)) bytes_ += text->size();
  if (const auto* list = std::get_if<std::span<const std::int64_t>>(&value)) {
    bytes_ += list->size_bytes();
  }
  if (const auto* list = std::get_if<std::span<const double>>(&value)) bytes_ += list->size_bytes();
}

std::unique_ptr<TableField> make_uri_field(const std::string& field, std::string root) {
  return std::make_unique<UriField>(field, std::move(root));
}

std::unique_ptr<TableField> make_json_field(const std::string& field) {
  return std::make_unique<JsonField>(field);
}

std::unique_ptr<TableField> make_value_field(std::string field, std::optional<ValueType> type) {
  return std::make_unique<ValueField>(std::move(field), type);
}

}  // namespace spdld::source
