// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "spec/pipeline_spec.h"

namespace spdld::spec {

// What one text may hold at most; beyond it, parsing ends with an error.
inline constexpr std::size_t kMaxDepth = 32;
inline constexpr std::size_t kMaxNodes = 100'000;  // with aliases written out

// Where nodes come from: what messages call the text, and where its relative paths start.
struct Document {
  std::string name;
  std::string directory;  // absolute; empty: relative paths have no meaning
  // Messages show values. Not those of a file that the submitted text only names: messages say what
  // was expected there, and where.
  bool shown = true;
};

// One value of a YAML text: a plain value type that knows its place and nothing of the YAML
// library. Keys of a map are distinct strings in the text's order; aliases have become copies.
struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  bool quoted = false;  // a scalar that is text even where it looks like a number
  std::string text;     // of a scalar; valid UTF-8 without NUL
  std::vector<Node> items;
  std::vector<Entry> entries;

  std::shared_ptr<const Document> document;
  int line = 0;  // 1-based; 0: the document is not a text with lines, such as --set KEY
  int column = 0;

  Location where() const { return {document ? document->name : "", line, column}; }
  // The error "file:line:col: what".
  Status fail(std::string_view what) const;
  // For messages: "a list", "the integer 5", "'abc'"; "an integer", "a text" of a document that is
  // not shown.
  std::string describe() const;
  bool shown() const { return !document || document->shown; }

  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
};

struct Node::Entry {
  std::string key;
  int line = 0;
  int column = 0;
  Node value;

  // The key's own place, as a node to fail at.
  Status fail(std::string_view what) const;
};

// Parses one YAML document. Never throws. Besides broken YAML it refuses: what is not UTF-8, more
// than one document, duplicate keys, keys that are not plain strings, tags, the merge key `<<`, and
// what exceeds the limits above.
Result<Node> parse_yaml(std::string_view text, std::shared_ptr<const Document> document);

// Whether the text is valid UTF-8 and holds no control characters but tab and line ends.
bool is_clean_text(std::string_view text);

}  // namespace spdld::spec
