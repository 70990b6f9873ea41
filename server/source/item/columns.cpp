// SPDX-License-Identifier: Apache-2.0
#include "source/item/columns.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace spdld::source {
namespace {

bool has_offsets(ValueType type) {
  return type == ValueType::kText || type == ValueType::kInt64List ||
         type == ValueType::kFloat64List;
}

// Of one element of a list, so that rows of lists stay aligned.
std::uint64_t element_bytes(ValueType type) { return type == ValueType::kText ? 1 : 8; }

template <typename T>
std::string_view bytes_of(std::span<const T> list) {
  return {reinterpret_cast<const char*>(list.data()), list.size_bytes()};
}

template <typename T>
std::span<const T> list_of(std::string_view bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::uint8_t width_for(const std::vector<std::int64_t>& numbers) {
  const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  if (numbers.empty()) return 1;
  for (const std::uint8_t width : {1, 2, 4}) {
    const int bits = width * 8 - 1;
    if (*low >= -(std::int64_t{1} << bits) && *high < (std::int64_t{1} << bits)) return width;
  }
  return 8;
}

std::int64_t sign_extended(const char* at, std::uint8_t width) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, width);
  const int shift = 64 - width * 8;
  return static_cast<std::int64_t>(value << shift) >> shift;
}

}  // namespace

std::optional<std::size_t> Columns::find(std::string_view name) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].info.name == name) return i;
  }
  return std::nullopt;
}

Value Columns::value(std::uint64_t row, std::size_t column) const {
  SPDLD_CHECK(row < rows_);
  const Column& at = columns_[column];
  const ValueType type = at.info.type;
  if (has_offsets(type)) {
    const std::string_view bytes(at.data.data() + at.offsets[row],
                                 at.offsets[row + 1] - at.offsets[row]);
    if (type == ValueType::kText) return bytes;
    if (type == ValueType::kInt64List) return list_of<std::int64_t>(bytes);
    return list_of<double>(bytes);
  }
  const char* const data = at.data.data() + row * at.width;
  if (type == ValueType::kBool) return *data != 0;
  if (type == ValueType::kInt64) return sign_extended(data, at.width);
  double value = 0;
  std::memcpy(&value, data, sizeof value);
  return value;
}

Columns Columns::beside(std::vector<Columns> parts) {
  Columns all;
  for (Columns& part : parts) {
    SPDLD_CHECK(part.rows_ == parts.front().rows_);
    all.rows_ = part.rows_;
    for (Column& column : part.columns_) all.columns_.push_back(std::move(column));
  }
  return all;
}

Columns Columns::select(std::span<const std::uint64_t> rows) const {
  std::vector<Info> infos;
  for (const Column& column : columns_) infos.push_back(column.info);
  ColumnsBuilder builder(std::move(infos));
  for (const std::uint64_t row : rows) {
    for (std::size_t column = 0; column < columns_.size(); ++column)
      builder.add(column, value(row, column));
  }
  Columns selected = std::move(builder).finish();
  selected.rows_ = rows.size();
  return selected;
}

std::string Columns::digest() const {
  BinaryWriter out;
  write(out);
  const XXH128_hash_t hash = XXH3_128bits(out.text().data(), out.text().size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

std::uint64_t Columns::memory_bytes() const {
  std::uint64_t bytes = sizeof *this;
  for (const Column& column : columns_)
    bytes += sizeof column + column.data.capacity() + column.offsets.capacity() * 8;
  return bytes;
}

void Columns::write(BinaryWriter& out) const {
  out.number(rows_);
  out.number<std::uint64_t>(columns_.size());
  for (const Column& column : columns_) {
    out.string(column.info.name);
    out.number(static_cast<std::uint8_t>(column.info.type));
    out.number(column.info.max_bytes);
    out.number(column.width);
    out.number<std::uint64_t>(column.offsets.size());
    for (const std::uint64_t offset : column.offsets) out.number(offset);
    out.number<std::uint64_t>(column.data.size());
    out.raw(column.data);
  }
}

std::optional<Columns> Columns::read(BinaryReader& in) {
  Columns columns;
  columns.rows_ = in.number<std::uint64_t>();
  const std::size_t count = in.count(1);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Column column;
    column.info.name = in.string();
    const auto type = in.number<std::uint8_t>();
    if (type < 1 || type > static_cast<std::uint8_t>(ValueType::kFloat64List)) return std::nullopt;
    column.info.type = static_cast<ValueType>(type);
    column.info.max_bytes = in.number<std::uint64_t>();
    column.width = in.number<std::uint8_t>();
    column.offsets.resize(in.count(sizeof(std::uint64_t)));
    for (std::uint64_t& offset : column.offsets) offset = in.number<std::uint64_t>();
    column.data = in.raw(in.number<std::uint64_t>());
    if (!in.ok()) return std::nullopt;
    if (has_offsets(column.info.type)) {
      const std::uint64_t unit = element_bytes(column.info.type);
      const auto& offsets = column.offsets;
      if (offsets.size() == 0 || offsets.size() - 1 != columns.rows_ || offsets.front() != 0 ||
          offsets.back() != column.data.size() || !std::is_sorted(offsets.begin(), offsets.end()) ||
          std::any_of(offsets.begin(), offsets.end(),
                      [unit](std::uint64_t offset) { return offset % unit != 0; }))
        return std::nullopt;
    } else {
      const std::uint8_t width = column.width;
      const bool known = column.info.type == ValueType::kBool ? width == 1
                         : column.info.type == ValueType::kFloat64
                             ? width == 8
                             : width == 1 || width == 2 || width == 4 || width == 8;
      if (!known || !column.offsets.empty() || columns.rows_ > column.data.size() ||
          column.data.size() != columns.rows_ * width)
        return std::nullopt;
    }
    columns.columns_.push_back(std::move(column));
  }
  if (!in.ok()) return std::nullopt;
  return columns;
}

ColumnsBuilder::ColumnsBuilder(std::vector<Columns::Info> columns) : wide_(columns.size()) {
  for (Columns::Info& info : columns) {
    Columns::Column column;
    column.info = std::move(info);
    column.info.max_bytes = 0;
    if (has_offsets(column.info.type)) column.offsets.push_back(0);
    if (column.info.type == ValueType::kBool) column.width = 1;
    if (column.info.type == ValueType::kFloat64) column.width = 8;
    columns_.columns_.push_back(std::move(column));
  }
}

void ColumnsBuilder::add(std::size_t column, const Value& value) {
  Columns::Column& at = columns_.columns_[column];
  SPDLD_CHECK(type_of(value) == at.info.type);
  const auto append = [&at](std::string_view bytes) {
    at.data.append(bytes);
    at.offsets.push_back(at.data.size());
    at.info.max_bytes = std::max<std::uint64_t>(at.info.max_bytes, bytes.size());
  };
  switch (at.info.type) {
    case ValueType::kInt64: wide_[column].numbers.push_back(std::get<std::int64_t>(value)); break;
    case ValueType::kFloat64: {
      const double number = std::get<double>(value);
      at.data.append(reinterpret_cast<const char*>(&number), sizeof number);
      break;
    }
    case ValueType::kBool: at.data.push_back(std::get<bool>(value) ? 1 : 0); break;
    case ValueType::kText: append(std::get<std::string_view>(value)); break;
    case ValueType::kInt64List:
      append(bytes_of(std::get<std::span<const std::int64_t>>(value)));
      break;
    case ValueType::kFloat64List: append(bytes_of(std::get<std::span<const double>>(value))); break;
  }
}

Columns ColumnsBuilder::finish() && {
  std::optional<std::uint64_t> rows;
  for (std::size_t i = 0; i < columns_.columns_.size(); ++i) {
    Columns::Column& column = columns_.columns_[i];
    std::vector<std::int64_t>& numbers = wide_[i].numbers;
    if (column.info.type == ValueType::kInt64) {
      column.width = width_for(numbers);
      column.data.reserve(numbers.size() * column.width);
      for (const std::int64_t number : numbers)
        column.data.append(reinterpret_cast<const char*>(&number), column.width);
      numbers = {};
    }
    const std::uint64_t held = has_offsets(column.info.type) ? column.offsets.size() - 1
                                                             : column.data.size() / column.width;
    SPDLD_CHECK(!rows || *rows == held);
    rows = held;
    column.data.shrink_to_fit();
    column.offsets.shrink_to_fit();
  }
  columns_.rows_ = rows.value_or(0);
  return std::move(columns_);
}

}  // namespace spdld::source
