// SPDX-License-Identifier: Apache-2.0
#include "source/select/where_parser.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/text/ascii.h"
#include "base/text_place.h"
#include "source/bytes/shown_columns.h"

namespace spdld::source {
namespace {

bool begins_name(char c) { return is_letter(c) || c == '_'; }

bool is_number(ValueType type) { return type == ValueType::kInt64 || type == ValueType::kFloat64; }
bool is_list(ValueType type) {
  return type == ValueType::kInt64List || type == ValueType::kFloat64List;
}

constexpr std::size_t kShownCondition = 60;  // bytes of a condition that messages repeat
constexpr std::string_view kReserved[] = {"and", "or", "not", "in"};

}  // namespace

Result<Where> WhereParser::parse() {
  if (text_.size() > Where::kMaxBytes) {
    return tl::unexpected(
        fail(0, "the condition has more than " + std::to_string(Where::kMaxBytes) + " bytes"));
  }
  if (const std::size_t bad = find_bad_text(text_); bad != text_.npos) {
    return tl::unexpected(fail(bad, "the condition is no text in UTF-8"));
  }
  SPDLD_TRY(read_token());
  SPDLD_ASSIGN(const Part all, parse_any());
  if (token_.kind != Kind::kEnd) {
    return tl::unexpected(
        fail(token_.begin, shown_text(text_.substr(token_.begin, token_.end - token_.begin)) +
                               " is not expected here; conditions are joined by and, or"));
  }
  SPDLD_ASSIGN(where_.whole_, condition(all));
  return std::move(where_);
}

Status WhereParser::fail(std::size_t offset, const std::string& message) const {
  const std::string_view before = text_.substr(0, offset);
  const auto characters = std::count_if(before.begin(), before.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  std::string place = "where: column " + std::to_string(characters + 1);
  if (text_.size() <= kShownCondition && !text_.empty()) place += " of " + shown_text(text_);
  return Status(Code::kInvalidArgument, message).with_context(place);
}

Status WhereParser::read_token() {
  last_ = token_.end;
  std::size_t at = text_.find_first_not_of(" \t\r\n", token_.end);
  if (at == text_.npos) at = text_.size();
  token_ = {.kind = Kind::kEnd, .begin = at, .end = at};
  if (at == text_.size()) return {};
  const char c = text_[at];
  if (c == '\'' || c == '"') return read_text();
  if (is_digit(c) || (c == '.' && at + 1 < text_.size() && is_digit(text_[at + 1]))) {
    read_number();
    return {};
  }
  if (begins_name(c)) return read_name();
  token_.kind = Kind::kSign;
  token_.end = at + 1;
  constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">="};
  const std::string_view two = text_.substr(at, 2);
  if (std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo)) {
    token_.end = at + 2;
    return {};
  }
  if (two != "<>" && std::string_view("<>()[],+-").find(c) != std::string_view::npos) return {};
  return refuse_sign(c);
}

// Of the sign that token_ begins with.
Status WhereParser::refuse_sign(char c) const {
  const std::size_t at = token_.begin;
  const std::string_view two = text_.substr(at, 2);
  if (two == "=>") return fail(at, "write >= in place of =>");
  if (two == "=<") return fail(at, "write <= in place of =<");
  if (two == "<>") return fail(at, "write != in place of <>");
  if (c == '=') return fail(at, "write == to compare");
  if (c == '&' || c == '|' || c == '!') return fail(at, "write and, or, not");
  if (c == '*' || c == '/' || c == '%') return fail(at, "there is no arithmetic in conditions");
  std::size_t length = 1;
  while (at + length < text_.size() &&
         (static_cast<unsigned char>(text_[at + length]) & 0xC0) == 0x80) {
    ++length;
  }
  return fail(at, shown_text(text_.substr(at, length)) + " has no meaning here");
}

Status WhereParser::read_name() {
  token_.kind = Kind::kName;
  while (token_.end < text_.size() &&
         (begins_name(text_[token_.end]) || is_digit(text_[token_.end]))) {
    ++token_.end;
  }
  const std::string name(text_.substr(token_.begin, token_.end - token_.begin));
  const std::string lower = lower_case(name);
  const bool reserved =
      std::find(std::begin(kReserved), std::end(kReserved), lower) != std::end(kReserved);
  if (!reserved || lower == name || find(name)) return {};
  return fail(token_.begin, "write " + lower + " in small letters");
}

Status WhereParser::read_text() {
  token_.kind = Kind::kText;
  const char quote = text_[token_.begin];
  for (std::size_t at = token_.begin + 1; at < text_.size(); ++at) {
    if (text_[at] == quote) {
      token_.end = at + 1;
      return {};
    }
    if (text_[at] == '\\') {
      const char escaped = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (escaped != '\\' && escaped != '\'' && escaped != '"') {
        return fail(at, "a \\ stands before a quote or another \\");
      }
      ++at;
    }
    token_.value += text_[at];
  }
  return fail(token_.begin, "the quote that opens here does not close");
}

// As far as it may be a number, or was meant to be one.
void WhereParser::read_number() {
  token_.kind = Kind::kNumber;
  while (token_.end < text_.size()) {
    const char c = text_[token_.end];
    const bool exponent = token_.end > token_.begin && (c == '-' || c == '+') &&
                          (text_[token_.end - 1] == 'e' || text_[token_.end - 1] == 'E');
    if (!is_digit(c) && !begins_name(c) && c != '.' && !exponent) break;
    ++token_.end;
  }
}

bool WhereParser::is(std::string_view word) const {
  return (token_.kind == Kind::kName || token_.kind == Kind::kSign) &&
         text_.substr(token_.begin, token_.end - token_.begin) == word;
}

Result<bool> WhereParser::take(std::string_view word) {
  if (!is(word)) return false;
  SPDLD_TRY(read_token());
  return true;
}

std::size_t WhereParser::add(Where::Node node) {
  where_.nodes_.push_back(std::move(node));
  return where_.nodes_.size() - 1;
}

WhereParser::Part WhereParser::whole(std::size_t node, std::size_t begin) const {
  return {
      .operand = Where::Condition{node}, .type = ValueType::kBool, .begin = begin, .end = last_};
}

std::string WhereParser::described(const Part& part) const {
  return shown_text(text_.substr(part.begin, part.end - part.begin)) + " is " +
         std::string(value_type_name(part.type));
}

Result<std::size_t> WhereParser::condition(const Part& part) {
  if (part.type != ValueType::kBool) {
    return tl::unexpected(
        fail(part.begin, described(part) + ", and no condition; compare it with something"));
  }
  if (const auto* node = std::get_if<Where::Condition>(&part.operand)) return node->node;
  return add(Where::Truth{.operand = part.operand});
}

Result<WhereParser::Part> WhereParser::parse_any() {
  return parse_list_of(&WhereParser::parse_all, "or");
}

Result<WhereParser::Part> WhereParser::parse_all() {
  return parse_list_of(&WhereParser::parse_not, "and");
}

Result<WhereParser::Part> WhereParser::parse_list_of(Result<Part> (WhereParser::*parse)(),
                                                     std::string_view word) {
  SPDLD_ASSIGN(const Part first, (this->*parse)());
  if (!is(word)) return first;
  std::vector<std::size_t> nodes;
  SPDLD_ASSIGN(const std::size_t first_node, condition(first));
  nodes.push_back(first_node);
  while (true) {
    SPDLD_ASSIGN(const bool another, take(word));
    if (!another) break;
    SPDLD_ASSIGN(const Part part, (this->*parse)());
    SPDLD_ASSIGN(const std::size_t node, condition(part));
    nodes.push_back(node);
  }
  const std::size_t node = word == "or" ? add(Where::Any{.nodes = std::move(nodes)})
                                        : add(Where::All{.nodes = std::move(nodes)});
  return whole(node, first.begin);
}

Result<WhereParser::Part> WhereParser::parse_not() {
  const std::size_t begin = token_.begin;
  SPDLD_ASSIGN(const bool negated, take("not"));
  if (!negated) return parse_comparison();
  if (++nesting_ > Where::kMaxNesting) {
    return tl::unexpected(fail(begin, "nested deeper than " + std::to_string(Where::kMaxNesting)));
  }
  SPDLD_ASSIGN(const Part part, parse_not());
  --nesting_;
  SPDLD_ASSIGN(const std::size_t node, condition(part));
  return whole(add(Where::Not{.node = node}), begin);
}

Result<std::optional<Where::Comparison>> WhereParser::take_comparison() {
  using Comparison = Where::Comparison;
  constexpr std::pair<std::string_view, Comparison> kAll[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kUnequal},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessOrEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterOrEqual}};
  for (const auto& [sign, comparison] : kAll) {
    SPDLD_ASSIGN(const bool taken, take(sign));
    if (taken) return comparison;
  }
  return std::nullopt;
}

Result<WhereParser::Part> WhereParser::parse_comparison() {
  SPDLD_ASSIGN(Part left, parse_operand());
  const std::size_t begin = left.begin;
  std::vector<std::size_t> nodes;
  while (true) {
    SPDLD_ASSIGN(const auto how, take_comparison());
    if (how) {
      SPDLD_ASSIGN(Part right, parse_operand());
      SPDLD_ASSIGN(const std::size_t node, compare(left, *how, right));
      nodes.push_back(node);
      left = std::move(right);
      continue;
    }
    SPDLD_ASSIGN(const bool negated, take("not"));
    if (!negated && !is("in")) break;
    SPDLD_ASSIGN(const bool in, take("in"));
    if (!in) return tl::unexpected(fail(token_.begin, "'in' is missing behind 'not'"));
    SPDLD_ASSIGN(const std::size_t node, parse_in(left, negated));
    nodes.push_back(node);
    break;
  }
  if (nodes.empty()) return left;
  return whole(nodes.size() == 1 ? nodes.front() : add(Where::All{.nodes = std::move(nodes)}),
               begin);
}

Result<WhereParser::Part> WhereParser::parse_operand() {
  const std::size_t begin = token_.begin;
  SPDLD_ASSIGN(const bool opens, take("("));
  if (opens) {
    if (++nesting_ > Where::kMaxNesting) {
      return tl::unexpected(
          fail(begin, "nested deeper than " + std::to_string(Where::kMaxNesting)));
    }
    SPDLD_ASSIGN(Part part, parse_any());
    --nesting_;
    SPDLD_ASSIGN(const bool closes, take(")"));
    if (!closes) {
      return tl::unexpected(fail(begin, "the parenthesis that opens here does not close"));
    }
    part.begin = begin;
    part.end = last_;
    return part;
  }
  if (token_.kind == Kind::kNumber || is("-") || is("+")) {
    const bool negative = is("-");
    if (token_.kind != Kind::kNumber) SPDLD_TRY(read_token());
    if (token_.kind != Kind::kNumber) {
      return tl::unexpected(fail(begin, "only numbers have a sign"));
    }
    return parse_number(negative, begin);
  }
  if (token_.kind == Kind::kText) {
    Part part{.operand = Where::Literal(std::move(token_.value)),
              .type = ValueType::kText,
              .begin = begin,
              .end = token_.end};
    SPDLD_TRY(read_token());
    return part;
  }
  if (token_.kind == Kind::kName) return parse_name();
  return tl::unexpected(
      fail(begin, is("[") ? "a list stands behind 'in' alone"
                          : "a " + unknown_.noun + ", a number or a text is missing here"));
}

Result<WhereParser::Part> WhereParser::parse_number(bool negative, std::size_t begin) {
  const std::string digits =
      (negative ? "-" : "") + std::string(text_.substr(token_.begin, token_.end - token_.begin));
  const char* const end = digits.data() + digits.size();
  Part part{.operand = {}, .type = ValueType::kInt64, .begin = begin, .end = token_.end};
  std::int64_t integer = 0;
  double number = 0;
  const auto as_integer = std::from_chars(digits.data(), end, integer);
  const auto as_number = std::from_chars(digits.data(), end, number);
  if (as_integer.ptr == end) {
    if (as_integer.ec != std::errc()) {
      return tl::unexpected(fail(begin, "this integer is beyond int64"));
    }
    part.operand = Where::Literal(integer);
  } else {
    if (as_number.ptr != end || as_number.ec != std::errc()) {
      return tl::unexpected(fail(begin, shown_text(digits) + " is no number"));
    }
    part.type = ValueType::kFloat64;
    part.operand = Where::Literal(number);
  }
  SPDLD_TRY(read_token());
  return part;
}

std::optional<std::size_t> WhereParser::find(const std::string& name) const {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].name == name) return i;
  }
  return std::nullopt;
}

Result<WhereParser::Part> WhereParser::parse_name() {
  const std::string name(text_.substr(token_.begin, token_.end - token_.begin));
  Part part{.operand = {}, .type = ValueType::kBool, .begin = token_.begin, .end = token_.end};
  const bool yes = name == "true" || name == "True";
  if (yes || name == "false" || name == "False") {
    part.operand = Where::Literal(yes);
  } else if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    return tl::unexpected(
        fail(token_.begin,
             "a " + unknown_.noun + ", a number or a text is missing before '" + name + "'"));
  } else {
    const auto column = find(name);
    if (!column) return tl::unexpected(no_value(name));
    part.operand = Where::Column{*column};
    part.type = names_[*column].type;
  }
  SPDLD_TRY(read_token());
  if (is("(")) return tl::unexpected(fail(part.begin, "there are no functions in conditions"));
  return part;
}

// Of the name that token_ is.
Status WhereParser::no_value(const std::string& name) const {
  const std::size_t next = text_.find_first_not_of(" \t\r\n", token_.end);
  if (next != text_.npos && text_[next] == '(')
    return fail(token_.begin, "there are no functions in conditions");
  const auto& parts = unknown_.parts;
  if (std::find(parts.begin(), parts.end(), name) != parts.end()) {
    return fail(token_.begin, "'" + name +
                                  "' is read with each item, which is too late for a condition" +
                                  (unknown_.way_out.empty() ? "" : "; " + unknown_.way_out));
  }
  if (!unknown_.later.empty() && name == unknown_.later)
    return fail(token_.begin, "'" + name +
                                  "' is known once items were selected, which is too late "
                                  "for a condition; " +
                                  unknown_.later_way_out);
  if (const auto other = unknown_.others.find(name); other != unknown_.others.end())
    return fail(token_.begin, "'" + name + "' is " + other->second);
  std::vector<std::string> names;
  for (const Columns::Info& known : names_) names.push_back(known.name);
  return fail(token_.begin, "there is no " + missing_name(unknown_.noun, name, names));
}

bool WhereParser::has_names(const Part& part) const {
  const auto* column = std::get_if<Where::Column>(&part.operand);
  return column != nullptr && !classes_.names.empty() &&
         std::find(classes_.columns.begin(), classes_.columns.end(), names_[column->index].name) !=
             classes_.columns.end();
}

Result<Where::Literal> WhereParser::class_number(const Part& text) {
  if (class_numbers_.empty()) {
    for (const std::string& name : classes_.names) {
      class_numbers_.emplace(name, static_cast<std::int64_t>(class_numbers_.size()));
    }
  }
  const auto& name = std::get<std::string>(std::get<Where::Literal>(text.operand));
  const auto found = class_numbers_.find(name);
  if (found == class_numbers_.end()) {
    return tl::unexpected(fail(text.begin, shown_text(name) + " is none of the " +
                                               std::to_string(classes_.names.size()) + " classes" +
                                               nearest_name(name, classes_.names)));
  }
  return Where::Literal(found->second);
}

Status WhereParser::check_comparable(const Part& left, const Part& right) const {
  if (is_list(left.type) || is_list(right.type)) {
    const Part& list = is_list(left.type) ? left : right;
    return fail(list.begin, described(list) + ", which is not compared; write: NUMBER in " +
                                std::string(text_.substr(list.begin, list.end - list.begin)));
  }
  if (left.type == right.type || (is_number(left.type) && is_number(right.type))) return {};
  return fail(right.begin,
              described(left) + " and " + described(right) + "; they cannot be compared");
}

Result<std::size_t> WhereParser::compare(Part left, Where::Comparison how, Part right) {
  const auto is_name = [](const Part& part) {
    return part.type == ValueType::kText && std::holds_alternative<Where::Literal>(part.operand);
  };
  const bool equality = how == Where::Comparison::kEqual || how == Where::Comparison::kUnequal;
  for (auto [column, text] : {std::pair(&left, &right), std::pair(&right, &left)}) {
    if (!has_names(*column) || column->type != ValueType::kInt64 || !is_name(*text)) continue;
    if (!equality) {
      return tl::unexpected(fail(text->begin, "names of classes are compared by == and != alone"));
    }
    SPDLD_ASSIGN(text->operand, class_number(*text));
    text->type = ValueType::kInt64;
  }
  SPDLD_TRY(check_comparable(left, right));
  if (left.type == ValueType::kBool && !equality) {
    return tl::unexpected(fail(right.begin, "true and false are compared by == and != alone"));
  }
  return add(Where::Compare{
      .how = how, .left = std::move(left.operand), .right = std::move(right.operand)});
}

Result<std::size_t> WhereParser::parse_in(Part left, bool negated) {
  if (is_list(left.type)) {
    return tl::unexpected(fail(left.begin, described(left) + ", and no element of a list"));
  }
  std::size_t node = 0;
  SPDLD_ASSIGN(const bool literal, take("["));
  if (literal) {
    const bool by_name = has_names(left);
    std::vector<Where::Literal> set;
    while (!is("]")) {
      SPDLD_ASSIGN(Where::Literal element, parse_element(left, by_name));
      set.push_back(std::move(element));
      SPDLD_ASSIGN(const bool comma, take(","));
      if (!comma && !is("]")) {
        return tl::unexpected(fail(token_.begin, "a comma or ] is missing in the list"));
      }
    }
    SPDLD_TRY(read_token());
    std::sort(set.begin(), set.end(), [](const Where::Literal& a, const Where::Literal& b) {
      return Where::compare(Where::value_of(a), Where::value_of(b)) < 0;
    });
    node = add(Where::InSet{.left = std::move(left.operand), .set = std::move(set)});
  } else {
    SPDLD_ASSIGN(const Part list, parse_operand());
    if (!is_list(list.type)) {
      return tl::unexpected(fail(list.begin, described(list) + ", and no list, such as [1, 2]"));
    }
    if (has_names(list) && list.type == ValueType::kInt64List && left.type == ValueType::kText &&
        std::holds_alternative<Where::Literal>(left.operand)) {
      SPDLD_ASSIGN(left.operand, class_number(left));
      left.type = ValueType::kInt64;
    }
    if (!is_number(left.type)) {
      return tl::unexpected(fail(left.begin, described(left) + " and " + described(list) +
                                                 "; a list of numbers holds no such thing"));
    }
    node = add(Where::InColumn{.left = std::move(left.operand),
                               .column = std::get<Where::Column>(list.operand).index});
  }
  return negated ? add(Where::Not{.node = node}) : node;
}

Result<Where::Literal> WhereParser::parse_element(const Part& left, bool by_name) {
  SPDLD_ASSIGN(const Part part, parse_operand());
  const auto* literal = std::get_if<Where::Literal>(&part.operand);
  if (literal == nullptr) {
    return tl::unexpected(
        fail(part.begin, "a list has numbers and texts, and no " + unknown_.noun + "s"));
  }
  if (by_name && part.type == ValueType::kText) return class_number(part);
  SPDLD_TRY(check_comparable(left, part));
  return *literal;
}

}  // namespace spdld::source
