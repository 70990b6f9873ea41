// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "source/bytes/shown_columns.h"
#include "source/table/cell_value.h"
#include "source/table/table_field.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxClasses = std::size_t{1} << 20;

std::optional<std::int64_t> integer_of(std::string_view text, CellReader& reader) {
  if (reader.read(text, ValueType::kInt64) != CellFit::kYes) return std::nullopt;
  return std::get<std::int64_t>(reader.value());
}

// The class of a row by the name that the table has for it.
class LabelField : public TableField {
 public:
  Status add_value(const Value& value, bool huge, const Fail& fail) override {
    if (huge) return fail("this integer is beyond int64, and no label");
    if (kind_ && *kind_ != type_of(value)) {
      return fail("holds " + type_text(type_of(value)) + " where the rows before hold " +
                  type_text(*kind_));
    }
    kind_ = type_of(value);
    if (const auto* text = std::get_if<std::string_view>(&value)) return add_name(*text, fail);
    if (const auto* truth = std::get_if<bool>(&value)) {
      return add_name(*truth ? "true" : "false", fail);
    }
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return add_name(std::to_string(*integer), fail);
    }
    return fail("holds " + type_text(type_of(value)) +
                ", and no label, which is a text or an integer; list the column under values");
  }
  Status add_cell(std::string_view cell, const Fail& fail) override { return add_name(cell, fail); }
  // 0 stands for a label that is not there.
  Status add_absent() override {
    count(8);
    add_none();
    return {};
  }

 protected:
  virtual Status add_name(std::string_view name, const Fail& fail) = 0;
  virtual void add_none() = 0;
  // Whether names that read as integers are some.
  bool may_be_integers() const { return kind_.value_or(ValueType::kInt64) == ValueType::kInt64; }

 private:
  std::optional<ValueType> kind_;  // of JSON values; none: there are only cells
};

// An index into classes that are known before.
class KnownLabels final : public LabelField {
 public:
  KnownLabels(std::string field, std::vector<std::string> classes, std::vector<std::string>& found)
      : classes_(std::move(classes)),
        found_(found),
        labels_({{.name = std::move(field), .type = ValueType::kInt64}}) {
    for (const std::string& name : classes_) {
      index_.emplace(name, static_cast<std::int64_t>(index_.size()));
      by_number_ = by_number_ && !integer_of(name, reader_);
    }
  }

  Result<Columns> finish() override {
    found_ = classes_;
    return std::move(labels_).finish();
  }

 protected:
  Status add_name(std::string_view name, const Fail& fail) override {
    std::optional<std::int64_t> label;
    if (const auto found = index_.find(name); found != index_.end()) {
      label = found->second;
    } else if (by_number_ && may_be_integers()) {
      label = integer_of(name, reader_);
      if (label && (*label < 0 || *label >= static_cast<std::int64_t>(classes_.size()))) {
        return fail("class " + std::to_string(*label) + " is beyond the " +
                    std::to_string(classes_.size()) + " classes, which are numbered from 0");
      }
    }
    if (!label) {
      return fail(shown_text(name) + " is none of the " + std::to_string(classes_.size()) +
                  " classes" + nearest_name(name, classes_));
    }
    count(8);
    labels_.add(0, *label);
    return {};
  }
  void add_none() override { labels_.add(0, std::int64_t{0}); }

 private:
  const std::vector<std::string> classes_;
  std::vector<std::string>& found_;
  std::unordered_map<std::string_view, std::int64_t> index_;  // into classes_
  bool by_number_ = true;  // no name is an integer, so that an integer is an index
  CellReader reader_;
  ColumnsBuilder labels_;
};

// Numbers as they stand, or an index into the sorted names that come.
class FoundLabels final : public LabelField {
 public:
  FoundLabels(std::string field, std::vector<std::string>& found)
      : field_(std::move(field)), found_(found) {}

  Result<Columns> finish() override {
    const bool integers = are_integers_ && may_be_integers();
    if (integers && !huge_.ok()) return tl::unexpected(huge_);
    std::vector<std::int64_t> numbers(names_.size());
    if (integers) {
      CellReader reader;
      for (const auto& [name, id] : names_) numbers[id] = integer_of(name, reader).value_or(0);
    } else {
      std::vector<std::pair<std::string, std::uint32_t>> sorted(names_.begin(), names_.end());
      std::sort(sorted.begin(), sorted.end());
      for (auto& [name, id] : sorted) {
        numbers[id] = static_cast<std::int64_t>(found_.size());
        found_.push_back(std::move(name));
      }
    }
    names_.clear();
    ColumnsBuilder labels({{.name = field_, .type = ValueType::kInt64}});
    for (const std::uint32_t id : ids_) labels.add(0, id == kNone ? 0 : numbers[id]);
    ids_ = {};
    return std::move(labels).finish();
  }

 protected:
  Status add_name(std::string_view name, const Fail& fail) override {
    if (name.empty()) return fail("the label is empty");
    looked_up_ = name;
    auto at = names_.find(looked_up_);
    if (at == names_.end()) {
      SPDLD_TRY(look_at(name, fail));
      at = names_.emplace(looked_up_, static_cast<std::uint32_t>(names_.size())).first;
      count(name.size() + 64);
    }
    count(4);
    ids_.push_back(at->second);
    return {};
  }
  void add_none() override { ids_.push_back(kNone); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Status look_at(std::string_view name, const Fail& fail) {
    CellReader reader;
    const CellFit fit =
        CellReader::is_code(name) ? CellFit::kNo : reader.read(name, ValueType::kInt64);
    if (fit == CellFit::kHuge && huge_.ok())
      huge_ = fail("this integer is beyond int64, and no label");
    are_integers_ = are_integers_ && fit != CellFit::kNo;
    if (are_integers_ && may_be_integers()) return {};
    if (names_.size() < kMaxClasses) return {};
    return fail("with this label there are more than " + std::to_string(kMaxClasses) +
                " classes; is this the column of the labels?");
  }

  const std::string field_;
  std::vector<std::string>& found_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<std::uint32_t> ids_;  // of each row, in names_
  bool are_integers_ = true;
  Status huge_;
  std::string looked_up_;
};

}  // namespace

std::unique_ptr<TableField> make_label_field(std::string field,
                                             std::optional<std::vector<std::string>> classes,
                                             std::vector<std::string>& found) {
  if (!classes) return std::make_unique<FoundLabels>(std::move(field), found);
  return std::make_unique<KnownLabels>(std::move(field), *std::move(classes), found);
}

}  // namespace spdld::source
