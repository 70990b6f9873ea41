// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

// Values as JSON, read and written by one description of each type,
//   void describe(auto& f, Of<Type> auto& value)
// in this namespace, which calls `f` with the name and reference of each member, f.array(), or
// f.name(). Types without a description are kept as nlohmann has them. JSON that does not fit is
// answered with json's exceptions.
namespace spdld::store {

template <typename T, typename Described>
concept Of = std::same_as<std::remove_const_t<T>, Described>;

template <typename T>
nlohmann::json described(const T& value);
template <typename T>
void read_described(const nlohmann::json& from, T& value);

// The `f` of a description that writes.
class FieldWriter {
 public:
  static constexpr bool kReads = false;

  explicit FieldWriter(nlohmann::json& json) : json_(json) {}
  template <typename T, typename... Others>
  void operator()(const char* name, const T& value, const Others&... others) {
    json_[name] = described(value);
    if constexpr (sizeof...(others) > 0) (*this)(others...);
  }
  // Members that are left out where they have their default.
  template <typename T, typename... Others>
  void optional(const char* name, const T& value, const Others&... others) {
    if (value != T()) (*this)(name, value);
    if constexpr (sizeof...(others) > 0) optional(others...);
  }
  // An array of these values, in place of an object.
  template <typename... Values>
  void array(const Values&... values) {
    json_ = nlohmann::json::array({values...});
  }
  // The text of an enum's value, in place of an object.
  template <typename T>
  void name(const T& value, const nlohmann::json& names) {
    json_ = std::find(names.begin(), names.end(), nlohmann::json(value)).key();
  }
  // The member that the object has if it has this name; null: it has none.
  template <typename T>
  const T* present(const std::optional<T>& value, const char*) {
    return value ? &*value : nullptr;
  }
  template <typename T, typename... Others>
  const T* alternative(const std::variant<Others...>& value, const char*) {
    return std::get_if<T>(&value);
  }

 private:
  nlohmann::json& json_;
};

// The `f` of a description that reads.
class FieldReader {
 public:
  static constexpr bool kReads = true;

  explicit FieldReader(const nlohmann::json& json) : json_(json) {}
  template <typename T, typename... Others>
  void operator()(const char* name, T& value, Others&&... others) {
    read_described(json_.at(name), value);
    if constexpr (sizeof...(others) > 0) (*this)(others...);
  }
  template <typename T, typename... Others>
  void optional(const char* name, T& value, Others&&... others) {
    if (json_.contains(name)) (*this)(name, value);
    if constexpr (sizeof...(others) > 0) optional(others...);
  }
  template <typename... Values>
  void array(Values&... values) {
    std::size_t index = 0;
    (json_.at(index++).get_to(values), ...);
  }
  template <typename T>
  void name(T& value, const nlohmann::json& names) {
    value = names.at(json_.get<std::string>()).template get<T>();
  }
  template <typename T>
  T* present(std::optional<T>& value, const char* name) {
    return json_.contains(name) ? &value.emplace() : nullptr;
  }
  template <typename T, typename... Others>
  T* alternative(std::variant<Others...>& value, const char* name) {
    return json_.contains(name) ? &value.template emplace<T>() : nullptr;
  }

 private:
  const nlohmann::json& json_;
};

template <typename T>
nlohmann::json described(const T& value) {
  using nlohmann::json;
  if constexpr (requires { value.has_value(); }) {
    return described(*value);
  } else if constexpr (requires(T list) { list.emplace_back(); }) {
    json list = json::array();
    for (const auto& item : value) list.push_back(described(item));
    return list;
  } else if constexpr (requires { typename T::mapped_type; }) {
    json object = json::object();
    for (const auto& [key, item] : value) {
      if constexpr (std::is_integral_v<typename T::key_type>) {
        object[std::to_string(key)] = described(item);
      } else {
        object[key] = described(item);
      }
    }
    return object;
  } else if constexpr (requires(FieldWriter & f) { describe(f, value); }) {
    json written;
    FieldWriter writer(written);
    describe(writer, value);
    return written;
  } else {
    return json(value);
  }
}

template <typename T>
void read_described(const nlohmann::json& from, T& value) {
  using nlohmann::json;
  if constexpr (requires { value.has_value(); }) {
    read_described(from, value.emplace());
  } else if constexpr (requires(T list) { list.emplace_back(); }) {
    for (const json& item : from.get_ref<const json::array_t&>())
      read_described(item, value.emplace_back());
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (const auto& [name, item] : from.get_ref<const json::object_t&>()) {
      if constexpr (std::is_integral_v<typename T::key_type>) {
        read_described(item, value[json::parse(name).template get<typename T::key_type>()]);
      } else {
        read_described(item, value[name]);
      }
    }
  } else if constexpr (requires(FieldReader & f) { describe(f, value); }) {
    FieldReader reader(from);
    describe(reader, value);
  } else {
    from.get_to(value);
  }
}

}  // namespace spdld::store
