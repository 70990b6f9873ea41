// SPDX-License-Identifier: Apache-2.0
#include "spec/read_source.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/text/ascii.h"
#include "base/text/near_names.h"
#include "op/call_op.h"
#include "op/webdataset_suffix.h"
#include "spec/extends.h"
#include "spec/read_clips.h"
#include "spec/scalar.h"
#include "spec/shape.h"

namespace spdld::spec {
namespace {

using Json = nlohmann::json;

constexpr const char* kCocoFields[] = {"image_id", "width", "height",  "boxes",
                                       "labels",   "ids",   "iscrowd", "area"};

// `name` is what messages call it.
Result<ClassesSpec> read_classes(const Node& node, const std::string& name, Json& value) {
  ClassesSpec classes;
  if (value.is_array()) {
    classes.kind = ClassesSpec::Kind::kList;
    classes.names = value.get<std::vector<std::string>>();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < classes.names.size(); ++i) {
      if (seen.insert(classes.names[i]).second) continue;
      return tl::unexpected<Status>(
          node.items[i].fail(name + ": the class '" + classes.names[i] + "' is there twice"));
    }
  } else if (value.is_string()) {
    classes.kind = ClassesSpec::Kind::kFile;
    SPDLD_ASSIGN(classes.path, absolute_path(node, name, value.get<std::string>()));
    value = classes.path;
  } else {
    classes.kind = ClassesSpec::Kind::kPipeline;
    classes.pipeline = text_of(value, "from");
  }
  return classes;
}

Result<std::string> directory_path(const Node& node, const std::string& text,
                                   const std::string& name) {
  if (text.find("://") != std::string::npos)
    return tl::unexpected<Status>(node.fail(
        name + ": " + quote(text) +
        " is an address, and this version reads directories alone: copy it to this machine, or "
        "mount it there"));
  return absolute_path(node, name, text);
}

// The path under `key`, which becomes absolute in `json`, too, so that the canonical text has it.
Result<std::string> read_path(const Node& at, Json& json, const char* key,
                              const std::string& name) {
  SPDLD_ASSIGN(std::string path, directory_path(*at.find(key), text_of(json, key), name));
  json[key] = path;
  return path;
}

// The fields under `optional` of the source called `name`. `may_lack`: those that can be optional;
// `others`: all other fields that there are.
Result<std::set<std::string>> read_optional(const Node& at, Json& json, const std::string& name,
                                            const std::vector<std::string>& may_lack,
                                            const std::set<std::string>& others) {
  std::set<std::string> optional;
  const auto given = json.find("optional");
  if (given == json.end()) return optional;
  const Node& node = *at.find("optional");
  if (given->is_string()) *given = Json::array({*given});
  for (std::size_t i = 0; i < given->size(); ++i) {
    const auto field = (*given)[i].get<std::string>();
    const Node& place = node.items.empty() ? node : node.items[i];
    const auto is = [&](const std::string& other) { return other == field; };
    const std::string key = name + ".optional: ";
    if (may_lack.empty())
      return tl::unexpected<Status>(
          place.fail(key + "only companions can be optional, and there are none"));
    if (std::none_of(may_lack.begin(), may_lack.end(), is))
      return tl::unexpected<Status>(
          place.fail(key + (others.contains(field)
                                ? "each item has " + quote(field) +
                                      ", so it is not; what "
                                      "can be optional is " +
                                      listed_names(may_lack)
                                : "there is no field " + quote(field) + hint(field, may_lack))));
    const std::string present = field + "_present";
    if (others.contains(present) || std::any_of(may_lack.begin(), may_lack.end(),
                                                [&](const auto& of) { return of == present; }))
      return tl::unexpected<Status>(
          place.fail(key + quote(present) + " tells which items have " + quote(field) +
                     ", and there is such a field: call that one something else"));
    if (!is_field_name(present))
      return tl::unexpected<Status>(place.fail(key + quote(present) +
                                               ", which tells which items have it, is too long for "
                                               "the name of a field: shorten it"));
    optional.insert(field);
  }
  return optional;
}

Result<FilesSpec> read_files(const Node& at, Json& json) {
  FilesSpec files;
  if (json.at("root").is_string()) {
    SPDLD_ASSIGN(files.root, read_path(at, json, "root", "source.files.root"));
  } else {
    const Node& roots = *at.find("root");
    std::set<std::string> seen;
    for (std::size_t i = 0; i < json["root"].size(); ++i) {
      Json& root = json["root"][i];
      SPDLD_ASSIGN(std::string path,
                   directory_path(roots.items[i], root.get<std::string>(), "source.files.root"));
      if (!seen.insert(path).second)
        return tl::unexpected<Status>(
            roots.items[i].fail("source.files.root: " + path + " is there twice"));
      root = path;
      (i == 0 ? files.root : files.more_roots.emplace_back()) = std::move(path);
    }
  }
  if (const auto exclude = json.find("exclude"); exclude != json.end()) {
    if (exclude->is_string()) *exclude = Json::array({*exclude});
    files.exclude = exclude->get<std::vector<std::string>>();
  }
  files.pattern = text_of(json, "pattern");
  const bool labelled = json.at("label") == "parent_dir";
  files.label = labelled ? FilesSpec::Label::kParentDir : FilesSpec::Label::kNone;
  files.follow_symlinks = json.at("follow_symlinks").get<bool>();
  if (json.contains("field")) {
    const Node& field = *at.find("field");
    files.field = text_of(json, "field");
    if (!is_field_name(files.field)) {
      return tl::unexpected<Status>(
          field.fail("source.files.field: " + not_a_field_name(files.field)));
    }
    if (labelled && files.field == "label") {
      return tl::unexpected<Status>(
          field.fail("source.files.field: 'label' is what label: parent_dir gives"));
    }
  }
  if (const auto companions = json.find("companions"); companions != json.end()) {
    const Node& node = *at.find("companions");
    for (const auto& [field, pattern] : companions->items()) {
      const std::string name = "source.files.companions." + field;
      if (!is_field_name(field))
        return tl::unexpected<Status>(
            node.find(field.c_str())->fail(name + ": " + not_a_field_name(field)));
      if (field == files.field || (labelled && field == "label"))
        return tl::unexpected<Status>(
            node.find(field.c_str())->fail(name + ": there is a field of that name already"));
      files.companions.push_back({.field = field, .pattern = pattern.get<std::string>()});
    }
  }
  std::vector<std::string> may_lack;
  for (const FilesSpec::Companion& companion : files.companions)
    may_lack.push_back(companion.field);
  std::set<std::string> others{files.field};
  if (labelled) others.insert("label");
  SPDLD_ASSIGN(const std::set<std::string> optional,
               read_optional(at, json, "source.files", may_lack, others));
  for (FilesSpec::Companion& companion : files.companions)
    companion.optional = optional.contains(companion.field);
  if (json.contains("classes")) {
    const Node& classes = *at.find("classes");
    if (!labelled) {
      return tl::unexpected<Status>(
          classes.fail("source.files.classes: items have no label; add 'label: parent_dir'"));
    }
    SPDLD_ASSIGN(files.classes, read_classes(classes, "source.files.classes", json["classes"]));
  }
  return files;
}

ValueType value_type(const std::string& name) {
  return name == "int64"        ? ValueType::kInt64
         : name == "float64"    ? ValueType::kFloat64
         : name == "bool"       ? ValueType::kBool
         : name == "text"       ? ValueType::kText
         : name == "json"       ? ValueType::kText
         : name == "int64_list" ? ValueType::kInt64List
                                : ValueType::kFloat64List;
}

Result<TableSpec> read_table(const Node& at, Json& json) {
  TableSpec table;
  SPDLD_ASSIGN(table.file, read_path(at, json, "file", "source.table.file"));
  if (const auto format = json.find("format"); format != json.end())
    table.format = *format == "csv"   ? TableSpec::Format::kCsv
                   : *format == "tsv" ? TableSpec::Format::kTsv
                                      : TableSpec::Format::kJsonLines;
  if (json.contains("root")) {
    SPDLD_ASSIGN(table.root, read_path(at, json, "root", "source.table.root"));
  }
  if (json.at("uri").is_string()) {
    table.uris.push_back({.field = "image", .column = text_of(json, "uri")});
  } else {
    for (const auto& [field, column] : json.at("uri").items())
      table.uris.push_back({.field = field, .column = column.get<std::string>()});
  }
  if (table.uris.empty())
    return tl::unexpected<Status>(
        at.find("uri")->fail("source.table.uri: name at least one field and its column"));
  if (const auto label = json.find("label"); label != json.end())
    table.label = TableSpec::Label{.column = label->get<std::string>()};
  if (json.contains("classes")) {
    const Node& classes = *at.find("classes");
    if (!table.label)
      return tl::unexpected<Status>(
          classes.fail("source.table.classes: items have no label; add 'label: COLUMN'"));
    SPDLD_ASSIGN(table.label->classes,
                 read_classes(classes, "source.table.classes", json["classes"]));
  }
  if (const auto values = json.find("values"); values != json.end()) {
    for (const auto& [field, column] : values->items()) {
      TableSpec::Value value;
      value.field = field;
      value.column = column.is_string() ? column.get<std::string>() : text_of(column, "column");
      if (column.is_object() && column.contains("type")) {
        const std::string type = text_of(column, "type");
        value.type = value_type(type);
        value.is_json = type == "json";
      }
      table.values.push_back(std::move(value));
    }
  }
  std::set<std::string> names;
  if (table.label) names.insert("label");
  const auto is_new = [&](const std::string& name) { return names.insert(name).second; };
  for (const TableSpec::Uri& uri : table.uris) {
    if (is_new(uri.field)) continue;
    return tl::unexpected<Status>(
        at.find("uri")->fail("source.table: the field '" + uri.field + "' is there twice"));
  }
  for (const TableSpec::Value& value : table.values) {
    if (is_new(value.field)) continue;
    return tl::unexpected<Status>(
        at.find("values")->fail("source.table: the field '" + value.field + "' is there twice"));
  }
  SPDLD_ASSIGN(const std::set<std::string> optional,
               read_optional(at, json, "source.table", {names.begin(), names.end()}, {}));
  for (TableSpec::Uri& uri : table.uris) uri.optional = optional.contains(uri.field);
  for (TableSpec::Value& value : table.values) value.optional = optional.contains(value.field);
  if (table.label) table.label->optional = optional.contains("label");
  return table;
}

Result<CocoSpec> read_coco(const Node& at, Json& json) {
  CocoSpec coco;
  SPDLD_ASSIGN(coco.annotations, read_path(at, json, "annotations", "source.coco.annotations"));
  SPDLD_ASSIGN(coco.root, read_path(at, json, "root", "source.coco.root"));
  coco.field = text_of(json, "field");
  if (!is_field_name(coco.field))
    return tl::unexpected<Status>(
        at.find("field")->fail("source.coco.field: " + not_a_field_name(coco.field)));
  for (const char* const taken : kCocoFields) {
    if (coco.field == taken)
      return tl::unexpected<Status>(at.find("field")->fail("source.coco.field: '" + coco.field +
                                                           "' is what the annotations give"));
  }
  SPDLD_ASSIGN(const std::set<std::string> optional,
               read_optional(at, json, "source.coco", {coco.field},
                             {std::begin(kCocoFields), std::end(kCocoFields)}));
  coco.optional = !optional.empty();
  return coco;
}

// What a field's suffixes are, and which fields there are so far.
struct WebdatasetReader {
  const Node& at;
  std::set<std::string> names = {};

  Status add_name(const Node& node, const std::string& field) {
    const std::string key = "source.webdataset";
    if (!is_field_name(field)) return node.fail(key + ": " + not_a_field_name(field));
    if (!names.insert(field).second)
      return node.fail(key + ": the field '" + field + "' is there twice");
    return {};
  }
};

Result<WebdatasetSpec> read_webdataset(const Node& at, Json& json) {
  WebdatasetSpec spec;
  const Node& shards = *at.find("shards");
  if (json.at("shards").is_string()) json["shards"] = Json::array({json.at("shards")});
  std::size_t number = 0;
  for (Json& pattern : json["shards"]) {
    const Node& node = shards.items.empty() ? shards : shards.items[number++];
    const std::string text = pattern.get<std::string>();
    if (text.starts_with("pipe:"))
      return tl::unexpected<Status>(
          node.fail("source.webdataset.shards: " + quote(text) +
                    " is a command, and none is run: shards are files of this machine; copy them "
                    "here, or mount where they lie"));
    if (text.find("://") != std::string::npos)
      return tl::unexpected<Status>(
          node.fail("source.webdataset.shards: " + quote(text) +
                    " is an address, and this version reads files alone: copy the shards to this "
                    "machine, or mount them there"));
    SPDLD_ASSIGN(std::string path, absolute_path(node, "source.webdataset.shards", text));
    pattern = path;
    spec.shards.push_back(std::move(path));
  }

  WebdatasetReader reader{at};
  const Node& fields = *at.find("fields");
  for (const auto& [field, value] : json.at("fields").items()) {
    const Node& node = *fields.find(field.c_str());
    SPDLD_TRY(reader.add_name(node, field));
    Result<std::vector<std::string>> suffixes = split_suffixes(value.get<std::string>());
    if (!suffixes)
      return tl::unexpected<Status>(
          node.fail("source.webdataset.fields." + field + ": " + suffixes.error().message()));
    const Result<SuffixKind> kind = suffix_kind(suffixes->front());
    if (kind && *kind != SuffixKind::kBytes) {
      spec.labels.push_back({.field = field, .suffixes = *std::move(suffixes)});
    } else {
      spec.parts.push_back({.field = field, .suffixes = *std::move(suffixes)});
    }
  }
  if (spec.parts.empty())
    return tl::unexpected<Status>(
        fields.fail("source.webdataset.fields: name at least one part that is brought, such as "
                    "{image: \"jpg;jpeg;png\"}"));
  if (const auto index = json.find("index"); index != json.end()) {
    const Node& values = *at.find("index");
    for (const auto& [field, value] : index->items()) {
      const Node& node = *values.find(field.c_str());
      SPDLD_TRY(reader.add_name(node, field));
      const std::string text = value.get<std::string>();
      const std::size_t hash = text.find('#');
      if (hash == std::string::npos || hash == 0)
        return tl::unexpected<Status>(
            node.fail("source.webdataset.index." + field + ": write SUFFIX#POINTER, such as " +
                      quote("json#" + (text.starts_with('/') ? text : "/" + text))));
      spec.index.push_back({.field = field,
                            .suffix = lower_case(text.substr(0, hash)),
                            .pointer = text.substr(hash + 1)});
    }
  }
  if (json.contains("classes")) {
    const auto named = [](const WebdatasetSpec::Label& label) {
      const Result<SuffixKind> kind = suffix_kind(label.suffixes.front());
      return kind && *kind == SuffixKind::kClass;
    };
    const Node& classes = *at.find("classes");
    if (std::none_of(spec.labels.begin(), spec.labels.end(), named))
      return tl::unexpected<Status>(
          classes.fail("source.webdataset.classes: no field is of classes; add 'label: cls' to "
                       "the fields"));
    SPDLD_ASSIGN(spec.classes, read_classes(classes, "source.webdataset.classes", json["classes"]));
  }
  const std::string missing = text_of(json, "missing");
  spec.missing =
      missing == "skip" ? WebdatasetSpec::Missing::kSkip : WebdatasetSpec::Missing::kError;
  SPDLD_ASSIGN(
      const std::set<std::string> optional,
      read_optional(at, json, "source.webdataset", {reader.names.begin(), reader.names.end()}, {}));
  for (WebdatasetSpec::Part& part : spec.parts) part.optional = optional.contains(part.field);
  for (WebdatasetSpec::Label& label : spec.labels) label.optional = optional.contains(label.field);
  for (WebdatasetSpec::IndexedValue& value : spec.index)
    value.optional = optional.contains(value.field);
  return spec;
}

Result<DatasetSpec> read_python(const Node& at, Json& json) {
  SPDLD_TRY(complete_call(at, json));
  std::map<std::string, ParamValue> params;
  for (const ParamInfo& param : dataset_params()) {
    if (const auto given = json.find(param.name); given != json.end())
      params.emplace(param.name, param_value(param, *given));
  }
  Result<DatasetSpec> dataset = read_dataset(Params(std::move(params)));
  if (!dataset) return tl::unexpected<Status>(at.fail("source." + dataset.error().message()));
  return dataset;
}

Result<SelectSpec> read_select(const Node& at, const Json& json) {
  SelectSpec select;
  if (const auto where = json.find("where"); where != json.end())
    select.where = where->get<std::string>();
  if (const auto split = json.find("split"); split != json.end()) {
    using Part = SelectSpec::Split::Part;
    const std::string part = text_of(*split, "part");
    select.split = SelectSpec::Split{.part = part == "train" ? Part::kTrain
                                             : part == "val" ? Part::kVal
                                                             : Part::kTest,
                                     .val = split->at("val").get<double>(),
                                     .test = split->at("test").get<double>()};
    if (select.split->val + select.split->test > 1)
      return tl::unexpected<Status>(
          at.find("split")->fail("source.select.split: val and test are more than 1 together"));
  }
  if (const auto skip = json.find("skip"); skip != json.end())
    select.skip = skip->get<std::uint64_t>();
  if (const auto take = json.find("take"); take != json.end())
    select.take = take->get<std::uint64_t>();
  return select;
}

}  // namespace

Status complete_call(const Node& node, Json& params) {
  const auto call = params.find("call");
  if (call == params.end()) return {};
  const std::string text = call->get<std::string>();
  const bool is_file = text.find(".py:") != std::string::npos;
  if (!is_file || text.starts_with('/')) return {};
  const std::string directory = node.document ? node.document->directory : "";
  if (directory.empty())
    return node.fail("call: '" + text +
                     "' is a file beside this text, which is in no file itself: write its whole "
                     "path");
  *call = (std::filesystem::path(directory) / text).lexically_normal().string();
  return {};
}

Result<SourceSpec> read_source(const Node& node, Json& value) {
  SourceSpec source;
  if (value.contains("files")) {
    SPDLD_ASSIGN(source.items, read_files(*node.find("files"), value["files"]));
  } else if (value.contains("coco")) {
    SPDLD_ASSIGN(source.items, read_coco(*node.find("coco"), value["coco"]));
  } else if (value.contains("webdataset")) {
    SPDLD_ASSIGN(source.items, read_webdataset(*node.find("webdataset"), value["webdataset"]));
  } else if (value.contains("python")) {
    SPDLD_ASSIGN(source.items, read_python(*node.find("python"), value["python"]));
  } else {
    SPDLD_ASSIGN(source.items, read_table(*node.find("table"), value["table"]));
  }
  if (value.contains("select")) {
    SPDLD_ASSIGN(source.select, read_select(*node.find("select"), value["select"]));
  }
  if (value.contains("clips") && value.contains("windows"))
    return tl::unexpected<Status>(
        node.find("windows")->fail("source.windows: items are clips already; write 'audio: NAME' "
                                   "in 'clips' for their sound, or leave 'clips' out"));
  for (const char* const key : {"clips", "windows"}) {
    if (!value.contains(key)) continue;
    if (std::holds_alternative<DatasetSpec>(source.items))
      return tl::unexpected<Status>(node.find(key)->fail(
          std::string("source.") + key +
          ": the items of a dataset of your own are no files: have it cut them itself"));
    SPDLD_ASSIGN(source.clips,
                 read_clips(*node.find(key), value[key], std::string("source.") + key));
  }
  return source;
}

}  // namespace spdld::spec
