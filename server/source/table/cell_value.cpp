// SPDX-License-Identifier: Apache-2.0
#include "source/table/cell_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

#include "base/text/ascii.h"

namespace spdld::source {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

CellFit read_number(std::string_view text, std::int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, err] = std::from_chars(text.data(), end, value);
  if (err == std::errc::invalid_argument || stop != end) return CellFit::kNo;
  return err == std::errc() ? CellFit::kYes : CellFit::kHuge;
}

CellFit read_number(std::string_view text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, err] = std::from_chars(text.data(), end, value);
  // "nan(...)" is something for C alone.
  if (err != std::errc() || stop != end || text.back() == ')') return CellFit::kNo;
  return CellFit::kYes;
}

}  // namespace

bool CellReader::is_code(std::string_view cell) {
  std::string_view digits = trimmed(cell);
  if (digits.starts_with('-')) digits.remove_prefix(1);
  return digits.size() > 1 && digits[0] == '0' &&
         std::all_of(digits.begin(), digits.end(), is_digit);
}

template <typename T>
CellFit CellReader::read_list(std::string_view cell, std::vector<T>& list) {
  list.clear();
  if (cell.size() < 2 || cell.front() != '[' || cell.back() != ']') return CellFit::kNo;
  cell = trimmed(cell.substr(1, cell.size() - 2));
  CellFit fit = CellFit::kYes;
  while (!cell.empty()) {
    const std::size_t comma = std::min(cell.find(','), cell.size());
    T number{};
    const CellFit one = read_number(trimmed(cell.substr(0, comma)), number);
    if (one == CellFit::kNo) return one;
    if (one == CellFit::kHuge) fit = one;
    list.push_back(number);
    if (comma == cell.size()) break;
    cell.remove_prefix(comma + 1);
    if (cell.empty()) return CellFit::kNo;  // a comma that no number follows
  }
  value_ = std::span<const T>(list);
  return fit;
}

CellFit CellReader::read(std::string_view cell, ValueType type) {
  const std::string_view text = trimmed(cell);
  CellFit fit = CellFit::kNo;
  switch (type) {
    case ValueType::kText: value_ = cell; return CellFit::kYes;
    case ValueType::kInt64: {
      std::int64_t integer = 0;
      fit = read_number(text, integer);
      value_ = integer;
      return fit;
    }
    case ValueType::kFloat64: {
      double number = 0;
      fit = read_number(text, number);
      value_ = number;
      return fit;
    }
    case ValueType::kBool: {
      const bool yes = text == "true" || text == "True" || text == "TRUE";
      const bool no = text == "false" || text == "False" || text == "FALSE";
      value_ = yes;
      return yes || no ? CellFit::kYes : CellFit::kNo;
    }
    case ValueType::kInt64List: return read_list(text, integers_);
    case ValueType::kFloat64List: return read_list(text, numbers_);
  }
  return fit;
}

}  // namespace spdld::source
