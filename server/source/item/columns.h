// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "op/value.h"
#include "source/bytes/binary.h"

namespace spdld::source {

// What a listing knows of its items, one typed value per item and column: labels, numbers,
// captions, boxes. Immutable once built; any thread. Integers take the bytes that the largest of a
// column needs, texts and lists their own and an offset.
class Columns {
 public:
  struct Info {
    std::string name;
    ValueType type = ValueType::kInt64;
    std::uint64_t max_bytes = 0;  // of one text or list; 0 for the other types

    friend bool operator==(const Info&, const Info&) = default;
  };

  std::uint64_t rows() const { return rows_; }
  std::size_t size() const { return columns_.size(); }
  const Info& info(std::size_t column) const { return columns_[column].info; }
  std::optional<std::size_t> find(std::string_view name) const;
  // Valid for as long as the columns are. row < rows(), column < size().
  Value value(std::uint64_t row, std::size_t column) const;

  // The columns of all `parts`, each of which has as many rows; no name comes twice.
  static Columns beside(std::vector<Columns> parts);
  // The rows named by `rows`, in that order; each < rows().
  Columns select(std::span<const std::uint64_t> rows) const;
  // Of all names, types and values: 32 hex digits.
  std::string digest() const;
  std::uint64_t memory_bytes() const;

  void write(BinaryWriter& out) const;
  // Nothing: the bytes are no columns; then `in` may be anywhere.
  static std::optional<Columns> read(BinaryReader& in);

 private:
  friend class ColumnsBuilder;

  struct Column {
    Info info;
    // Numbers and bools: `width` bytes each, integers sign-extended. Texts and lists: bytes that
    // `offsets` cuts into rows.
    std::uint8_t width = 0;
    std::string data;
    std::vector<std::uint64_t> offsets;
  };

  std::uint64_t rows_ = 0;
  std::vector<Column> columns_;
};

// Takes values row by row. One thread.
class ColumnsBuilder {
 public:
  // Names must differ.
  explicit ColumnsBuilder(std::vector<Columns::Info> columns);

  // The next row's value of a column; its type must be the column's. Each row needs one of each
  // column before finish().
  void add(std::size_t column, const Value& value);
  Columns finish() &&;

 private:
  struct Wide {
    std::vector<std::int64_t> numbers;  // of integer columns until they are packed
  };
  Columns columns_;
  std::vector<Wide> wide_;
};

}  // namespace spdld::source
