// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "source/select/where.h"

namespace spdld::source {

// Makes a Where of its text. Used once; one thread.
class WhereParser {
 public:
  WhereParser(std::string_view text, std::span<const Columns::Info> names,
              const ClassNames& classes, const UnknownNames& unknown)
      : text_(text), names_(names), classes_(classes), unknown_(unknown) {}

  Result<Where> parse();

 private:
  enum class Kind { kEnd, kName, kNumber, kText, kSign };
  struct Token {
    Kind kind = Kind::kEnd;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::string value = {};  // of a text, without quotes
  };
  // A part of the text that has a value, or is a condition.
  struct Part {
    Where::Operand operand;
    ValueType type = ValueType::kBool;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  Status fail(std::size_t offset, const std::string& message) const;
  Status read_token();
  Status read_name();
  Status refuse_sign(char c) const;
  Status read_text();
  void read_number();
  bool is(std::string_view word) const;
  Result<bool> take(std::string_view word);

  // One for each rank of the grammar, from what binds the least.
  Result<Part> parse_any();
  Result<Part> parse_all();
  Result<Part> parse_not();
  Result<Part> parse_comparison();
  Result<Part> parse_operand();

  Result<Part> parse_list_of(Result<Part> (WhereParser::*parse)(), std::string_view word);
  std::optional<std::size_t> find(const std::string& name) const;
  Result<Part> parse_name();
  Status no_value(const std::string& name) const;
  Result<Part> parse_number(bool negative, std::size_t begin);
  Result<std::optional<Where::Comparison>> take_comparison();
  Result<std::size_t> compare(Part left, Where::Comparison how, Part right);
  Result<std::size_t> parse_in(Part left, bool negated);
  Result<Where::Literal> parse_element(const Part& left, bool by_name);
  Result<Where::Literal> class_number(const Part& text);

  Status check_comparable(const Part& left, const Part& right) const;
  std::string described(const Part& part) const;
  bool has_names(const Part& part) const;
  // The node of a part that is a bool.
  Result<std::size_t> condition(const Part& part);
  std::size_t add(Where::Node node);
  Part whole(std::size_t node, std::size_t begin) const;

  const std::string_view text_;
  const std::span<const Columns::Info> names_;
  const ClassNames& classes_;
  const UnknownNames& unknown_;
  Where where_;
  Token token_;           // what comes next
  std::size_t last_ = 0;  // where the one before it ends
  int nesting_ = 0;
  std::unordered_map<std::string_view, std::int64_t> class_numbers_;  // made when first asked
};

}  // namespace spdld::source
