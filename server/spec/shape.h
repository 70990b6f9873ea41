// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/params.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

struct Key;

// What one value of a file may be. A tree of them is the one place where the keys of a file stand,
// with their bounds, defaults and words: check() holds a text against it, and schema.h writes
// it out for editors. Plain values, built once per parse.
struct Shape {
  enum class Kind {
    kBool,
    kInt,
    kFloat,
    kString,
    kName,     // is_name()
    kField,    // is_field_name()
    kBytes,    // a size: "64MiB"
    kPercent,  // "25%"
    kList,     // of of[0]
    kMap,      // with `keys`
    kTagged,   // a map of one key that says what its value is: one of `keys`
    kAnyOf,    // one of `of`; their nodes differ in kind, or they are scalars, or maps whose keys
               // differ
    kNamed,    // a map of names of fields to of[0]
    kScalars,  // a map of names to scalars, which check() leaves alone
    kObject,   // a map of texts to anything, as JSON has it
  };

  Kind kind = Kind::kMap;
  std::string expected = {};  // "an integer": for messages; empty: by the kind
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  std::size_t min_items = 0;
  std::size_t max_items = std::numeric_limits<std::size_t>::max();
  bool scalar_ok = false;  // kList: one element may stand without the list
  bool ordered = false;    // kNamed: as a list of pairs, in the order of the text
  bool bare_ok = false;    // kTagged: the key alone stands for an empty map
  std::vector<Shape> of;
  std::vector<Key> keys;
  std::vector<Key> beside;  // kTagged: keys that may stand beside the one
  // kMap: the key whose value may stand without the map: "center_crop: 224".
  std::string alone = {};
  // kMap: keys that are there and are read before.
  std::vector<std::string> also = {};
  // kMap, kTagged, kString: as what instead_of_argument() knows the keys and choices of other
  // tools; empty: as none.
  std::string known_as = {};
  std::string noun = {};  // kTagged: what a key is, "op"
  // kTagged: what else there is for those who need what none of the keys is. Where it is given, a
  // key of much the same letters is another thing.
  std::string otherwise = {};
};

// One key of a map. Neither required nor with a default: absent unless given.
struct Key {
  std::string name;
  std::string doc;
  Shape shape;
  std::optional<nlohmann::json> default_value = std::nullopt;
  bool required = false;
  bool nullable = false;  // null means: absent
};

// The node as JSON with every default filled in, or the first error in the text's order (keys that
// are missing come after those that are there). `name` is what messages call the value:
// "batch.size". Sizes become bytes, percentages fractions, a tagged value {tag: value}.
Result<nlohmann::json> check(const Node& node, const Shape& shape, const std::string& name);

// "an integer", "true or false", "a list of numbers".
std::string expected_text(const Shape& shape);

// The shape of an op's parameter.
Key key_of(const ParamInfo& param);
// A checked value as the op takes it; `value` came out of check() by key_of(param).
ParamValue param_value(const ParamInfo& param, const nlohmann::json& value);

// Shorthands for the tables.
Shape bool_shape();
inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();
Shape int_shape(double min, double max);
Shape float_shape(double min, double max);
Shape string_shape();
Shape name_shape();
Shape field_shape();
Shape choice_shape(std::vector<std::string> choices);
Shape bytes_shape();
Shape bytes_or_zero_shape();
Shape percent_shape();
Shape list_shape(Shape element);
Shape map_shape(std::vector<Key> keys);
Shape named_shape(Shape element);
Shape object_shape();
Shape any_of(std::vector<Shape> alternatives);

// A section whose keys all have defaults or may be absent, and which may be left out itself.
Key section(std::string name, std::string doc, std::vector<Key> keys);

}  // namespace spdld::spec
