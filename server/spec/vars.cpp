// SPDX-License-Identifier: Apache-2.0
#include "spec/vars.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/ascii.h"
#include "base/text/near_names.h"
#include "op/item_parts.h"
#include "spec/scalar.h"

namespace spdld::spec {
namespace {

bool is_var_name(std::string_view name) {
  return !name.empty() && !is_digit(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '_';
  });
}

bool is_item_part(std::string_view name) {
  return std::find(kItemParts.begin(), kItemParts.end(), item_part_of(name)) != kItemParts.end();
}

// A scalar from outside of YAML, such as an environment variable: null if it reads as that.
Node plain_scalar(std::string text) {
  Node node;
  const bool null = text == "null" || text == "~";
  node.kind = null ? Node::Kind::kNull : Node::Kind::kScalar;
  node.quoted = text.empty();
  if (!null) node.text = std::move(text);
  return node;
}

// A variable's value that comes from outside of the text, as the two who can give one call it.
std::string as_given(const std::string& name) { return quote(name) + " (--var, vars=)"; }

std::string whose(const Node& root) {
  const Node* name = root.find("pipeline");
  const bool plain = name != nullptr && name->kind == Node::Kind::kScalar &&
                     name->text.find('$') == std::string::npos;
  return plain ? "pipeline " + quote(name->text) : "this pipeline";
}

class Resolver {
 public:
  Resolver(const std::map<std::string, std::string>& overrides, const EnvLookup& env)
      : overrides_(overrides), env_(env) {}

  Status declare(const Node& root) {
    const Node* vars = root.find("vars");
    if (vars != nullptr && vars->kind == Node::Kind::kMap) {
      for (const Node::Entry& entry : vars->entries) SPDLD_TRY(declare(entry));
    } else if (vars != nullptr && vars->kind != Node::Kind::kNull) {
      return vars->fail("vars: expected a map of names to values, got " + vars->describe());
    }
    for (const auto& [name, value] : overrides_) {
      if (!vars_.contains(name)) {
        return Status(Code::kInvalidArgument, as_given(name) + " names no variable of " +
                                                  whose(root) + hint(name, names()));
      }
      if (!is_clean_text(value)) {
        return Status(Code::kInvalidArgument, as_given(name) + ": the value is not text in UTF-8");
      }
    }
    return {};
  }

  Result<std::map<std::string, std::string>> resolve_all() {
    std::map<std::string, std::string> values;
    for (auto& [name, var] : vars_) {
      SPDLD_TRY(resolve(name, var));
      values[name] = var.value.kind == Node::Kind::kNull ? "null" : var.value.text;
    }
    return values;
  }

  Status substitute(Node& node) {
    for (Node& item : node.items) SPDLD_TRY(substitute(item));
    for (Node::Entry& entry : node.entries) {
      const bool before = in_companions_;
      in_companions_ = before || entry.key == kCompanionsKey;
      SPDLD_TRY(substitute(entry.value));
      in_companions_ = before;
    }
    if (node.kind != Node::Kind::kScalar || node.text.find('$') == std::string::npos) return {};

    const std::string_view text = node.text;
    if (text.starts_with("${") && text.find('}') == text.size() - 1) {
      SPDLD_ASSIGN(Node value, lookup(node, text.substr(2, text.size() - 3)));
      node.kind = value.kind;
      node.quoted = value.quoted;
      node.text = std::move(value.text);
      return count(node, node.text.size());
    }
    return substitute_inside(node);
  }

 private:
  struct Var {
    enum class State { kNew, kOpen, kDone };
    State state = State::kNew;
    Node value;
  };

  Status declare(const Node::Entry& entry) {
    const Node& value = entry.value;
    if (!is_var_name(entry.key)) {
      return entry.fail("vars: " + quote(entry.key) +
                        " is not a variable's name; use letters, digits and _");
    }
    if (value.kind == Node::Kind::kList || value.kind == Node::Kind::kMap) {
      return value.fail("vars." + entry.key + ": expected a single value, got " + value.describe());
    }
    vars_[entry.key].value = value;
    return {};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, var] : vars_) names.push_back(name);
    return names;
  }

  Status count(const Node& at, std::size_t bytes) {
    expanded_bytes_ += bytes;
    if (expanded_bytes_ <= kMaxExpandedBytes) return {};
    return at.fail("the variables together make more than " + std::to_string(kMaxExpandedBytes) +
                   " bytes of text");
  }

  Status substitute_inside(Node& node) {
    const std::string_view text = node.text;
    std::string out;
    std::size_t i = 0;
    while (i < text.size()) {
      if (text.compare(i, 2, "$$") == 0) {
        out += '$';
        i += 2;
      } else if (text.compare(i, 2, "${") == 0) {
        const std::size_t end = text.find('}', i);
        if (end == text.npos) {
          return node.fail("'${' without '}' in " + node.describe() + "; write $$ for a plain $");
        }
        SPDLD_ASSIGN(const Node value, lookup(node, text.substr(i + 2, end - i - 2)));
        const std::string shown = value.kind == Node::Kind::kNull ? "null" : value.text;
        SPDLD_TRY(count(node, shown.size()));
        out += shown;
        i = end + 1;
      } else {
        out += text[i++];
      }
    }
    node.text = std::move(out);
    return {};
  }

  // The value of ${reference}, which stands at `at`.
  Result<Node> lookup(const Node& at, std::string_view reference) {
    if (in_companions_ && is_item_part(reference)) return lookup_item_part(at, reference);
    constexpr std::string_view kEnv = "env:";
    if (reference.starts_with(kEnv)) {
      return lookup_env(at, std::string(reference.substr(kEnv.size())));
    }
    const std::string name(reference);
    const auto found = vars_.find(name);
    if (found == vars_.end() && is_item_part(name)) {
      return tl::unexpected<Status>(at.fail("unknown variable " + quote(name) +
                                            "; below 'companions' it is a part of the "
                                            "item, and a variable that goes there has it as $${" +
                                            name + "}"));
    }
    if (found == vars_.end()) {
      return tl::unexpected<Status>(
          at.fail("unknown variable " + quote(name) + hint(name, names())));
    }
    if (found->second.state == Var::State::kOpen) {
      std::string circle;
      for (const std::string& each : open_) circle += each + " -> ";
      return tl::unexpected<Status>(
          at.fail("variables refer to each other in a circle: " + circle + name));
    }
    SPDLD_TRY(resolve(name, found->second));
    return found->second.value;
  }

  // What stands for itself, since it is replaced for each item.
  Result<Node> lookup_item_part(const Node& at, std::string_view reference) const {
    const std::string name(item_part_of(reference));
    if (vars_.contains(name)) {
      return tl::unexpected(at.fail("${" + name + "} is a part of the item here, and a variable " +
                                    "has the same name; give the variable another one"));
    }
    Node node;
    node.kind = Node::Kind::kScalar;
    node.quoted = true;
    node.text = "${" + std::string(reference) + "}";
    return node;
  }

  Result<Node> lookup_env(const Node& at, const std::string& name) const {
    if (!is_var_name(name)) {
      return tl::unexpected<Status>(
          at.fail(quote(name) + " is not the name of an environment variable"));
    }
    if (!env_) {
      return tl::unexpected<Status>(at.fail("${env:" + name +
                                            "} has no meaning here: there is no environment to "
                                            "take it from; use vars and --var"));
    }
    std::optional<std::string> value = env_(name);
    if (!value) {
      return tl::unexpected<Status>(
          at.fail("the environment variable '" + name +
                  "' is not set in the shell or program that submits the pipeline"));
    }
    if (!is_clean_text(*value)) {
      return tl::unexpected<Status>(
          at.fail("the environment variable '" + name + "' is not text in UTF-8"));
    }
    return plain_scalar(*std::move(value));
  }

  Status resolve(const std::string& name, Var& var) {
    if (var.state == Var::State::kDone) return {};
    if (const auto given = overrides_.find(name); given != overrides_.end()) {
      Node value = plain_scalar(given->second);
      // Text stays text, whatever it looks like.
      if (var.value.quoted) {
        value.kind = Node::Kind::kScalar;
        value.text = given->second;
        value.quoted = true;
      }
      var.value = std::move(value);
    } else {
      if (open_.size() >= kMaxVarDepth) {
        return var.value.fail("more than " + std::to_string(kMaxVarDepth) +
                              " variables refer to one another in a chain");
      }
      var.state = Var::State::kOpen;
      open_.push_back(name);
      SPDLD_TRY(substitute(var.value));
      open_.pop_back();
    }
    var.state = Var::State::kDone;
    return {};
  }

  const std::map<std::string, std::string>& overrides_;
  const EnvLookup& env_;
  std::map<std::string, Var> vars_;
  std::vector<std::string> open_;  // variables whose value is being made, outermost first
  std::size_t expanded_bytes_ = 0;
  bool in_companions_ = false;  // what is substituted stands below that key
};

}  // namespace

Result<std::map<std::string, std::string>> resolve_vars(
    Node& root, const std::map<std::string, std::string>& overrides, const EnvLookup& env) {
  Resolver resolver(overrides, env);
  SPDLD_TRY(resolver.declare(root));
  std::erase_if(root.entries, [](const Node::Entry& entry) { return entry.key == "vars"; });
  SPDLD_ASSIGN(auto values, resolver.resolve_all());
  SPDLD_TRY(resolver.substitute(root));
  return values;
}

}  // namespace spdld::spec
