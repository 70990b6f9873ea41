// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "op/value.h"
#include "source/item/columns.h"

namespace spdld::source {

// Columns whose integers, or those in their lists, stand for names: a text that is compared with
// them is looked up here.
struct ClassNames {
  std::vector<std::string> columns = {};
  std::vector<std::string> names = {};
};

// Names that a condition cannot use though people expect it, and how messages tell of names.
struct UnknownNames {
  std::vector<std::string> parts = {};  // whose bytes no listing knows
  std::string way_out = {};             // what to do instead, for messages; may be empty
  // A value that items get after they were selected, and what to do instead. Empty: there is none.
  std::string later = {};
  std::string later_way_out = {};
  std::map<std::string, std::string> others = {};  // and why a condition cannot use each
  std::string noun = "column";                     // what the names are of
};

// A condition on values that have names, such as the columns of a listing, in a language of its own
// that reads as Python does:
//
//   width >= 64 and not (split == 'test' or score < 0.5)
//   label in ['cat', 'dog'] and 'person' not in labels
//
// Operands: values by name, numbers, texts in single or double quotes (\ before a quote or another
// \ stands for that), true and false (True, False). Comparisons, also in chains such as
// 0 < score <= 1: == != < <= > >=, and `in`, `not in` for a list of literals or a value that is a
// list. They bind closer than `not`, that closer than `and`, that closer than `or`; parentheses
// nest up to kMaxNesting deep. There are no functions and no arithmetic.
//
// Numbers are compared by value, int64 with float64 without rounding, and nan equals nothing; texts
// by their bytes; bools by == and != alone. Operands of different kinds are an error, and so are
// lists but behind `in`. Immutable; any thread.
class Where {
 public:
  static constexpr int kMaxNesting = 64;
  static constexpr std::size_t kMaxBytes = 65536;

  // Gives the value of the name that stands there among those that the condition was compiled for.
  using ValueOf = std::function<Value(std::size_t)>;

  // Errors begin with "where: column COLUMN of 'TEXT': ", in characters from 1, without a text that
  // is long.
  static Result<Where> compile(std::string_view text, std::span<const Columns::Info> names,
                               const ClassNames& classes = {}, const UnknownNames& unknown = {});
  static Result<Where> compile(std::string_view text, const Columns& columns,
                               const ClassNames& classes = {}, const UnknownNames& unknown = {});

  bool matches(const ValueOf& value) const;
  // Whether the condition holds in a row of the columns that it was compiled for.
  bool matches(const Columns& columns, std::uint64_t row) const;

 private:
  friend class WhereParser;

  enum class Comparison { kEqual, kUnequal, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
  using Literal = std::variant<std::int64_t, double, bool, std::string>;
  struct Column {
    std::size_t index = 0;
  };
  struct Condition {
    std::size_t node = 0;
  };
  using Operand = std::variant<Literal, Column, Condition>;

  struct Compare {
    Comparison how = Comparison::kEqual;
    Operand left;
    Operand right;
  };
  struct InSet {
    Operand left;
    std::vector<Literal> set;  // sorted
  };
  struct InColumn {
    Operand left;
    std::size_t column = 0;  // of lists
  };
  struct Not {
    std::size_t node = 0;
  };
  struct All {
    std::vector<std::size_t> nodes;
  };
  struct Any {
    std::vector<std::size_t> nodes;
  };
  // A bool: a literal, or a column.
  struct Truth {
    Operand operand;
  };
  using Node = std::variant<Compare, InSet, InColumn, Not, All, Any, Truth>;

  static Value value_of(const Literal& literal);
  // Both are numbers, or both of one type; no lists.
  static std::partial_ordering compare(const Value& a, const Value& b);
  Value value_of(const Operand& operand, const ValueOf& value) const;
  bool holds(std::size_t node, const ValueOf& value) const;
  static bool is_in(const Value& value, const std::vector<Literal>& set);
  static bool is_element(const Value& value, const Value& list);

  std::vector<Node> nodes_;  // each refers to those before it
  std::size_t whole_ = 0;
};

}  // namespace spdld::source
