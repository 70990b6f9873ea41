// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "base/text/ascii.h"
#include "base/text/foreign_names.h"
#include "base/text/near_names.h"
#include "spec/python_call.h"
#include "spec/scalar.h"
#include "spec/shape.h"

namespace spdld::spec {
namespace {

using Kind = Shape::Kind;
using Json = nlohmann::json;

// "batch.size: " in front of what is wrong; nothing for the whole file.
std::string prefix(const std::string& name) { return name.empty() ? "" : name + ": "; }

std::string member(const std::string& map, const std::string& key) {
  return map.empty() ? key : map + "." + key;
}

tl::unexpected<Status> fail(const Node& node, const std::string& name, const std::string& what) {
  return tl::unexpected<Status>(node.fail(prefix(name) + what));
}

std::string plural(const Shape& shape) {
  switch (shape.kind) {
    case Kind::kInt: return "integers";
    case Kind::kFloat: return "numbers";
    default: return "texts";
  }
}

tl::unexpected<Status> wrong_kind(const Node& node, const Shape& shape, const std::string& name) {
  return fail(node, name, "expected " + expected_text(shape) + ", got " + node.describe());
}

std::string out_of_bounds(double min, double max, const Node& node) {
  const std::string end = node.shown() ? ", got " + node.text : "";
  if (std::isinf(max)) return "must be at least " + show_number(min) + end;
  if (std::isinf(min)) return "must be at most " + show_number(max) + end;
  return "must be " + show_number(min) + " to " + show_number(max) + end;
}

std::vector<std::string> names_of(const std::vector<Key>& keys) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const Key& key : keys) names.push_back(key.name);
  return names;
}

const Key* find_key(const std::vector<Key>& keys, const std::string& name) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

template <typename T>
Result<Json> check_number(const Node& node, const Shape& shape, const std::string& name,
                          std::optional<T> value) {
  if (node.quoted || !value) {
    if (node.quoted && value) {
      return fail(node, name,
                  "expected " + expected_text(shape) + ", got " + node.describe() +
                      "; leave out the quotes");
    }
    return wrong_kind(node, shape, name);
  }
  const auto number = static_cast<double>(*value);
  if (number < shape.min || number > shape.max) {
    return fail(node, name, out_of_bounds(shape.min, shape.max, node));
  }
  return Json(*value);
}

// ": write 'size: N'" for another tool's key or choice; empty: it is none that is known.
std::string way_out(const Shape& shape, std::string_view name) {
  if (shape.known_as.empty()) return "";
  const std::string_view instead = instead_of_argument(shape.known_as, name);
  return instead.empty() ? "" : ": " + std::string(instead);
}

// What to write in place of a choice that there is not. Python's are "InterpolationMode.BICUBIC".
std::string instead_of(const std::string& text, const Shape& shape) {
  const std::string plain = lower_case(std::string_view(text).substr(text.rfind('.') + 1));
  if (std::find(shape.choices.begin(), shape.choices.end(), plain) != shape.choices.end())
    return "; did you mean '" + plain + "'?";
  if (const std::string found = way_out(shape, plain); !found.empty()) return found;
  const ForeignFormat* const format = shape.known_as.empty() ? nullptr : foreign_file("x." + plain);
  return format == nullptr ? did_you_mean(text, shape.choices) : ": it is " + described(*format);
}

Result<Json> check_string(const Node& node, const Shape& shape, const std::string& name) {
  if (!shape.choices.empty()) {
    if (std::find(shape.choices.begin(), shape.choices.end(), node.text) == shape.choices.end()) {
      return fail(node, name,
                  node.describe() + " is not one of " + listed_names(shape.choices) +
                      (node.shown() ? instead_of(node.text, shape) : ""));
    }
  } else if (node.text.empty()) {
    return fail(node, name, "must not be empty");
  }
  return Json(node.text);
}

Result<Json> check_scalar(const Node& node, const Shape& shape, const std::string& name) {
  switch (shape.kind) {
    case Kind::kBool: {
      const std::optional<bool> value = parse_bool(node.text);
      if (!value || node.quoted) return wrong_kind(node, shape, name);
      return Json(*value);
    }
    case Kind::kInt: return check_number(node, shape, name, parse_integer(node.text));
    case Kind::kFloat: return check_number(node, shape, name, parse_number(node.text));
    case Kind::kString: return check_string(node, shape, name);
    case Kind::kName:
      if (!is_name(node.text)) return wrong_kind(node, shape, name);
      return Json(node.text);
    case Kind::kField:
      if (!is_field_name(node.text)) return fail(node, name, not_a_field_name(node.text));
      return Json(node.text);
    case Kind::kBytes: {
      const std::optional<std::uint64_t> bytes = parse_bytes(node.text);
      if (!bytes) return wrong_kind(node, shape, name);
      if (*bytes == 0 && shape.min > 0) return fail(node, name, "must be more than 0");
      return Json(*bytes);
    }
    case Kind::kPercent: {
      const std::optional<double> fraction = parse_percent(node.text);
      if (!fraction) return wrong_kind(node, shape, name);
      return Json(*fraction);
    }
    default: return wrong_kind(node, shape, name);
  }
}

Result<Json> check_list(const Node& node, const Shape& shape, const std::string& name) {
  const Shape& element = shape.of.front();
  const bool is_tuple = node.kind == Node::Kind::kScalar && node.text.starts_with('(');
  if (is_tuple && (element.kind == Kind::kInt || element.kind == Kind::kFloat))
    return fail(node, name, "a list has square brackets, such as [1, 2], got " + node.describe());
  if (shape.scalar_ok && node.kind == Node::Kind::kScalar) {
    SPDLD_ASSIGN(Json only, check(node, element, name));
    return Json(Json::array({std::move(only)}));
  }
  if (node.kind != Node::Kind::kList) return wrong_kind(node, shape, name);
  const std::size_t count = node.items.size();
  if (count < shape.min_items || count > shape.max_items) {
    std::string wanted = std::to_string(shape.min_items);
    if (shape.max_items == std::numeric_limits<std::size_t>::max()) {
      wanted = "at least " + wanted;
    } else if (shape.max_items != shape.min_items) {
      wanted += " to " + std::to_string(shape.max_items);
    }
    wanted += wanted.ends_with(" 1") || wanted == "1" ? " value" : " values";
    return fail(node, name, "must hold " + wanted + ", got " + std::to_string(count));
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    SPDLD_ASSIGN(Json item, check(node.items[i], element, name + "[" + std::to_string(i) + "]"));
    list.push_back(std::move(item));
  }
  return list;
}

Status unknown_key(const Node::Entry& entry, const Shape& shape, const std::string& name) {
  const std::string in = name.empty() ? "" : " in '" + name + "'";
  std::vector<std::string> known = names_of(shape.keys);
  known.insert(known.end(), shape.also.begin(), shape.also.end());
  if (const std::string found = way_out(shape, entry.key); !found.empty())
    return entry.fail("unknown key " + quote(entry.key) + in + found);
  if (known.empty()) {
    return entry.fail("unknown key " + quote(entry.key) + in + ", which takes none");
  }
  return entry.fail("unknown key " + quote(entry.key) + in + hint(entry.key, known));
}

// What a map that is not there stands for.
Result<Json> defaults_of(const Node& at, const Shape& shape, const std::string& name) {
  Node empty;
  empty.kind = Node::Kind::kMap;
  empty.document = at.document;
  empty.line = at.line;
  empty.column = at.column;
  return check(empty, shape, name);
}

// Tables write defaults as texts do, "25%"; lists and numbers need no reading.
Result<Json> default_of(const Node& at, const Key& key, const std::string& name) {
  if (key.shape.kind == Kind::kMap) return defaults_of(at, key.shape, name);
  if (!key.default_value->is_string()) return *key.default_value;
  Node text;
  text.kind = Node::Kind::kScalar;
  text.document = at.document;
  text.text = key.default_value->get<std::string>();
  return check(text, key.shape, name);
}

// The map that one value without it stands for.
Node map_of(const Node& value, const std::string& key) {
  Node map;
  map.kind = Node::Kind::kMap;
  map.document = value.document;
  map.line = value.line;
  map.column = value.column;
  map.entries.push_back({.key = key, .line = value.line, .column = value.column, .value = value});
  return map;
}

Result<Json> check_map(const Node& node, const Shape& shape, const std::string& name) {
  Json map = Json::object();
  std::set<std::string> nulls;
  for (const Node::Entry& entry : node.entries) {
    const Key* key = find_key(shape.keys, entry.key);
    if (key == nullptr) return tl::unexpected<Status>(unknown_key(entry, shape, name));
    if (key->nullable && entry.value.kind == Node::Kind::kNull) {
      nulls.insert(entry.key);
      continue;
    }
    SPDLD_ASSIGN(map[entry.key], check(entry.value, key->shape, member(name, entry.key)));
  }
  for (const Key& key : shape.keys) {
    if (map.contains(key.name) || nulls.contains(key.name)) continue;
    if (key.required) {
      const std::string missing = "'" + member(name, key.name) + "' is missing: " + key.doc;
      return tl::unexpected<Status>(node.fail(missing));
    }
    if (!key.default_value) continue;
    SPDLD_ASSIGN(map[key.name], default_of(node, key, member(name, key.name)));
  }
  return map;
}

// Whether a value without a name may be the op's first key.
bool takes_value(const Shape& op) {
  const auto is_there = [](const Key& key) { return !key.nullable; };
  return op.keys.front().required || std::count_if(op.keys.begin(), op.keys.end(), is_there) == 1;
}

// What the op is given by a call in Python, as YAML: ": 224", ": {size: 224, antialias: true}".
// Empty: nothing, or what it does not take.
std::string given_by(const std::string& call, const Shape& op) {
  const auto arguments = python_arguments(call);
  if (!arguments || arguments->empty() || arguments->size() > op.keys.size()) return "";
  std::string map;
  for (std::size_t i = 0; i < arguments->size(); ++i) {
    const auto& [name, value] = (*arguments)[i];
    if (name.empty() && !takes_value(op)) return "";
    map += (i == 0 ? "{" : ", ") + (name.empty() ? op.keys[i].name : name) + ": " + value;
  }
  map += "}";
  const Result<Node> node = parse_yaml(map, std::make_shared<Document>());
  if (!node || !check(*node, op, "")) return "";
  const bool is_alone = arguments->size() == 1 && node->entries.front().key == op.alone;
  return ": " + (is_alone ? arguments->front().second : map);
}

// Of an op that is called as another library's transform: which op it is here, or what to do.
std::string of_other_library(const std::string& tag, const Shape& shape) {
  const std::string name = op_name_of(tag);
  const auto without_lines = [](std::string text) {
    std::erase(text, '_');
    return text;
  };
  for (const Key& key : shape.keys) {
    if (without_lines(key.name) == without_lines(name))
      return "; did you mean '" + key.name + given_by(tag, key.shape) + "'?";
  }
  const std::string_view instead = instead_of_transform(name);
  return instead.empty() ? "" : ": " + std::string(instead);
}

Result<Json> check_tagged(const Node& node, const Shape& shape, const std::string& name) {
  const auto unknown = [&](const std::string& tag) {
    const std::string what = prefix(name) + "unknown " + shape.noun + " " + quote(tag);
    // YAML reads a line that is indented deeper as more of the one before.
    if (tag.find(" - ") != std::string::npos)
      return what + "; is the line below it indented deeper than its own '-'?";
    if (shape.otherwise.empty()) return what + hint(tag, names_of(shape.keys));
    const std::string foreign = of_other_library(tag, shape);
    if (!foreign.empty()) return what + foreign;
    const std::string slip = did_you_slip(tag, names_of(shape.keys));
    if (!slip.empty()) return what + slip;
    return what + "; there are: " + listed_names(names_of(shape.keys)) + "; " + shape.otherwise;
  };
  if (shape.bare_ok && node.kind == Node::Kind::kScalar) {
    const Key* key = find_key(shape.keys, node.text);
    if (key == nullptr) return tl::unexpected<Status>(node.fail(unknown(node.text)));
    SPDLD_ASSIGN(Json value, defaults_of(node, key->shape, member(name, key->name)));
    return Json{{key->name, std::move(value)}};
  }
  if (node.kind != Node::Kind::kMap) return wrong_kind(node, shape, name);
  if (node.entries.empty()) {
    return fail(node, name, "expected " + expected_text(shape) + ", got an empty map");
  }
  const Node::Entry* only = nullptr;
  for (const Node::Entry& entry : node.entries) {
    if (find_key(shape.beside, entry.key) != nullptr) continue;
    if (const std::string found = way_out(shape, entry.key); !found.empty())
      return tl::unexpected<Status>(
          entry.fail("unknown key " + quote(entry.key) + " in " + quote(name) + found));
    if (only != nullptr)
      return tl::unexpected<Status>(entry.fail(prefix(name) + "one " + shape.noun + " only, got " +
                                               quote(only->key) + " and " + quote(entry.key) +
                                               "; is the text below " + quote(only->key) +
                                               " indented deeper than its name?"));
    only = &entry;
    if (find_key(shape.keys, entry.key) == nullptr)
      return tl::unexpected<Status>(entry.fail(unknown(entry.key)));
  }
  if (only == nullptr)
    return fail(node, name,
                "expected " + expected_text(shape) + " beside " + quote(node.entries.front().key));
  Json tagged = Json::object();
  for (const Node::Entry& entry : node.entries) {
    const bool is_beside = &entry != only;
    if (is_beside && entry.value.kind == Node::Kind::kNull) continue;
    const Key* const key = find_key(is_beside ? shape.beside : shape.keys, entry.key);
    SPDLD_ASSIGN(tagged[key->name], check(entry.value, key->shape, member(name, key->name)));
  }
  return tagged;
}

Result<Json> check_named(const Node& node, const Shape& shape, const std::string& name) {
  if (node.kind != Node::Kind::kMap) return wrong_kind(node, shape, name);
  Json map = shape.ordered ? Json::array() : Json::object();
  for (const Node::Entry& entry : node.entries) {
    if (!is_field_name(entry.key))
      return tl::unexpected<Status>(entry.fail(prefix(name) + not_a_field_name(entry.key)));
    SPDLD_ASSIGN(Json value, check(entry.value, shape.of.front(), member(name, entry.key)));
    if (shape.ordered) {
      map.push_back({entry.key, std::move(value)});
    } else {
      map[entry.key] = std::move(value);
    }
  }
  return map;
}

// As JSON has it: a scalar without quotes is a number, true or false where it reads as one.
Json value_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull: return nullptr;
    case Node::Kind::kList: {
      Json list = Json::array();
      for (const Node& item : node.items) list.push_back(value_of(item));
      return list;
    }
    case Node::Kind::kMap: {
      Json map = Json::object();
      for (const Node::Entry& entry : node.entries) map[entry.key] = value_of(entry.value);
      return map;
    }
    case Node::Kind::kScalar: break;
  }
  if (node.quoted) return node.text;
  if (const auto integer = parse_integer(node.text)) return *integer;
  if (const auto number = parse_number(node.text)) return *number;
  if (const auto flag = parse_bool(node.text)) return *flag;
  return node.text;
}

// "; write {p: 0.5}" of a value in place of a map: its key is the only one that must be given, or
// else the only one, that takes such a value.
std::string as_member(const Node& node, const Shape& shape) {
  constexpr std::size_t kLongest = 64;
  if (node.kind != Node::Kind::kScalar || !node.shown()) return "";
  if (node.quoted || node.text.size() > kLongest) return "";
  const Key* found = nullptr;
  for (const Key& key : shape.keys) {
    if (key.nullable || !check(node, key.shape, key.name)) continue;
    if (found != nullptr && found->required == key.required) return "";
    if (found == nullptr || key.required) found = &key;
  }
  return found == nullptr ? "" : "; write {" + found->name + ": " + node.text + "}";
}

Node::Kind node_kind(const Shape& shape) {
  switch (shape.kind) {
    case Kind::kList: return Node::Kind::kList;
    case Kind::kMap:
    case Kind::kTagged:
    case Kind::kNamed:
    case Kind::kObject:
    case Kind::kScalars: return Node::Kind::kMap;
    default: return Node::Kind::kScalar;
  }
}

// Maps are told apart by their keys: it is the first that knows one of those given.
Result<Json> check_one_of_maps(const Node& node, const std::vector<const Shape*>& maps,
                               const std::string& name) {
  Shape all;
  for (const Shape* map : maps) {
    for (const Node::Entry& entry : node.entries) {
      if (find_key(map->keys, entry.key) != nullptr) return check(node, *map, name);
    }
    all.keys.insert(all.keys.end(), map->keys.begin(), map->keys.end());
    if (all.known_as.empty()) all.known_as = map->known_as;
  }
  if (node.entries.empty()) return check(node, *maps.front(), name);
  return tl::unexpected<Status>(unknown_key(node.entries.front(), all, name));
}

Result<Json> check_any_of(const Node& node, const Shape& shape, const std::string& name) {
  std::vector<const Shape*> fitting;
  for (const Shape& alternative : shape.of) {
    if (node_kind(alternative) == node.kind) fitting.push_back(&alternative);
  }
  if (fitting.size() == 1) return check(node, *fitting.front(), name);
  if (node.kind == Node::Kind::kMap && !fitting.empty())
    return check_one_of_maps(node, fitting, name);
  for (const Shape* alternative : fitting) {
    Result<Json> value = check(node, *alternative, name);
    if (value) return value;
  }
  return wrong_kind(node, shape, name);
}

}  // namespace

std::string expected_text(const Shape& shape) {
  if (!shape.expected.empty()) return shape.expected;
  switch (shape.kind) {
    case Kind::kBool: return "true or false";
    case Kind::kInt: return "an integer";
    case Kind::kFloat: return "a number";
    case Kind::kString:
      return shape.choices.empty() ? "a text" : "one of " + listed_names(shape.choices);
    case Kind::kName:
      return "a name (1 to 128 of A-Z a-z 0-9 . _ -, which begins with none of . and -)";
    case Kind::kField: return "the name of a field";
    case Kind::kBytes: return "a size such as 64MiB";
    case Kind::kPercent: return "a percentage such as 25%";
    case Kind::kList: {
      const std::string list = "a list of " + plural(shape.of.front());
      return shape.scalar_ok ? expected_text(shape.of.front()) + " or " + list : list;
    }
    case Kind::kMap:
    case Kind::kObject:
    case Kind::kScalars: return "a map";
    case Kind::kNamed: return "a map of fields";
    case Kind::kTagged: return "a map of one " + shape.noun;
    case Kind::kAnyOf: break;
  }
  std::string all;
  for (const Shape& alternative : shape.of) {
    all += (all.empty() ? "" : " or ") + expected_text(alternative);
  }
  return all;
}

Result<Json> check(const Node& node, const Shape& shape, const std::string& name) {
  switch (shape.kind) {
    case Kind::kAnyOf: return check_any_of(node, shape, name);
    case Kind::kTagged: return check_tagged(node, shape, name);
    case Kind::kList: return check_list(node, shape, name);
    case Kind::kNamed: return check_named(node, shape, name);
    case Kind::kObject:
      if (node.kind != Node::Kind::kMap) return wrong_kind(node, shape, name);
      return value_of(node);
    case Kind::kMap:
    case Kind::kScalars:
      // A section all of whose lines are commented out.
      if (node.kind == Node::Kind::kNull) return defaults_of(node, shape, name);
      if (node.kind != Node::Kind::kMap && !shape.alone.empty())
        return check_map(map_of(node, shape.alone), shape, name);
      if (node.kind != Node::Kind::kMap)
        return fail(node, name,
                    "expected " + expected_text(shape) + ", got " + node.describe() +
                        as_member(node, shape));
      return shape.kind == Kind::kMap ? check_map(node, shape, name) : Result<Json>(Json::object());
    default:
      if (node.kind != Node::Kind::kScalar) return wrong_kind(node, shape, name);
      return check_scalar(node, shape, name);
  }
}

}  // namespace spdld::spec
