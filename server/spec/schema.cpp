// SPDX-License-Identifier: Apache-2.0
#include "spec/schema.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "spec/daemon_shape.h"
#include "spec/pipeline_shape.h"
#include "spec/shape.h"

namespace spdld::spec {
namespace {

using Kind = Shape::Kind;
using Json = nlohmann::json;

constexpr const char* kFieldPattern = "^[A-Za-z][A-Za-z0-9_]{0,46}$";

// What the maps of a whole file must have: {required, properties: {KEY: the same below it}}, or {}.
// Lists and alternatives see to themselves.
Json required_of(const Shape& shape) {
  if (shape.kind != Kind::kMap && shape.kind != Kind::kTagged) return Json::object();
  Json schema = Json::object();
  for (const Key& key : shape.keys) {
    if (key.required) schema["required"].push_back(key.name);
    Json below = required_of(key.shape);
    if (!below.empty()) schema["properties"][key.name] = std::move(below);
  }
  return schema;
}

// Writes shapes out as JSON Schema. With `variables`, wherever a number or the like may stand, so
// may a text with ${...}.
class SchemaWriter {
 public:
  explicit SchemaWriter(bool variables) : variables_(variables) {}

  // Of a file that may be a part: its maps may lack what required_of() asks for.
  Json write_part(const Shape& shape) const {
    Json schema = write(shape);
    allow_missing(schema, shape);
    return schema;
  }

  Json write(const Shape& shape) const {
    switch (shape.kind) {
      case Kind::kBool: return or_variable({{"type", "boolean"}});
      case Kind::kInt: return or_variable(with_bounds({{"type", "integer"}}, shape));
      case Kind::kFloat: return or_variable(with_bounds({{"type", "number"}}, shape));
      case Kind::kString:
        if (shape.choices.empty()) return {{"type", "string"}, {"minLength", 1}};
        return or_variable({{"enum", shape.choices}});
      case Kind::kName:
        return or_variable(
            {{"type", "string"}, {"pattern", "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"}});
      case Kind::kField: return or_variable({{"type", "string"}, {"pattern", kFieldPattern}});
      case Kind::kBytes: return write_bytes(shape);
      case Kind::kPercent:
        return or_variable({{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?%$"}});
      case Kind::kList: return write_list(shape);
      case Kind::kMap: return write_map(shape);
      case Kind::kTagged: return write_tagged(shape);
      case Kind::kAnyOf: return write_any_of(shape);
      case Kind::kNamed:
        return {{"type", "object"},
                {"additionalProperties", write(shape.of.front())},
                {"propertyNames", {{"pattern", kFieldPattern}}}};
      case Kind::kObject: return {{"type", {"object", "null"}}};
      case Kind::kScalars:
        return {{"type", {"object", "null"}},
                {"additionalProperties", {{"type", {"string", "number", "boolean", "null"}}}}};
    }
    return Json::object();
  }

 private:
  static void allow_missing(Json& schema, const Shape& shape) {
    if (shape.kind != Kind::kMap && shape.kind != Kind::kTagged) return;
    schema.erase("required");
    for (const Key& key : shape.keys) {
      // What is written as an alternative stays whole.
      Json& below = schema["properties"][key.name];
      if (below.contains("properties")) allow_missing(below, key.shape);
    }
  }

  Json or_variable(Json schema) const {
    if (!variables_) return schema;
    Json variable = {{"type", "string"}, {"pattern", "\\$\\{.+\\}"}};
    return {{"anyOf", Json::array({std::move(schema), std::move(variable)})}};
  }

  static Json with_bounds(Json schema, const Shape& shape) {
    // An integer bound without a fraction reads better.
    const auto number = [](double bound) {
      return bound == static_cast<double>(static_cast<std::int64_t>(bound))
                 ? Json(static_cast<std::int64_t>(bound))
                 : Json(bound);
    };
    constexpr double kLargest = 0x1p53;
    if (shape.min >= -kLargest) schema["minimum"] = number(shape.min);
    if (shape.max <= kLargest) schema["maximum"] = number(shape.max);
    return schema;
  }

  Json write_bytes(const Shape& shape) const {
    Json number = {{"type", "integer"}, {"minimum", shape.min > 0 ? 1 : 0}};
    Json text = {{"type", "string"}, {"pattern", "^[0-9.]+ ?([kMGT]?B|[KMGT]iB)?$"}};
    return or_variable({{"anyOf", Json::array({std::move(number), std::move(text)})}});
  }

  Json write_list(const Shape& shape) const {
    Json element = write(shape.of.front());
    Json list = {{"type", "array"}, {"items", element}};
    if (shape.min_items > 0) list["minItems"] = shape.min_items;
    if (shape.max_items != std::numeric_limits<std::size_t>::max()) {
      list["maxItems"] = shape.max_items;
    }
    if (!shape.scalar_ok) return list;
    return {{"anyOf", Json::array({std::move(element), std::move(list)})}};
  }

  Json write_key(const Key& key) const {
    Json schema = write(key.shape);
    if (key.nullable) {
      schema = {{"anyOf", Json::array({std::move(schema), Json{{"type", "null"}}})}};
    }
    schema["description"] = key.doc;
    if (key.default_value) schema["default"] = *key.default_value;
    return schema;
  }

  Json write_properties(const std::vector<Key>& keys) const {
    Json properties = Json::object();
    for (const Key& key : keys) properties[key.name] = write_key(key);
    return properties;
  }

  Json write_map(const Shape& shape) const {
    Json required = Json::array();
    for (const Key& key : shape.keys) {
      if (key.required) required.push_back(key.name);
    }
    Json map = {{"type", "object"},
                {"properties", write_properties(shape.keys)},
                {"additionalProperties", false}};
    if (required.empty()) {
      map["type"] = {"object", "null"};
    } else {
      map["required"] = std::move(required);
    }
    for (const Key& key : shape.keys) {
      if (key.name == shape.alone) return {{"anyOf", Json::array({map, write(key.shape)})}};
    }
    return map;
  }

  Json write_tagged(const Shape& shape) const {
    Json tagged = {{"type", "object"},
                   {"properties", write_properties(shape.keys)},
                   {"additionalProperties", false},
                   {"minProperties", 1},
                   {"maxProperties", 1 + shape.beside.size()}};
    for (const Key& key : shape.beside) tagged["properties"][key.name] = write_key(key);
    if (!shape.bare_ok) return tagged;
    Json names = Json::array();
    for (const Key& key : shape.keys) names.push_back(key.name);
    return {{"anyOf", Json::array({Json{{"enum", std::move(names)}}, std::move(tagged)})}};
  }

  Json write_any_of(const Shape& shape) const {
    Json alternatives = Json::array();
    for (const Shape& alternative : shape.of) alternatives.push_back(write(alternative));
    return {{"anyOf", std::move(alternatives)}};
  }

  bool variables_;
};

Json titled(Json schema, const std::string& title) {
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = title;
  return schema;
}

}  // namespace

Json pipeline_schema(const Registry& registry) {
  Shape shape = pipeline_shape(registry);
  for (Key& key : surface_keys()) shape.keys.push_back(std::move(key));
  Json schema = SchemaWriter(true).write_part(shape);
  // A text that extends another may leave out what that one says.
  schema["if"] = {{"required", {"extends"}}};
  schema["then"] = true;
  schema["else"] = required_of(shape);
  return titled(std::move(schema), "spdld pipeline");
}

Json daemon_schema() {
  return titled(SchemaWriter(false).write(daemon_shape()), "spdld daemon configuration");
}

}  // namespace spdld::spec
