// SPDX-License-Identifier: Apache-2.0
#include "source/table/item_file.h"

#include <optional>
#include <utility>

#include "base/text/counted.h"
#include "source/listing/classes.h"
#include "source/table/coco_reader.h"
#include "source/table/table_reader.h"

namespace spdld::source {
namespace {

Result<ItemRows> read_rows(const TableSpec& spec, ReadSome read, const Access& access,
                           SourceOptions& options, const ListingMemory::SharePtr& memory) {
  TableOptions how;
  how.memory = memory;
  if (spec.label && spec.label->classes) {
    SPDLD_ASSIGN(how.classes, class_names(*spec.label->classes, Listing(), options.classes, access,
                                          memory.get()));
  }
  SPDLD_ASSIGN(Table table, read_table(spec, std::move(read), how));
  return ItemRows{
      .columns = std::move(table.columns), .classes = std::move(table.classes), .category_ids = {}};
}

Result<ItemRows> read_rows(const CocoSpec& spec, ReadSome read, SourceOptions& options,
                           const ListingMemory::SharePtr& memory) {
  CocoOptions how;
  how.memory = memory;
  how.bad_boxes =
      options.fail_on_bad_rows ? CocoOptions::BadBoxes::kFail : CocoOptions::BadBoxes::kDrop;
  SPDLD_ASSIGN(Coco coco, read_coco(spec, std::move(read), how));
  if (!coco.bad_boxes.empty() && options.warnings != nullptr)
    options.warnings->push_back(spec.annotations + ": " +
                                counted(coco.bad_boxes.size(), "box was", "boxes were") +
                                " left out, such as " + coco.bad_boxes.front().text() +
                                "; with 'on_error: {decode: fail}' the first one is an error");
  const auto warn = [&](std::uint64_t count, const std::string& what) {
    if (count > 0 && options.warnings != nullptr)
      options.warnings->push_back(spec.annotations + ": " + what);
  };
  warn(coco.orphans, counted(coco.orphans, "annotation was", "annotations were") +
                         " left out, whose image is not in the file, such as annotation " +
                         std::to_string(coco.orphan_id) + " of image " +
                         std::to_string(coco.orphan_image_id));
  warn(coco.repeated_images, counted(coco.repeated_images, "image comes", "images come") +
                                 " again with the same id and file, and " +
                                 (coco.repeated_images == 1 ? "is" : "are") + " one item");
  return ItemRows{.columns = std::move(coco.columns),
                  .classes = std::move(coco.classes),
                  .category_ids = std::move(coco.category_ids)};
}

// Of a field, in the key of the rows.
std::string optional_text(bool optional) { return optional ? " optional" : ""; }

}  // namespace

ItemFile item_file(const TableSpec& spec) {
  ItemFile file{.path = spec.file,
                .root = table_root(spec),
                .root_key = "source.table.root",
                .parts = {},
                .optional = {},
                .class_field = spec.label ? "label" : "",
                .key = "table " + spec.file + "\nroot " + table_root(spec),
                .max_bytes = kMaxTableFile,
                .read = {}};
  for (const TableSpec::Uri& uri : spec.uris) {
    file.parts.push_back(uri.field);
    if (uri.optional) file.optional.insert(uri.field);
    file.key += "\nuri " + uri.field + " " + uri.column + optional_text(uri.optional);
  }
  if (spec.label && spec.label->optional) file.optional.insert("label");
  if (spec.label) file.key += "\nlabel " + spec.label->column + optional_text(spec.label->optional);
  for (const TableSpec::Value& value : spec.values) {
    if (value.optional) file.optional.insert(value.field);
    file.key += "\nvalue " + value.field + " " + value.column + optional_text(value.optional) +
                (value.is_json ? " json" : "");
  }
  file.read = [spec](ReadSome read, const Access& access, SourceOptions& options,
                     const ListingMemory::SharePtr& memory) {
    return read_rows(spec, std::move(read), access, options, memory);
  };
  return file;
}

ItemFile item_file(const CocoSpec& spec) {
  ItemFile file{.path = spec.annotations,
                .root = spec.root,
                .root_key = "source.coco.root",
                .parts = {spec.field},
                .optional = {},
                .class_field = "labels",
                .key = "coco " + spec.annotations + "\nroot " + spec.root + "\nfield " +
                       spec.field + optional_text(spec.optional),
                .max_bytes = kMaxCocoFile,
                .read = {}};
  if (spec.optional) file.optional.insert(spec.field);
  file.read = [spec](ReadSome read, const Access&, SourceOptions& options,
                     const ListingMemory::SharePtr& memory) {
    return read_rows(spec, std::move(read), options, memory);
  };
  return file;
}

}  // namespace spdld::source
