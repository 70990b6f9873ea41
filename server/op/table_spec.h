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
    bool optional = false;  // a row need not have it; likewise below

    friend bool operator==(const Uri&, const Uri&) = default;
  };
  // A field whose value stands in the table itself. If no type is given, the rows settle it: it is
  // int64 if all of them hold integers, float64 if all hold numbers, bool if all hold true or
  // false, a list if all hold JSON lists of numbers. In CSV and TSV it is text otherwise, also
  // where an integer begins with zeros, as codes do; in JSON Lines texts alone are text, and rows
  // of different kinds are an error.
  struct Value {
    std::string field;
    std::string column;
    std::optional<ValueType> type = {};
    // The type is text: each value is the JSON that stands in the row, whatever it holds.
    bool is_json = false;
    bool optional = false;

    friend bool operator==(const Value&, const Value&) = default;
  };
  // The field `label`, an index into the classes. If no classes are given, a column of integers
  // holds the labels themselves, which have no names then, and the classes of any other column are
  // its distinct values, sorted bytewise. If classes are given, each row names one of them, or
  // gives its index if the name of no class is an integer.
  struct Label {
    std::string column;
    std::optional<ClassesSpec> classes = {};  // never kDirectories
    bool optional = false;

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
  bool optional = false;         // an image's entry need not name a file

  friend bool operator==(const CocoSpec&, const CocoSpec&) = default;
};

}  // namespace spdld
