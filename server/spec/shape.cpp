// SPDX-License-Identifier: Apache-2.0
#include "spec/shape.h"

#include <utility>

namespace spdld::spec {
namespace {

using Kind = Shape::Kind;
using Json = nlohmann::json;

Shape shape_of(Kind kind) {
  Shape shape;
  shape.kind = kind;
  return shape;
}

Shape bounded(Kind kind, double min, double max) {
  Shape shape = shape_of(kind);
  shape.min = min;
  shape.max = max;
  return shape;
}

Shape shape_of(const ParamInfo& param) {
  const auto list_of = [&](Kind element) {
    Shape list = list_shape(bounded(element, param.min, param.max));
    list.min_items = param.min_items;
    list.max_items = param.max_items;
    list.scalar_ok = param.scalar_ok;
    return list;
  };
  switch (param.type) {
    case ParamType::kBool: return bool_shape();
    case ParamType::kInt: return int_shape(param.min, param.max);
    case ParamType::kBytes: return bytes_or_zero_shape();
    case ParamType::kFloat: return float_shape(param.min, param.max);
    case ParamType::kString: return param.new_field ? field_shape() : choice_shape(param.choices);
    case ParamType::kIntList: return list_of(Kind::kInt);
    case ParamType::kFloatList: return list_of(Kind::kFloat);
    case ParamType::kStringList: return list_of(Kind::kString);
    case ParamType::kFieldMap: {
      std::vector<Key> keys;
      for (const ParamInfo& key : param.keys) keys.push_back(key_of(key));
      Shape map = named_shape(any_of({string_shape(), map_shape(std::move(keys))}));
      map.ordered = param.ordered;
      return map;
    }
    case ParamType::kObject: return object_shape();
  }
  return string_shape();
}

// A text alone is the first of the keys. What is not given and has no default is left out.
FieldMap field_map(const ParamInfo& param, const Json& value) {
  const auto text = [](const Json& of) {
    return of.is_string() ? of.get<std::string>() : of.dump();
  };
  FieldMap map;
  const auto add = [&](const std::string& field, const Json& given) {
    auto& said = map.emplace_back(field, std::map<std::string, std::string>()).second;
    for (const ParamInfo& key : param.keys) {
      const bool first = &key == &param.keys.front();
      if (given.is_object()) {
        if (given.contains(key.name) && !given.at(key.name).is_null())
          said[key.name] = text(given.at(key.name));
      } else if (first) {
        said[key.name] = given.get<std::string>();
      } else if (key.default_value) {
        said[key.name] = std::get<std::string>(*key.default_value);
      }
    }
  };
  if (value.is_array()) {
    for (const Json& pair : value) add(pair.at(0).get<std::string>(), pair.at(1));
  } else {
    for (const auto& [field, given] : value.items()) add(field, given);
  }
  return map;
}

// As check() would have made it: a table may write 1 where 1.0 is meant.
Json default_json(const ParamInfo& param) {
  Json value = std::visit([](const auto& held) { return Json(held); }, *param.default_value);
  if (param.type == ParamType::kFloat && value.is_number()) return value.get<double>();
  if (param.type == ParamType::kObject) return Json::parse(value.get<std::string>());
  return value;
}

}  // namespace

Key key_of(const ParamInfo& param) {
  Key key{.name = param.name, .doc = param.doc, .shape = shape_of(param)};
  if (param.default_value) key.default_value = default_json(param);
  key.nullable = param.nullable;
  key.required = !param.default_value && !param.nullable;
  return key;
}

ParamValue param_value(const ParamInfo& param, const Json& value) {
  switch (param.type) {
    case ParamType::kBool: return value.get<bool>();
    case ParamType::kInt:
    case ParamType::kBytes: return value.get<std::int64_t>();
    case ParamType::kFloat: return value.get<double>();
    case ParamType::kString: return value.get<std::string>();
    case ParamType::kIntList: return value.get<std::vector<std::int64_t>>();
    case ParamType::kFloatList: return value.get<std::vector<double>>();
    case ParamType::kStringList: return value.get<std::vector<std::string>>();
    case ParamType::kFieldMap: return field_map(param, value);
    case ParamType::kObject: return value.dump();
  }
  return false;
}

Shape bool_shape() { return shape_of(Kind::kBool); }
Shape int_shape(double min, double max) { return bounded(Kind::kInt, min, max); }
Shape float_shape(double min, double max) { return bounded(Kind::kFloat, min, max); }
Shape string_shape() { return shape_of(Kind::kString); }
Shape name_shape() { return shape_of(Kind::kName); }
Shape field_shape() { return shape_of(Kind::kField); }
Shape choice_shape(std::vector<std::string> choices) {
  Shape shape = string_shape();
  shape.choices = std::move(choices);
  return shape;
}
Shape bytes_shape() { return bounded(Kind::kBytes, 1, 0x1p63); }
Shape bytes_or_zero_shape() { return bounded(Kind::kBytes, 0, 0x1p63); }
Shape percent_shape() { return shape_of(Kind::kPercent); }
Shape list_shape(Shape element) {
  Shape shape = shape_of(Kind::kList);
  shape.of.push_back(std::move(element));
  return shape;
}
Shape map_shape(std::vector<Key> keys) {
  Shape shape = shape_of(Kind::kMap);
  shape.keys = std::move(keys);
  return shape;
}
Shape named_shape(Shape element) {
  Shape shape = shape_of(Kind::kNamed);
  shape.of.push_back(std::move(element));
  return shape;
}
Shape object_shape() { return shape_of(Kind::kObject); }
Shape any_of(std::vector<Shape> alternatives) {
  Shape shape = shape_of(Kind::kAnyOf);
  shape.of = std::move(alternatives);
  return shape;
}

Key section(std::string name, std::string doc, std::vector<Key> keys) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .shape = map_shape(std::move(keys)),
          .default_value = Json::object()};
}

}  // namespace spdld::spec
