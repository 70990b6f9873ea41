// SPDX-License-Identifier: Apache-2.0
#include "source/select/where.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "source/select/where_parser.h"

namespace spdld::source {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// Without rounding the integer, which has more digits than a double.
std::partial_ordering compare_exactly(std::int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 0x1p63) return std::partial_ordering::less;
  if (b < -0x1p63) return std::partial_ordering::greater;
  const auto whole = static_cast<std::int64_t>(b);
  if (a != whole) return a <=> whole;
  return 0.0 <=> b - static_cast<double>(whole);
}

}  // namespace

Result<Where> Where::compile(std::string_view text, std::span<const Columns::Info> names,
                             const ClassNames& classes, const UnknownNames& unknown) {
  return WhereParser(text, names, classes, unknown).parse();
}

Result<Where> Where::compile(std::string_view text, const Columns& columns,
                             const ClassNames& classes, const UnknownNames& unknown) {
  std::vector<Columns::Info> names;
  for (std::size_t i = 0; i < columns.size(); ++i) names.push_back(columns.info(i));
  return compile(text, names, classes, unknown);
}

bool Where::matches(const ValueOf& value) const { return holds(whole_, value); }

bool Where::matches(const Columns& columns, std::uint64_t row) const {
  return matches([&columns, row](std::size_t column) { return columns.value(row, column); });
}

Value Where::value_of(const Literal& literal) {
  if (const auto* integer = std::get_if<std::int64_t>(&literal)) return *integer;
  if (const auto* number = std::get_if<double>(&literal)) return *number;
  if (const auto* truth = std::get_if<bool>(&literal)) return *truth;
  return std::string_view(std::get<std::string>(literal));
}

std::partial_ordering Where::compare(const Value& a, const Value& b) {
  const auto* const a_integer = std::get_if<std::int64_t>(&a);
  const auto* const b_integer = std::get_if<std::int64_t>(&b);
  const auto* const a_number = std::get_if<double>(&a);
  const auto* const b_number = std::get_if<double>(&b);
  if (a_integer != nullptr && b_integer != nullptr) return *a_integer <=> *b_integer;
  if (a_number != nullptr && b_number != nullptr) return *a_number <=> *b_number;
  if (a_integer != nullptr && b_number != nullptr) return compare_exactly(*a_integer, *b_number);
  if (a_number != nullptr && b_integer != nullptr) {
    return 0 <=> compare_exactly(*b_integer, *a_number);
  }
  if (const auto* truth = std::get_if<bool>(&a)) return *truth <=> std::get<bool>(b);
  return std::get<std::string_view>(a) <=> std::get<std::string_view>(b);
}

Value Where::value_of(const Operand& operand, const ValueOf& value) const {
  if (const auto* literal = std::get_if<Literal>(&operand)) return value_of(*literal);
  if (const auto* column = std::get_if<Column>(&operand)) return value(column->index);
  return holds(std::get<Condition>(operand).node, value);
}

bool Where::is_in(const Value& value, const std::vector<Literal>& set) {
  const auto at = std::lower_bound(
      set.begin(), set.end(), value,
      [](const Literal& a, const Value& b) { return compare(value_of(a), b) < 0; });
  return at != set.end() && compare(value_of(*at), value) == 0;
}

bool Where::is_element(const Value& value, const Value& list) {
  const auto equals = [&value](auto element) { return compare(element, value) == 0; };
  if (const auto* integers = std::get_if<std::span<const std::int64_t>>(&list)) {
    return std::any_of(integers->begin(), integers->end(), equals);
  }
  const auto numbers = std::get<std::span<const double>>(list);
  return std::any_of(numbers.begin(), numbers.end(), equals);
}

// The recursion is bounded by what the parser lets nest.
bool Where::holds(std::size_t node, const ValueOf& value) const {
  const auto each = [&](std::size_t other) { return holds(other, value); };
  return std::visit(
      Overloaded{
          [&](const Compare& at) {
            const std::partial_ordering order =
                compare(value_of(at.left, value), value_of(at.right, value));
            switch (at.how) {
              case Comparison::kEqual: return order == 0;
              case Comparison::kUnequal: return order != 0;
              case Comparison::kLess: return order < 0;
              case Comparison::kLessOrEqual: return order <= 0;
              case Comparison::kGreater: return order > 0;
              case Comparison::kGreaterOrEqual: return order >= 0;
            }
            return false;
          },
          [&](const InSet& at) { return is_in(value_of(at.left, value), at.set); },
          [&](const InColumn& at) {
            return is_element(value_of(at.left, value), value(at.column));
          },
          [&](const Not& at) { return !each(at.node); },
          [&](const All& at) { return std::all_of(at.nodes.begin(), at.nodes.end(), each); },
          [&](const Any& at) { return std::any_of(at.nodes.begin(), at.nodes.end(), each); },
          [&](const Truth& at) { return std::get<bool>(value_of(at.operand, value)); },
      },
      nodes_[node]);
}

}  // namespace spdld::source
