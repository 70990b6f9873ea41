// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "op/order_spec.h"
#include "op/value.h"

// How items are described by a file that lists them, as plain values: spec/ fills them from YAML,
// source/ acts on them.
namespace spdld {

// A CSV, TSV or JSON Lines file with one item a row. Its items stand in the order of the rows; a
// row that comes again is another item. Names of fields differ from each other.
struct TableSpec {
  enum class Format {
    kByEnding,   // .csv, .tsv, .jsonl, .ndjson, with any case of letters
    kCsv,        // RFC 4180; the first line names the columns
    kTsv,        // the same with tabs for commas; a quote within an unquoted cell is a character
    kJsonLines,  // one object a line, whose keys are the columns
  };
  // A field whose bytes are a file's, which the column names relative to `root`.
  struct Uri {
    std::string field;
    std::string column;

    friend bool operator==(const Uri&, const Uri&) = default;
  };
  // A field that has its value from the table itself. Without a type it has that of all its rows:
  // integers are int64, other numbers float64, true and false bool, JSON lists of numbers lists,
  // and all else is text. Without one, integers with leading zeros are text in CSV and TSV.
  struct Value {
    std::string field;
    std::string column;
    std::optional<ValueType> type = {};

    friend bool operator==(const Value&, const Value&) = default;
  };
  // The field `label`: an index into the classes. Without classes, integers are labels as they
  // stand, and the sorted distinct values of any other column are the classes. With classes, a row
  // names one; where no class's name is itself an integer, it may give its index.
  struct Label {
    std::string column;
    std::optional<ClassesSpec> classes = {};  // never kDirectories

    friend bool operator==(const Label&, const Label&) = default;
  };

  std::string file = {};  // absolute
  Format format = Format::kByEnding;
  std::string root = {};  // absolute; empty: the directory that `file` lies in
  std::vector<Uri> uris = {};
  std::optional<Label> label = {};
  std::vector<Value> values = {};

  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// An annotation file of COCO's object detection format. Its items are the images, in the order of
// the file's list. The fields, beside the images' bytes: image_id, width, height (int64), boxes
// (list of float64, four a box: XYXY in pixels of the stored image), and with one number a box
// labels, ids, iscrowd (lists of int64) and area (list of float64). Labels number the categories
// without gaps, in the order of their ids.
struct CocoSpec {
  std::string annotations = {};  // absolute
  std::string root = {};         // absolute; what `file_name` is relative to
  std::string field = "image";   // what the images' bytes are called

  friend bool operator==(const CocoSpec&, const CocoSpec&) = default;
};

}  // namespace spdld
