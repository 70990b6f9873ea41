// SPDX-License-Identifier: Apache-2.0
#include "source/table/table_reader.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/text/foreign_names.h"
#include "base/text_place.h"
#include "source/bytes/shown_columns.h"
#include "source/table/csv_reader.h"
#include "source/table/json_lines.h"
#include "source/table/table_field.h"

namespace spdld::source {
namespace {

struct Wanted {
  std::string column;
  std::unique_ptr<TableField> field;
  // Which rows have it, for a field that is optional.
  std::optional<ColumnsBuilder> present = {};
  bool any_present = false;
  bool needs_type = false;  // which the rows settle
  bool is_json = false;

  bool optional() const { return present.has_value(); }
};

// Bounds what the fields gather, and puts their columns beside each other in the end.
class Gathering {
 public:
  Gathering(const TableSpec& spec, const TableOptions& options, std::vector<std::string>& found)
      : file_(spec.file), max_bytes_(options.max_bytes), memory_(options.memory) {
    const std::string root = table_root(spec);
    for (const TableSpec::Uri& uri : spec.uris)
      want(uri.column, make_uri_field(uri.field, root), uri.field, uri.optional);
    if (spec.label)
      want(spec.label->column, make_label_field("label", options.classes, found), "label",
           spec.label->optional);
    for (const TableSpec::Value& value : spec.values) {
      want(value.column,
           value.is_json ? make_json_field(value.field) : make_value_field(value.field, value.type),
           value.field, value.optional);
      wanted_.back().needs_type = value.optional && !value.type;
      wanted_.back().is_json = value.is_json;
    }
  }

  std::vector<Wanted>& wanted() { return wanted_; }

  // Notes whether the row has the field.
  static bool note(Wanted& each, bool present) {
    if (each.present) each.present->add(0, present);
    each.any_present = each.any_present || present;
    return present;
  }

  Status end_row() {
    ++rows_;
    std::uint64_t bytes = 0;
    for (const Wanted& each : wanted_) bytes += each.field->bytes();
    if (bytes <= max_bytes_)
      return memory_ == nullptr ? Status() : memory_->cover(bytes).with_context(file_);
    return {Code::kResourceExhausted, file_ + ": the columns that are asked for take more than " +
                                          std::to_string(max_bytes_) + " bytes by row " +
                                          std::to_string(rows_) +
                                          "; ask for fewer, or split the table"};
  }

  Result<Columns> finish() && {
    if (rows_ == 0) return error(Code::kInvalidArgument, file_ + " has no rows");
    std::vector<Columns> parts;
    for (Wanted& each : wanted_) {
      if (each.needs_type && !each.any_present)
        return error(Code::kInvalidArgument,
                     file_ + ": no row has a value in the column " + shown_text(each.column) +
                         ", which does not tell its type then: give it one, {column: NAME, type: "
                         "float64}, or leave the field out");
      SPDLD_ASSIGN(Columns part, each.field->finish());
      parts.push_back(std::move(part));
      if (each.present) parts.push_back(std::move(*each.present).finish());
    }
    return Columns::beside(std::move(parts));
  }

 private:
  void want(const std::string& column, std::unique_ptr<TableField> field, const std::string& name,
            bool optional) {
    Wanted& each = wanted_.emplace_back();
    each.column = column;
    each.field = std::move(field);
    if (optional)
      each.present.emplace(
          std::vector<Columns::Info>{{.name = name + "_present", .type = ValueType::kBool}});
  }

  const std::string file_;
  const std::uint64_t max_bytes_;
  const ListingMemory::SharePtr memory_;
  std::vector<Wanted> wanted_;
  std::uint64_t rows_ = 0;
};

Status gather_csv(const std::string& file, char separator, RecordBuffer records,
                  Gathering& gathering) {
  CsvReader csv(file, separator, std::move(records));
  SPDLD_ASSIGN(const std::vector<std::string> header, csv.read_header());
  std::vector<std::size_t> index;
  for (const Wanted& each : gathering.wanted()) {
    const auto found = std::find(header.begin(), header.end(), each.column);
    if (found == header.end() || each.column.empty()) {
      return Place().fail(file,
                          "the first line names no " + missing_table_column(each.column, header));
    }
    index.push_back(static_cast<std::size_t>(found - header.begin()));
  }
  std::vector<CsvReader::Cell> cells;
  const CsvReader::Cell* now = nullptr;
  const std::string* column = nullptr;
  const TableField::Fail fail = [&](const std::string& message) {
    return csv.place(*now).fail(file, shown_text(*column) + ": " + message);
  };
  while (true) {
    SPDLD_ASSIGN(const bool any, csv.next(cells));
    if (!any) return {};
    for (std::size_t i = 0; i < index.size(); ++i) {
      Wanted& each = gathering.wanted()[i];
      now = &cells[index[i]];
      column = &each.column;
      SPDLD_TRY(Gathering::note(each, !each.optional() || !now->text.empty())
                    ? each.field->add_cell(now->text, fail)
                    : each.field->add_absent());
    }
    SPDLD_TRY(gathering.end_row());
  }
}

Status gather_json(const std::string& file, RecordBuffer records, Gathering& gathering) {
  std::vector<JsonLines::Wanted> keys;  // each once
  std::vector<std::size_t> index;
  for (const Wanted& each : gathering.wanted()) {
    const auto found = std::find_if(keys.begin(), keys.end(),
                                    [&](const auto& key) { return key.key == each.column; });
    index.push_back(static_cast<std::size_t>(found - keys.begin()));
    if (found == keys.end()) {
      keys.push_back({.key = each.column, .optional = each.optional(), .whole = each.is_json});
    } else if (found->whole != each.is_json) {
      return {Code::kInvalidArgument,
              file + ": two fields of the table are the column " + shown_text(each.column) +
                  ", and one of them alone has the type json: give it to both, or to neither"};
    } else {
      found->optional = found->optional && each.optional();
    }
  }
  JsonLines lines(file, std::move(keys), std::move(records));
  const JsonLines::Cell* now = nullptr;
  const std::string* column = nullptr;
  const TableField::Fail fail = [&](const std::string& message) {
    return lines.place(*now).fail(file, shown_text(*column) + ": " + message);
  };
  while (true) {
    SPDLD_ASSIGN(const bool any, lines.next());
    if (!any) return {};
    for (std::size_t i = 0; i < index.size(); ++i) {
      Wanted& each = gathering.wanted()[i];
      now = &lines.cells()[index[i]];
      column = &each.column;
      SPDLD_TRY(Gathering::note(each, !now->absent)
                    ? each.field->add_value(now->value, now->huge, fail)
                    : each.field->add_absent());
    }
    SPDLD_TRY(gathering.end_row());
  }
}

// What is no text would fail at some byte of it.
Status check_head(const std::string& file, RecordBuffer& records) {
  while (records.view().size() < kForeignHead) {
    SPDLD_ASSIGN(const bool any, records.more());
    if (!any) break;
  }
  const std::string_view head = records.view().substr(0, kForeignHead);
  // The first line of a table may begin as another format's files do: "FORM,ID".
  const bool is_binary = std::any_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
  });
  const ForeignFormat* const foreign = foreign_content(head);
  if (foreign != nullptr && (is_binary || foreign->name == kLfsPointer))
    return {Code::kInvalidArgument, file + " is no table that is read, but " + described(*foreign)};
  return {};
}

Status check_names(const TableSpec& spec) {
  std::set<std::string_view> names;
  bool once = true;
  if (spec.label) names.insert("label");
  for (const TableSpec::Uri& uri : spec.uris) once = names.insert(uri.field).second && once;
  for (const TableSpec::Value& value : spec.values) {
    once = names.insert(value.field).second && once;
  }
  if (!once) {
    return {Code::kInvalidArgument, spec.file + ": two fields of the table have the same name"};
  }
  if (spec.uris.empty()) {
    return {Code::kInvalidArgument,
            spec.file + ": no column is named that holds the names of the items' files"};
  }
  return {};
}

}  // namespace

std::string table_root(const TableSpec& spec) {
  if (!spec.root.empty()) return spec.root;
  const std::size_t slash = spec.file.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : spec.file.substr(0, slash);
}

Result<TableSpec::Format> table_format(const TableSpec& spec) {
  using Format = TableSpec::Format;
  if (spec.format != Format::kByEnding) return spec.format;
  std::string file = spec.file;
  std::transform(file.begin(), file.end(), file.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (file.ends_with(".csv")) return Format::kCsv;
  if (file.ends_with(".tsv")) return Format::kTsv;
  if (file.ends_with(".jsonl") || file.ends_with(".ndjson")) return Format::kJsonLines;
  if (const ForeignFormat* const foreign = foreign_file(spec.file))
    return error(Code::kInvalidArgument,
                 spec.file + " is no table that is read, but " + described(*foreign));
  if (file.ends_with(".json"))
    return error(
        Code::kInvalidArgument,
        spec.file +
            " is JSON, and a table is JSON Lines, one object a line; of a list of objects " +
            std::string(kListToLines) +
            "; of COCO's annotations write 'source: {coco: {annotations: FILE, root: DIRECTORY}}'");
  return error(Code::kInvalidArgument,
               spec.file +
                   " ends in none of .csv, .tsv and .jsonl, so say which format it has; "
                   "others, also compressed ones, are not read");
}

Result<Table> read_table(const TableSpec& spec, ReadSome read, const TableOptions& options) {
  SPDLD_TRY(check_names(spec));
  SPDLD_ASSIGN(const TableSpec::Format format, table_format(spec));
  Table table;
  Gathering gathering(spec, options, table.classes);
  RecordBuffer records(std::move(read), options.first_read);
  SPDLD_TRY(check_head(spec.file, records));
  if (format == TableSpec::Format::kJsonLines) {
    SPDLD_TRY(gather_json(spec.file, std::move(records), gathering));
  } else {
    const char separator = format == TableSpec::Format::kTsv ? '\t' : ',';
    SPDLD_TRY(gather_csv(spec.file, separator, std::move(records), gathering));
  }
  SPDLD_ASSIGN(table.columns, std::move(gathering).finish());
  return table;
}

}  // namespace spdld::source
