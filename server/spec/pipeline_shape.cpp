// SPDX-License-Identifier: Apache-2.0
#include "spec/pipeline_shape.h"

#include <string>
#include <utility>

#include "base/text/foreign_names.h"
#include "op/call_op.h"
#include "spec/clips_shape.h"

namespace spdld::spec {
namespace {

constexpr std::size_t kMaxStages = 256;
constexpr const char* kOrders = "none, global, {block: ITEMS} or {global: {bucket: {by: FIELD}}}";

// The class names of labels, beyond what the data themselves say.
Shape classes_shape() {
  Shape classes = list_shape(string_shape());
  classes.min_items = 1;
  Shape path = string_shape();
  path.expected = "the path of a file with one class name a line";
  const Shape from = map_shape({{.name = "from",
                                 .doc = "the pipeline whose classes these are",
                                 .shape = name_shape(),
                                 .required = true}});
  return any_of({classes, path, from});
}

// Of a source whose items need not have all of its fields.
Key optional_key(std::string doc) {
  Shape fields = any_of({string_shape(), list_shape(string_shape())});
  fields.expected = "the name of a field, or a list of them";
  return {.name = "optional", .doc = std::move(doc), .shape = std::move(fields), .nullable = true};
}

Shape files_shape() {
  Shape roots = list_shape(string_shape());
  roots.min_items = 1;
  roots.max_items = 64;
  Shape root = any_of({string_shape(), std::move(roots)});
  root.expected = "a directory, or a list of directories";
  Shape exclude = any_of({string_shape(), list_shape(string_shape())});
  exclude.expected = "a pattern, or a list of patterns";
  return map_shape({
      {.name = "root",
       .doc = "the directory that holds the items, or a list of directories, one behind the other",
       .shape = std::move(root),
       .required = true},
      {.name = "pattern",
       .doc =
           "which files below root are items: * ? [a-z] {a,b} as in a shell, ** over directories",
       .shape = string_shape(),
       .default_value = "**/*"},
      {.name = "label",
       .doc = "parent_dir: an item's class is its top-level directory; none: items have no label",
       .shape = choice_shape({"none", "parent_dir"}),
       .default_value = "none"},
      {.name = "classes",
       .doc = "the class names in index order: a list, a file with one name a line, or {from: "
              "PIPELINE}; not given: the sorted top-level directories",
       .shape = classes_shape(),
       .nullable = true},
      {.name = "follow_symlinks",
       .doc = "whether links to files and directories are followed",
       .shape = bool_shape(),
       .default_value = true},
      {.name = "field",
       .doc = "the name of the items' bytes in a batch; not given: image",
       .shape = string_shape(),
       .nullable = true},
      {.name = "exclude",
       .doc = "patterns of files that are no items though 'pattern' matches them",
       .shape = std::move(exclude),
       .nullable = true},
      {.name = "companions",
       .doc = "files that belong to each item, by the field that each becomes: "
              "\"masks/${stem}.png\", below the item's root",
       .shape = named_shape(string_shape()),
       .nullable = true},
      optional_key("companions that an item need not have; NAME_present tells which have one"),
  });
}

Shape table_format_shape() {
  Shape shape = choice_shape({"csv", "tsv", "jsonl"});
  shape.known_as = "table_format";
  return shape;
}

Shape table_shape() {
  Shape uri = any_of({string_shape(), named_shape(string_shape())});
  uri.expected = "the name of a column, or a map of fields to columns";
  Shape value = any_of(
      {string_shape(), map_shape({{.name = "column",
                                   .doc = "the column that holds the values",
                                   .shape = string_shape(),
                                   .required = true},
                                  {.name = "type",
                                   .doc = "what they are; not given: what the rows hold",
                                   .shape = choice_shape({"int64", "float64", "bool", "text",
                                                          "int64_list", "float64_list", "json"}),
                                   .nullable = true}})});
  value.expected = "the name of a column, or a map such as {column: NAME, type: text}";
  return map_shape({
      {.name = "file",
       .doc = "the table: CSV or TSV whose first line names the columns, or JSON Lines",
       .shape = string_shape(),
       .required = true},
      {.name = "format",
       .doc = "csv, tsv or jsonl; not given: as the file's name ends",
       .shape = table_format_shape(),
       .nullable = true},
      {.name = "root",
       .doc = "what the files that the table names are relative to; not given: the table's "
              "directory",
       .shape = string_shape(),
       .nullable = true},
      {.name = "uri",
       .doc = "the column that names each item's file, which is the field image then; or columns "
              "by the fields that they become",
       .shape = std::move(uri),
       .required = true},
      {.name = "label",
       .doc = "the column of the field label",
       .shape = string_shape(),
       .nullable = true},
      {.name = "classes",
       .doc = "the class names in index order: a list, a file with one name a line, or {from: "
              "PIPELINE}; not given: the label column's distinct values, sorted, or none if it "
              "holds integers",
       .shape = classes_shape(),
       .nullable = true},
      {.name = "values",
       .doc = "fields whose values stand in the table, and their columns",
       .shape = named_shape(std::move(value)),
       .nullable = true},
      optional_key(
          "fields that a row need not have: its cell is empty, or in JSON Lines null or not "
          "there; NAME_present tells which have one"),
  });
}

Shape coco_shape() {
  return map_shape({
      {.name = "annotations",
       .doc = "the JSON file, of COCO's object detection format",
       .shape = string_shape(),
       .required = true},
      {.name = "root",
       .doc = "the directory that the images' file names are relative to",
       .shape = string_shape(),
       .required = true},
      {.name = "field",
       .doc = "the name of the images' bytes in a batch",
       .shape = string_shape(),
       .default_value = "image"},
      optional_key("the images' field, if an entry need not have a file_name; NAME_present tells "
                   "which have one"),
  });
}

Shape webdataset_shape() {
  Shape shards = any_of({string_shape(), list_shape(string_shape())});
  shards.expected = "a path such as \"train-{000..129}.tar\", or a list of paths";
  Shape shape = map_shape({
      {.name = "shards",
       .doc = "the tar files in their order: braces as in \"train-{000..129}.tar\", or * ? [a-z], "
              "whose matches are sorted",
       .shape = std::move(shards),
       .required = true},
      {.name = "fields",
       .doc =
           "the parts of a sample by the field that each becomes: suffixes, of which the first "
           "that a sample has counts, such as \"jpg;jpeg;png\"; cls, class, id, index are labels",
       .shape = named_shape(string_shape()),
       .required = true},
      {.name = "index",
       .doc = "values that are read when the index is made, so that select can use them: "
              "SUFFIX#POINTER, such as \"json#/width\"",
       .shape = named_shape(string_shape()),
       .nullable = true},
      {.name = "classes",
       .doc = "the class names in index order, where cls holds names: a list, a file with one name "
              "a line, or {from: PIPELINE}",
       .shape = classes_shape(),
       .nullable = true},
      {.name = "missing",
       .doc =
           "a sample that lacks one of the fields that are not optional: an error when the index "
           "is made, or no item",
       .shape = choice_shape({"error", "skip"}),
       .default_value = "error"},
      optional_key("fields, also of 'index', that a sample need not have; NAME_present tells which "
                   "have one"),
  });
  return shape;
}

Shape split_shape() {
  Shape part = choice_shape({"train", "val", "test"});
  part.known_as = "part";
  Shape split = map_shape({{.name = "part",
                            .doc = "which part this pipeline has",
                            .shape = std::move(part),
                            .default_value = "train"},
                           {.name = "val",
                            .doc = "the share of the items that is val",
                            .shape = float_shape(0, 1),
                            .default_value = 0.0},
                           {.name = "test",
                            .doc = "the share of the items that is test",
                            .shape = float_shape(0, 1),
                            .default_value = 0.0},
                           {.name = "by",
                            .doc = "what decides",
                            .shape = choice_shape({"hash"}),
                            .default_value = "hash"}});
  split.expected = "a map such as {part: train, val: 0.2}";
  split.known_as = "split";
  return split;
}

Shape select_shape() {
  return map_shape({
      {.name = "where",
       .doc = "a condition on what the listing knows: \"width >= 64 and label in ['cat', 'dog']\"",
       .shape = string_shape(),
       .nullable = true},
      {.name = "split",
       .doc = "a part of the items by a hash of their names, so that each stays in its part",
       .shape = split_shape(),
       .nullable = true},
      {.name = "skip",
       .doc = "so many items at the front are left out",
       .shape = int_shape(0, kUnbounded),
       .nullable = true},
      {.name = "take",
       .doc = "at most so many items",
       .shape = int_shape(1, kUnbounded),
       .nullable = true},
  });
}

Shape python_shape() {
  std::vector<Key> keys;
  for (const ParamInfo& param : dataset_params()) keys.push_back(key_of(param));
  return map_shape(std::move(keys));
}

Shape source_shape() {
  Shape shape;
  shape.kind = Shape::Kind::kTagged;
  shape.noun = "source";
  shape.keys = {
      {.name = "files", .doc = "each file below a directory is an item", .shape = files_shape()},
      {.name = "table", .doc = "each row of a table is an item", .shape = table_shape()},
      {.name = "coco",
       .doc = "each image of a COCO annotation file is an item, with its boxes",
       .shape = coco_shape()},
      {.name = "webdataset",
       .doc = "members of tar shards that have one key are an item",
       .shape = webdataset_shape()},
      {.name = "python",
       .doc = "each item of a dataset of your own, such as a torch Dataset, is an item",
       .shape = python_shape()}};
  shape.beside = {
      {.name = "select",
       .doc = "which of the items the pipeline has; not given: all",
       .shape = select_shape(),
       .nullable = true},
      {.name = "clips",
       .doc = "items are clips of the source's videos, so many frames each; not given: "
              "whole files",
       .shape = clips_shape(),
       .nullable = true},
      {.name = "windows",
       .doc = "items are windows of the source's sound files, so many seconds each, or whole "
              "sounds of known length; not given: whole files",
       .shape = windows_shape(),
       .nullable = true}};
  shape.known_as = shape.noun;
  for (Key& key : shape.keys) key.shape.known_as = key.name;
  for (Key& key : shape.beside) key.shape.known_as = key.name;
  return shape;
}

Shape shuffle_shape() {
  Shape order = choice_shape({"none", "global"});
  order.expected = kOrders;
  order.known_as = "shuffle";
  Shape block = map_shape({
      {.name = "block",
       .doc = "items that stay together on the medium and are read as one",
       .shape = int_shape(1, kUnbounded),
       .required = true},
      {.name = "interleave",
       .doc = "blocks that are mixed with each other",
       .shape = int_shape(1, 65536),
       .default_value = 16},
  });
  block.known_as = "shuffle";
  Shape bucket = map_shape({
      {.name = "by",
       .doc = "the field that holds the items' lengths, a number that the source knows of each",
       .shape = string_shape(),
       .required = true},
      {.name = "window",
       .doc = "positions whose rows are put in order together",
       .shape = int_shape(2, 1 << 20),
       .default_value = 8192},
      {.name = "run",
       .doc = "rows of like length that stand next to each other; not given: 4 times batch.size as "
              "it is applied, whatever the batch size of a job",
       .shape = int_shape(1, 1 << 20),
       .nullable = true},
  });
  Shape global = map_shape({
      {.name = "bucket",
       .doc = "items of like length stand next to each other, so that batches need little padding",
       .shape = std::move(bucket),
       .required = true},
  });
  Shape by_length = map_shape({{.name = "global",
                                .doc = "a permutation of all items, but for their lengths",
                                .shape = std::move(global),
                                .required = true}});
  Shape shape = any_of({std::move(order), std::move(block), std::move(by_length)});
  shape.expected = kOrders;
  return shape;
}

Shape repeat_shape() {
  return map_shape({
      {.name = "rows",
       .doc = "so many of each item",
       .shape = int_shape(1, Repeat::kMostRows),
       .required = true},
      {.name = "adjacent",
       .doc = "the rows of an item lie in one batch, one after the other; false: rows are shuffled "
              "as if each were an item of its own",
       .shape = bool_shape(),
       .default_value = true},
  });
}

Shape stages_shape(const Registry& registry) {
  Shape stage;
  stage.kind = Shape::Kind::kTagged;
  stage.noun = "op";
  stage.otherwise =
      "for what is not built in there is Loader(..., map=), see 'A function on each batch' in "
      "docs/python.md";
  stage.bare_ok = true;
  stage.expected = "an op's name or a map of an op's name to its parameters";
  for (const OpInfo& op : registry.ops()) {
    Key key{.name = op.name, .doc = op.doc, .shape = map_shape({})};
    key.shape.known_as = op.name;
    for (const ParamInfo& param : op.params) {
      key.shape.keys.push_back(key_of(param));
      key.shape.keys.back().shape.known_as = param.name;
      if (param.name == "size") key.shape.alone = param.name;
    }
    key.shape.keys.push_back({.name = "concurrency",
                              .doc = "samples that may be in this stage at once; not given: as "
                                     "many as there are workers",
                              .shape = int_shape(1, 4096),
                              .nullable = true});
    stage.keys.push_back(std::move(key));
  }
  Shape stages = list_shape(std::move(stage));
  stages.expected = "a list of stages";
  stages.min_items = 1;
  stages.max_items = kMaxStages;
  return stages;
}

Shape collate_shape() {
  const Shape kind = choice_shape({"stack", "ragged", "bytes", "pad"});
  Shape details = map_shape({
      {.name = "kind",
       .doc = "stack: rows of one shape; ragged: each row as it is; bytes: one string of bytes a "
              "row; pad: rows filled up to the largest of the batch",
       .shape = kind,
       .nullable = true},
      {.name = "pad",
       .doc = "what rows are filled up with",
       .shape = float_shape(-kUnbounded, kUnbounded),
       .nullable = true},
      {.name = "multiple_of",
       .doc = "padded rows are as long as the longest, rounded up to a multiple of this",
       .shape = int_shape(1, 65536),
       .nullable = true},
      {.name = "max_bytes",
       .doc = "what one row may take; a larger one is an error of its item",
       .shape = bytes_shape(),
       .nullable = true},
  });
  Shape shape = any_of({kind, std::move(details)});
  shape.expected = "stack, ragged, bytes, pad or a map such as {pad: 0, multiple_of: 8}";
  return shape;
}

Key batch_key() {
  Key key{.name = "batch",
          .doc = "what a batch holds: at least its size",
          .shape = map_shape({
              {.name = "size",
               .doc = "rows of one batch of one shard",
               .shape = int_shape(1, 65536),
               .required = true},
              {.name = "last",
               .doc = "what becomes of an epoch's tail that does not fill a step of all shards",
               .shape = choice_shape({"drop", "pad", "keep"}),
               .default_value = "drop"},
              {.name = "layout",
               .doc = "how the pixels of an image lie in memory; N is the row",
               .shape = choice_shape({"NCHW", "NHWC"}),
               .default_value = "NCHW"},
              {.name = "max_bytes",
               .doc = "what a field of varying size (encoded bytes) may take in one batch; such "
                      "fields need it",
               .shape = bytes_shape(),
               .nullable = true},
              {.name = "collate",
               .doc = "how the rows of a field lie in a batch, by the field's name, where that is "
                      "not as its kind has it",
               .shape = named_shape(collate_shape()),
               .nullable = true},
          }),
          .required = true};
  key.shape.known_as = "batch";
  return key;
}

Key delivery_key() {
  Key key = section(
      "delivery", "how batches reach the training processes",
      {
          {.name = "device",
           .doc = "the memory that batches lie in. cpu: main memory, from which a loader "
                  "with device= copies them by itself; cuda: the daemon copies them to "
                  "the GPU that a loader names, and all ranks on it share them",
           .shape = choice_shape({"cpu", "cuda"}),
           .default_value = "cpu"},
          {.name = "on_unavailable",
           .doc = "with device: cuda, where the daemon cannot deliver to a loader's GPU, or "
                  "the loader names none: fail (the default): its attach is refused; host: "
                  "its batches lie in main memory",
           .shape = choice_shape({"fail", "host"})},
          {.name = "prefetch",
           .doc = "batches that one consumer may hold or have waiting",
           .shape = int_shape(2, 64),
           .default_value = 4},
          {.name = "absent_replica",
           .doc = "while one of a shard's replicas is away: the others wait for it once "
                  "all slots are full, or go on without it",
           .shape = choice_shape({"wait", "go_on"}),
           .default_value = "wait"},
      });
  key.shape.known_as = key.name;
  return key;
}

Key cache_key() {
  return {
      .name = "cache",
      .doc = "what of the items is kept for later epochs and other jobs; not given: nothing",
      .shape = map_shape({
          {.name = "form",
           .doc = "decoded: whole images as pixels, before any crop; coefficients: JPEG's "
                  "coefficients, a third of the pixels' size, and other images encoded; encoded: "
                  "the fetched bytes",
           .shape = choice_shape({kCacheForms.begin(), kCacheForms.end()}),
           .default_value = "decoded"},
          {.name = "size",
           .doc = "what it may take; once it is full, what came first stays",
           .shape = bytes_shape(),
           .required = true},
          {.name = "where",
           .doc = "the daemon's memory, or a file in the daemon's cache.dir",
           .shape = choice_shape({kCacheWheres.begin(), kCacheWheres.end()}),
           .default_value = "ram"},
      }),
      .nullable = true};
}

Key on_error_key() {
  return section(
      "on_error", "what happens to items that cannot be read or decoded",
      {
          {.name = "decode",
           .doc = "corrupt items: replaced by another one within the budget, or the job fails",
           .shape = choice_shape({"replace", "fail"}),
           .default_value = "replace"},
          section("io", "storage that fails for the moment",
                  {{.name = "retry",
                    .doc = "tries after the first one, with growing pauses; then the job fails",
                    .shape = int_shape(0, 100),
                    .default_value = 5}}),
          section("budget", "how many items may be replaced before the job fails",
                  {
                      {.name = "fraction",
                       .doc = "of the dataset's items",
                       .shape = float_shape(0, 1),
                       .default_value = 0.01},
                      {.name = "min",
                       .doc = "so many at least, however small the dataset",
                       .shape = int_shape(0, kUnbounded),
                       .default_value = 100},
                  }),
      });
}

}  // namespace

Shape pipeline_shape(const Registry& registry) {
  Shape shape = map_shape({
      {.name = "pipeline",
       .doc = "the name by which training processes ask for it",
       .shape = name_shape(),
       .required = true},
      {.name = "seed",
       .doc = "of the order and of every random draw",
       .shape = int_shape(0, kUnbounded),
       .default_value = 0},
      {.name = "source",
       .doc = "where items come from, such as {files: {root: DIRECTORY}}",
       .shape = source_shape(),
       .required = true},
      {.name = "shuffle",
       .doc =
           "the order of items in an epoch; not given: none, and {block: 512, interleave: 16} of "
           "a webdataset",
       .shape = shuffle_shape(),
       .nullable = true},
      {.name = "repeat",
       .doc = "how often each item stands in an epoch, as rows with draws of their own; not given: "
              "once",
       .shape = repeat_shape(),
       .nullable = true},
      {.name = "stages",
       .doc = "what is done to an item, in order; [fetch] alone delivers encoded bytes",
       .shape = stages_shape(registry),
       .required = true},
      batch_key(),
      delivery_key(),
      on_error_key(),
      cache_key(),
  });
  shape.also = {"extends", "vars"};
  shape.known_as = "pipeline";
  return shape;
}

std::vector<Key> surface_keys() {
  Shape vars;
  vars.kind = Shape::Kind::kScalars;
  return {
      {.name = "extends",
       .doc = "a file that this one is laid over: maps merge, all else replaces",
       .shape = string_shape(),
       .nullable = true},
      {.name = "vars", .doc = "names for values, used as ${NAME}", .shape = std::move(vars)},
  };
}

}  // namespace spdld::spec
