// SPDX-License-Identifier: Apache-2.0
#include "spec/overrides.h"

#include <memory>
#include <utility>
#include <vector>

#include "spec/scalar.h"

namespace spdld::spec {
namespace {

// A command line has no lines.
void forget_lines(Node& node) {
  node.line = 0;
  node.column = 0;
  for (Node& item : node.items) forget_lines(item);
  for (Node::Entry& entry : node.entries) {
    entry.line = 0;
    entry.column = 0;
    forget_lines(entry.value);
  }
}

// "a.b.c" in its parts; none if a part is empty.
std::vector<std::string> split_key(const std::string& key) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = key.find('.', begin);
    parts.push_back(key.substr(begin, end - begin));
    if (parts.back().empty()) return {};
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

Status apply_override(Node& root, const std::string& assignment, const std::string& directory) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, "--set " + quote(assignment) + ": " + why);
  };
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) return refuse("expected KEY=VALUE");
  const std::string key = assignment.substr(0, equals);
  const std::string value = assignment.substr(equals + 1);
  const std::vector<std::string> parts = split_key(key);
  if (parts.empty() || parts.size() > kMaxDepth || !is_clean_text(key)) {
    return refuse("expected a dotted key such as arena.budget before '='");
  }
  if (value.find_first_not_of(" \t\r\n") == std::string::npos) {
    return refuse("no value after '='; null stands for none");
  }
  const auto document =
      std::make_shared<const Document>(Document{.name = "--set " + key, .directory = directory});
  SPDLD_ASSIGN(Node given, parse_yaml(value, document));
  forget_lines(given);

  Node* at = &root;
  for (const std::string& part : parts) {
    if (at->kind != Node::Kind::kMap) {
      *at = Node{};
      at->kind = Node::Kind::kMap;
      at->document = document;
    }
    if (at->find(part) == nullptr) {
      Node::Entry entry;
      entry.key = part;
      entry.value.document = document;
      at->entries.push_back(std::move(entry));
    }
    at = at->find(part);
  }
  *at = std::move(given);
  return {};
}

}  // namespace spdld::spec
