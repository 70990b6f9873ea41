// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "op/value.h"

namespace spdld {

// The names and numbers that an RFC 6901 pointer leads along. kInvalidArgument: it is none.
Result<std::vector<std::string>> json_pointer(std::string_view pointer);

// Finds the values that some pointers lead to in one JSON document after the other, without
// building the documents. One thread.
class JsonValues {
 public:
  static constexpr std::size_t kMaxPointers = 64;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;  // of a document

  // What lists are read.
  enum class Lists {
    kFlat,    // of numbers
    kNested,  // also of such lists, all of one length, whose numbers are taken one after the other
  };

  // At most kMaxPointers.
  explicit JsonValues(std::vector<std::vector<std::string>> pointers, Lists lists = Lists::kFlat);

  // Forgets the document before. kInvalidArgument: it is no JSON in UTF-8, nests deeper than
  // kMaxJsonDepth, or has at a pointer what is no number, bool, text or list of numbers. Of names
  // that no pointer leads along the values are passed over (op/json_events.h).
  Status read(std::string_view document);
  // What `pointer` led to: nothing if nothing is there, or null. Of a list that holds a number with
  // a point or exponent all are float64. Of a name that comes twice the last counts. Valid until
  // the next read().
  std::optional<Value> value(std::size_t pointer) const;
  // The same as a value of this type, for which integers are numbers, too. Nothing also if it is
  // none.
  std::optional<Value> value(std::size_t pointer, ValueType type) const;
  // Of the last byte of what `pointer` led to, or of the first one of a list.
  std::size_t offset(std::size_t pointer) const { return found_[pointer].offset; }

  // What it keeps of memory from one document to the next.
  std::uint64_t kept_bytes() const;

 private:
  friend class JsonFinder;

  struct Found {
    bool any = false;
    std::size_t offset = 0;
    ValueType type = ValueType::kInt64;
    std::int64_t integer = 0;
    double number = 0;
    bool flag = false;
    std::string text = {};
    std::vector<std::int64_t> integers = {};
    std::vector<double> numbers = {};
  };

  const std::vector<std::vector<std::string>> pointers_;
  const Lists lists_;
  std::vector<Found> found_;
};

}  // namespace spdld
