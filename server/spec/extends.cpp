// SPDX-License-Identifier: Apache-2.0
#include "spec/extends.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "spec/scalar.h"

namespace spdld::spec {
namespace {

// Lays `over` on `base`.
void merge(Node& base, Node over) {
  if (base.kind != Node::Kind::kMap || over.kind != Node::Kind::kMap) {
    base = std::move(over);
    return;
  }
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < base.entries.size(); ++i) places[base.entries[i].key] = i;
  for (Node::Entry& entry : over.entries) {
    const auto found = places.find(entry.key);
    if (found == places.end()) {
      base.entries.push_back(std::move(entry));
      continue;
    }
    Node::Entry& under = base.entries[found->second];
    under.line = entry.line;
    under.column = entry.column;
    merge(under.value, std::move(entry.value));
  }
  base.document = over.document;
  base.line = over.line;
  base.column = over.column;
}

Result<Node> parse_map(std::string_view text, std::shared_ptr<const Document> document,
                       std::string_view what) {
  SPDLD_ASSIGN(Node root, parse_yaml(text, std::move(document)));
  if (root.kind != Node::Kind::kMap) {
    return tl::unexpected<Status>(
        root.fail("expected " + std::string(what) + ", a map of keys, got " + root.describe()));
  }
  return root;
}

// Takes `extends` out of the map: the path of the file to lay it over, or "" if there is none.
Result<std::string> take_extends(Node& root) {
  const auto found = std::find_if(root.entries.begin(), root.entries.end(),
                                  [](const Node::Entry& entry) { return entry.key == "extends"; });
  if (found == root.entries.end()) return std::string();
  const Node value = std::move(found->value);
  root.entries.erase(found);
  if (value.kind == Node::Kind::kNull) return std::string();
  if (value.kind != Node::Kind::kScalar) {
    return tl::unexpected<Status>(
        value.fail("extends: expected the path of a file, got " + value.describe()));
  }
  if (value.text.find("${") != std::string::npos) {
    return tl::unexpected<Status>(
        value.fail("extends: variables have no meaning here; write the path out"));
  }
  return absolute_path(value, "extends", value.text);
}

}  // namespace

Result<std::string> absolute_path(const Node& node, const std::string& name,
                                  const std::string& text) {
  const auto fail = [&](const std::string& what) {
    return tl::unexpected<Status>(node.fail(name + ": " + what));
  };
  if (text.empty()) return fail("must not be empty");
  if (text == "~" || text.starts_with("~/")) {
    return fail("'~' is not a home directory here; write the path out or use ${env:HOME}");
  }
  std::filesystem::path path(text);
  if (path.is_relative()) {
    const std::string directory = node.document ? node.document->directory : "";
    if (directory.empty()) {
      return fail("the path " + quote(text) +
                  " is relative, and this text comes without a directory; write an absolute one");
    }
    path = std::filesystem::path(directory) / path;
  }
  std::string normal = path.lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

Result<Node> parse_extended(std::string_view text, std::shared_ptr<const Document> document,
                            const FileReader& read_file, std::string_view what) {
  std::vector<Node> layers;  // from the text itself down to the last base
  std::vector<std::string> paths;
  SPDLD_ASSIGN(Node root, parse_map(text, std::move(document), what));
  while (true) {
    const Node* extends = root.find("extends");
    const Node at = extends == nullptr ? Node{} : *extends;
    SPDLD_ASSIGN(const std::string path, take_extends(root));
    layers.push_back(std::move(root));
    if (path.empty()) break;

    const bool seen = std::find(paths.begin(), paths.end(), path) != paths.end();
    paths.push_back(path);
    if (seen) {
      std::string circle;
      for (const std::string& each : paths) circle += (circle.empty() ? "" : " -> ") + each;
      return tl::unexpected<Status>(at.fail("extends goes round in a circle: " + circle));
    }
    if (layers.size() >= kMaxExtends) {
      return tl::unexpected<Status>(
          at.fail("more than " + std::to_string(kMaxExtends) + " files extend one another"));
    }
    if (!read_file) {
      return tl::unexpected<Status>(
          at.fail("extends: no files can be read here; submit the merged pipeline"));
    }
    Result<std::string> base = read_file(path);
    if (!base) {
      const Status status = base.error().with_context(at.where().text() + ": extends");
      return tl::unexpected<Status>(status);
    }
    const std::string directory = std::filesystem::path(path).parent_path().string();
    auto base_document = std::make_shared<const Document>(
        Document{.name = path, .directory = directory, .shown = false});
    SPDLD_ASSIGN(root, parse_map(*base, std::move(base_document), what));
  }

  Node merged = std::move(layers.back());
  layers.pop_back();
  while (!layers.empty()) {
    merge(merged, std::move(layers.back()));
    layers.pop_back();
  }
  return merged;
}

}  // namespace spdld::spec
