// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace spdld::client {

// The plain values of one JSON object, as the daemon answers with. Lists and objects inside it are
// read over. Text from outside: anything may be in it.
class JsonObject {
 public:
  // Nothing, unless `text` is one whole object.
  static std::optional<JsonObject> parse(std::string_view text);

  // Nothing: it is not there, or something else.
  std::optional<std::uint64_t> count(const std::string& name) const;  // whole and not negative
  std::optional<bool> flag(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;

 private:
  using Value = std::variant<std::monostate, std::uint64_t, bool, std::string>;
  friend class JsonReader;
  template <typename T>
  std::optional<T> get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || !std::holds_alternative<T>(found->second)) return std::nullopt;
    return std::get<T>(found->second);
  }

  std::map<std::string, Value> values_;
};

}  // namespace spdld::client
