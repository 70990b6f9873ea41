// SPDX-License-Identifier: Apache-2.0
#include "source/tar/index_query.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text/printable.h"
#include "op/json_values.h"
#include "op/webdataset_suffix.h"
#include "source/bytes/binary.h"

namespace spdld::source {
namespace {

constexpr std::size_t kShownQuery = 100;

std::string shown_query(std::string_view text) {
  return "'" + printable(text.substr(0, kShownQuery)) + (text.size() > kShownQuery ? "...'" : "'");
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::optional<std::int64_t> integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

Status invalid_query(const std::string& why) { return Status(Code::kInvalidArgument, why); }

}  // namespace

IndexQuery::IndexQuery(WebdatasetSpec spec, std::vector<std::string> classes)
    : spec_(std::move(spec)), classes_(std::move(classes)) {
  for (const std::string& name : classes_) {
    numbers_.emplace(name, static_cast<std::int64_t>(numbers_.size()));
    numbered_ = numbered_ || integer(name);
  }
}

Result<IndexQuery> IndexQuery::make(WebdatasetSpec spec, std::vector<std::string> classes) {
  IndexQuery query(std::move(spec), std::move(classes));
  if (query.spec_.classes) SPDLD_TRY(query.check_classes());
  for (const WebdatasetSpec::Part& part : query.spec_.parts) {
    for (const std::string& suffix : part.suffixes) {
      if (const auto kind = suffix_kind(suffix); !kind)
        return tl::unexpected(kind.error().with_context("'" + part.field + "'"));
    }
  }
  SPDLD_TRY(query.add_labels());
  SPDLD_TRY(query.add_values());
  const auto add_presence = [&query](const auto& fields) -> Status {
    for (const auto& field : fields) {
      if (field.optional) SPDLD_TRY(query.add_field(field.field + "_present"));
    }
    return {};
  };
  SPDLD_TRY(add_presence(query.spec_.parts));
  SPDLD_TRY(add_presence(query.spec_.labels));
  SPDLD_TRY(add_presence(query.spec_.index));
  return query;
}

Status IndexQuery::check_classes() const {
  if (spec_.classes->kind == ClassesSpec::Kind::kDirectories)
    return invalid_query(
        "source.webdataset.classes: a tar has no directories of classes; list their "
        "names, name a file of them, or another pipeline");
  if (classes_.empty()) return invalid_query("source.webdataset.classes names no class");
  return {};
}

Status IndexQuery::add_field(const std::string& field) {
  const auto& fields = value_fields_;
  if (std::find(fields.begin(), fields.end(), field) != fields.end())
    return invalid_query("the field '" + field + "' is named twice");
  value_fields_.push_back(field);
  return {};
}

Status IndexQuery::add_labels() {
  for (const WebdatasetSpec::Label& label : spec_.labels) {
    SPDLD_TRY(add_field(label.field));
    for (const std::string& suffix : label.suffixes) {
      const auto& known = label_suffixes_;
      if (std::find(known.begin(), known.end(), suffix) == known.end())
        label_suffixes_.push_back(suffix);
    }
  }
  return {};
}

Status IndexQuery::add_values() {
  for (const WebdatasetSpec::IndexedValue& value : spec_.index) {
    SPDLD_TRY(add_field(value.field));
    SPDLD_ASSIGN(std::vector<std::string> pointer, json_pointer(value.pointer));
    const auto same = [&value](const JsonPart& part) { return part.suffix == value.suffix; };
    auto part = std::find_if(json_parts_.begin(), json_parts_.end(), same);
    if (part == json_parts_.end())
      part = json_parts_.insert(part, {.suffix = value.suffix, .pointers = {}});
    if (part->pointers.size() == JsonValues::kMaxPointers)
      return invalid_query("more than " + std::to_string(JsonValues::kMaxPointers) +
                           " fields are taken from " + shown_query(value.suffix));
    json_places_.push_back({.part = static_cast<std::size_t>(part - json_parts_.begin()),
                            .pointer = part->pointers.size()});
    part->pointers.push_back(std::move(pointer));
  }
  return {};
}

Result<std::int64_t> IndexQuery::label(std::string_view suffix, std::string_view text) const {
  const std::string_view word = stripped(text);
  const Result<SuffixKind> kind = suffix_kind(suffix);
  const bool named = !classes_.empty() && kind && *kind == SuffixKind::kClass;
  if (named) {
    const auto found = numbers_.find(std::string(word));
    if (found != numbers_.end()) return found->second;
  }
  const std::optional<std::int64_t> number = integer(word);
  if (!named) {
    if (number) return *number;
    return tl::unexpected(
        invalid_query("is " + shown_query(word) + ", which is no int64" +
                      (kind && *kind == SuffixKind::kClass
                           ? "; if it is the name of a class, list the names under "
                             "source.webdataset.classes"
                           : "")));
  }
  // Data that are numbered already, whose classes are named for people.
  const auto count = static_cast<std::int64_t>(classes_.size());
  if (number && !numbered_ && *number >= 0 && *number < count) return *number;
  return tl::unexpected(invalid_query("is " + shown_query(word) + ", which is none of the " +
                                      std::to_string(count) +
                                      " names of source.webdataset.classes; add it to them"));
}

std::string IndexQuery::key() const {
  BinaryWriter out;
  const auto add = [&out](const std::vector<std::string>& words) {
    out.number<std::uint64_t>(words.size());
    for (const std::string& word : words) out.string(word);
  };
  out.string("webdataset");
  out.number<std::uint64_t>(spec_.parts.size());
  for (const WebdatasetSpec::Part& part : spec_.parts) {
    add(part.suffixes);
    out.number(static_cast<std::uint8_t>(part.optional ? 1 : 0));
  }
  out.number<std::uint64_t>(spec_.labels.size());
  for (const WebdatasetSpec::Label& label : spec_.labels) add(label.suffixes);
  out.number<std::uint64_t>(spec_.index.size());
  for (const WebdatasetSpec::IndexedValue& value : spec_.index) add({value.suffix, value.pointer});
  add(value_fields_);
  add(classes_);
  out.number(static_cast<std::uint8_t>(spec_.missing));
  return out.text();
}

}  // namespace spdld::source
