// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/stage_hints.h"
#include "ctl/init/survey.h"
#include "ctl/init/table_start.h"

namespace spdld::ctl {
namespace {

using Json = nlohmann::ordered_json;
using Column = TableStart::Column;

constexpr std::size_t kMaxClassValues = 16;
constexpr std::size_t kTried = 5;  // names of files, in folders that may be the root

enum class ColumnKind { kText, kInteger, kNumber, kBool, kList, kCode, kMixed, kOther, kNone };

template <typename T>
bool is_number(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  return failed == std::errc() && at == end;
}

ColumnKind kind_of(const Json& cell) {
  if (cell.is_boolean()) return ColumnKind::kBool;
  if (cell.is_number_integer()) return ColumnKind::kInteger;
  if (cell.is_number()) return ColumnKind::kNumber;
  if (cell.is_array()) return is_number_list(cell) ? ColumnKind::kList : ColumnKind::kOther;
  if (!cell.is_string()) return ColumnKind::kOther;
  return ColumnKind::kText;
}

// A cell of CSV has no type but what it looks like.
ColumnKind kind_of_text(const std::string& cell) {
  if (is_number<std::int64_t>(cell)) return ColumnKind::kInteger;
  if (is_number<double>(cell)) return ColumnKind::kNumber;
  if (cell == "true" || cell == "false" || cell == "True" || cell == "False")
    return ColumnKind::kBool;
  if (cell.starts_with('[') && is_number_list(Json::parse(cell, nullptr, false)))
    return ColumnKind::kList;
  return ColumnKind::kText;
}

ColumnKind kind_of(const Column& column, bool csv) {
  std::set<ColumnKind> kinds;
  for (const Json& cell : column.cells)
    kinds.insert(csv ? kind_of_text(cell.get_ref<const std::string&>()) : kind_of(cell));
  if (kinds.contains(ColumnKind::kInteger) && kinds.contains(ColumnKind::kNumber))
    kinds.erase(ColumnKind::kInteger);
  if (kinds.empty()) return ColumnKind::kNone;
  if (kinds.size() == 1) return *kinds.begin();
  if (kinds.contains(ColumnKind::kOther)) return ColumnKind::kOther;
  if (!csv && kinds == std::set{ColumnKind::kText, ColumnKind::kInteger}) return ColumnKind::kCode;
  return csv ? ColumnKind::kText : ColumnKind::kMixed;
}

const char* name_of(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kText: return "text";
    case ColumnKind::kInteger: return "integers";
    case ColumnKind::kNumber: return "numbers";
    case ColumnKind::kBool: return "true or false";
    case ColumnKind::kList: return "lists of numbers";
    case ColumnKind::kCode: return "text, and integers as text";
    case ColumnKind::kMixed: return "values of several types, each as its text";
    case ColumnKind::kOther: return "each as its text, for json.loads";
    case ColumnKind::kNone: return "which the first rows have not";
  }
  return "";
}

// The value of a field of `values`: the column's name, with a type where the rows do not tell it.
std::string column_text(const std::string& name, ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kCode: return fmt::format("{{column: {}, type: text}}", name);
    case ColumnKind::kMixed:
    case ColumnKind::kOther: return fmt::format("{{column: {}, type: json}}", name);
    default: return name;
  }
}

// The texts of a column, if its cells are nothing else, and none is empty.
std::vector<std::string> texts_of(const Column& column) {
  std::vector<std::string> texts;
  for (const Json& cell : column.cells) {
    if (!cell.is_string() || cell.get_ref<const std::string&>().empty()) return {};
    texts.push_back(cell.get<std::string>());
  }
  return texts;
}

bool is_label(const Column& column, ColumnKind kind) {
  constexpr std::array<std::string_view, 9> kNames{
      "label", "labels", "class", "class_name", "category", "target", "cls", "species", "breed"};
  std::string lower = column.name;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return (kind == ColumnKind::kText || kind == ColumnKind::kInteger) &&
         std::find(kNames.begin(), kNames.end(), lower) != kNames.end();
}

// Columns that name files, and what these are relative to.
struct FileColumns {
  std::vector<const Column*> columns;
  std::string root;
};

std::vector<std::string> some_of(const std::vector<std::string>& names) {
  return {names.begin(),
          names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kTried))};
}

FileColumns find_files(const std::string& path, const TableStart& table,
                       const std::optional<std::string>& root) {
  FileColumns files;
  const Column* named = nullptr;  // files that are not there
  for (const Column& column : table.columns) {
    const std::vector<std::string> texts = texts_of(column);
    if (texts.empty() || column.name.empty()) continue;
    const bool images = std::all_of(texts.begin(), texts.end(),
                                    [](const std::string& text) { return is_image_name(text); });
    const bool rooted = std::all_of(texts.begin(), texts.end(),
                                    [](const std::string& text) { return text.starts_with('/'); });
    if (!images) continue;
    const std::optional<std::string> found =
        find_root(path, some_of(texts), files.columns.empty() ? root : files.root);
    if (!found) {
      named = &column;
      continue;
    }
    // An absolute path needs a root that it lies below.
    if (files.columns.empty()) files.root = rooted && !root ? "/" : *found;
    files.columns.push_back(&column);
  }
  // An image rather than what belongs to it, and one that all rows have.
  const auto rank = [&](const Column* column) {
    return std::pair(column->name.find("mask") != std::string::npos,
                     !table.is_in_each_row(*column));
  };
  std::stable_sort(files.columns.begin(), files.columns.end(),
                   [&](const Column* a, const Column* b) { return rank(a) < rank(b); });
  if (!files.columns.empty()) return files;
  if (named != nullptr)
    throw Failure(kWrongUsage,
                  fmt::format("the column '{}' of {} names images such as {}, which {}; say by "
                              "--root DIR what the names are relative to",
                              printable(named->name), printable(path),
                              printable(named->cells.front().get<std::string>()),
                              root ? fmt::format("are not all below {}", printable(*root))
                                   : "are not beside it, nor in a folder near it"));
  std::vector<std::string> columns;
  std::vector<std::string> names;
  for (const Column& column : table.columns) {
    columns.push_back(column.name);
    names.push_back("'" + printable(column.name) + "'");
  }
  const ForeignFormat* const foreign = foreign_table(columns);
  throw Failure(
      kWrongUsage,
      fmt::format(
          "no column of {} names images, and nothing else, in its first rows: it has {}; {}",
          printable(path), listed(names),
          foreign != nullptr ? "it is " + described(*foreign)
                             : "a pipeline needs one, with names such as images/1.jpg"));
}

// Whether each list of the column may be boxes.
bool are_boxes(const Column& column, bool csv) {
  return std::all_of(column.cells.begin(), column.cells.end(), [&](const Json& cell) {
    const Json list = csv ? Json::parse(cell.get_ref<const std::string&>(), nullptr, false) : cell;
    return may_be_boxes(column.name, list.size());
  });
}

// How the other columns that name files could be read beside the first one.
void hint_at_files(const FileColumns& files, std::set<std::string>& taken, Draft& draft) {
  if (files.columns.size() < 2) return;
  std::vector<std::string> names;
  std::string uri = "image: " + yaml_text(files.columns.front()->name);
  for (std::size_t i = 1; i < files.columns.size(); ++i) {
    const std::string& column = files.columns[i]->name;
    const bool mask = column.find("mask") != std::string::npos;
    const std::string field = field_name(mask && !taken.contains("mask") ? "mask" : column, taken);
    names.push_back(yaml_text(column));
    uri += fmt::format(", {}: {}", field, yaml_text(column));
    draft.hints.push_back(mask ? mask_stage(field)
                               : fmt::format("# - decode_image: {{field: {}}}", field));
  }
  draft.source.push_back(fmt::format("  # {} name{} files, too: uri: {{{}}}", listed(names),
                                     names.size() == 1 ? "s" : "", uri));
}

// Says of the fields that some of the rows lack that a row need not have them.
void add_optional(const TableStart& table, const std::vector<std::string>& fields, Draft& draft) {
  if (fields.empty()) return;
  draft.source.push_back(
      fmt::format("  # Not all of the first {} have these; {}_present tells which rows do.",
                  counted(table.rows, "row"), fields.front()));
  draft.source.push_back(fmt::format("  optional: [{}]", fmt::join(fields, ", ")));
}

void add_values(const TableStart& table, const FileColumns& files, bool csv, Draft& draft) {
  std::set<std::string> taken{"image", "label"};
  std::vector<std::string> optional;
  if (!table.is_in_each_row(*files.columns.front())) optional.emplace_back("image");
  hint_at_files(files, taken, draft);
  std::vector<std::string> values;
  std::vector<std::string> comments;
  const Column* label = nullptr;
  for (const Column& column : table.columns) {
    const bool is_file =
        std::find(files.columns.begin(), files.columns.end(), &column) != files.columns.end();
    if (column.name.empty() || is_file) continue;
    const std::string name = yaml_text(column.name);
    const ColumnKind kind = kind_of(column, csv);
    if (label == nullptr && is_label(column, kind)) {
      label = &column;
      draft.class_names = kind != ColumnKind::kInteger;
      draft.source.push_back(fmt::format("  label: {:<21} # {}", name,
                                         kind == ColumnKind::kInteger
                                             ? "the numbers of classes"
                                             : "classes are numbered in the order of their names"));
      if (!table.is_in_each_row(column)) optional.emplace_back("label");
    } else if (kind == ColumnKind::kNone || values.size() == kMaxClassValues) {
      comments.push_back(fmt::format("  # left out: {}, {}", name, name_of(kind)));
    } else {
      const std::string field = field_name(column.name, taken);
      values.push_back(
          fmt::format("    {}: {:<19} # {}", field, column_text(name, kind), name_of(kind)));
      // An empty cell is a text as any other.
      if (!table.is_in_each_row(column) && !(csv && kind == ColumnKind::kText))
        optional.push_back(field);
      if (kind == ColumnKind::kList && are_boxes(column, csv))
        draft.hints.push_back(boxes_stage(field));
    }
  }
  if (!values.empty()) draft.source.emplace_back("  values:");
  draft.source.insert(draft.source.end(), values.begin(), values.end());
  draft.source.insert(draft.source.end(), comments.begin(), comments.end());
  add_optional(table, optional, draft);
}

}  // namespace

Draft survey_table(const std::string& path, const std::optional<std::string>& root) {
  const TableStart table = read_table_start(path);
  const bool csv = !path.ends_with(".jsonl");
  const FileColumns files = find_files(path, table, root);
  std::vector<std::string> names;
  for (const Column& column : table.columns) names.push_back(column.name);
  const bool each = table.is_in_each_row(*files.columns.front());
  Draft draft{.path = path, .root = files.root, .items = table.about_rows};
  draft.seen.push_back(fmt::format("{}{}; the columns are {}.", table.whole ? "" : "About ",
                                   counted(table.about_rows, "row"), listed(names, 24)));
  draft.source = {"table:", "  file: " + yaml_text(path), "  root: \"${root}\"",
                  fmt::format("  uri: {:<23} # in the first rows{}, it names images that are there",
                              yaml_text(files.columns.front()->name), each ? "" : " that have it")};
  add_values(table, files, csv, draft);
  return draft;
}

}  // namespace spdld::ctl
