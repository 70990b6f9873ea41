// SPDX-License-Identifier: Apache-2.0
#include "spec/yaml_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/text/utf8.h"
#include "spec/scalar.h"

namespace spdld::spec {
namespace {

Status fail_at(const Location& where, std::string_view what) {
  return Status(Code::kInvalidArgument, where.text() + ": " + std::string(what));
}

std::size_t count_nodes(const Node& node) {
  std::size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const Node::Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

std::size_t height_of(const Node& node) {
  std::size_t height = 0;
  for (const Node& item : node.items) height = std::max(height, height_of(item));
  for (const Node::Entry& entry : node.entries) height = std::max(height, height_of(entry.value));
  const bool opens = node.kind == Node::Kind::kList || node.kind == Node::Kind::kMap;
  return opens ? height + 1 : 0;
}

// Ends the parser's work from inside one of its callbacks.
struct Refused {
  Status status;
};

// Builds the tree from the library's events, and refuses early what must not grow. Throws Refused
// through the library to parse_yaml.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const Document> document) : document_(std::move(document)) {}

  std::optional<Node> take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (!root_) return;
    refuse(mark, "a second document starts here; a file holds one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(mark, Node::Kind::kNull), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "this alias lies inside of what it refers to");
    count(mark, count_nodes(found->second));
    check_depth(mark, open_.size() + height_of(found->second));
    Node copy = found->second;
    add(std::move(copy), 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    if (!is_clean_text(value)) refuse(mark, "the text holds a control character");
    Node node = make(mark, Node::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map whose end has not been seen; of a map, also the key that waits for its value.
  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    std::optional<Node> key;
    std::map<std::string, int> lines;  // of the keys so far
  };

  Location at(const YAML::Mark& mark) const {
    return {document_->name, mark.line + 1, mark.column + 1};
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view what) const {
    throw Refused{fail_at(at(mark), what)};
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    const std::string such = document_->shown ? " such as '" + tag + "'" : "";
    refuse(mark, "tags" + such + " are not used here; leave it out");
  }
  void count(const YAML::Mark& mark, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) {
      refuse(mark, "more than " + std::to_string(kMaxNodes) + " values, aliases written out");
    }
  }
  void check_depth(const YAML::Mark& mark, std::size_t depth) const {
    if (depth > kMaxDepth) refuse(mark, "nested deeper than " + std::to_string(kMaxDepth));
  }

  Node make(const YAML::Mark& mark, Node::Kind kind) {
    count(mark, 1);
    Node node;
    node.kind = kind;
    node.document = document_;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    refuse_tag(mark, tag);
    check_depth(mark, open_.size() + 1);
    open_.push_back({.node = make(mark, kind), .anchor = anchor, .key = std::nullopt, .lines = {}});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), done.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      count_anchor(node);
      anchors_.insert_or_assign(anchor, node);
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == Node::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      check_key(parent, node);
      parent.key = std::move(node);
    } else {
      // A value that is left out is marked where the next text begins.
      if (node.kind == Node::Kind::kNull && node.line != parent.key->line) {
        node.line = parent.key->line;
        node.column = parent.key->column;
      }
      Node::Entry entry{.key = std::move(parent.key->text),
                        .line = parent.key->line,
                        .column = parent.key->column,
                        .value = std::move(node)};
      parent.key.reset();
      parent.node.entries.push_back(std::move(entry));
    }
  }

  // Each anchor keeps a copy, so that a chain of nested anchors costs memory as aliases do.
  void count_anchor(const Node& node) {
    nodes_ += count_nodes(node);
    if (nodes_ > kMaxNodes) {
      throw Refused{
          node.fail("more than " + std::to_string(kMaxNodes) + " values, aliases written out")};
    }
  }

  static void check_key(Open& map, const Node& key) {
    if (key.kind != Node::Kind::kScalar) {
      throw Refused{key.fail("a key must be a name, got " + key.describe())};
    }
    if (key.text == "<<" && !key.quoted) {
      throw Refused{
          key.fail("the merge key '<<' is not supported; put what is shared into a file of its own "
                   "and name it by 'extends'")};
    }
    const auto [first, is_new] = map.lines.emplace(key.text, key.line);
    if (is_new) return;
    throw Refused{key.fail("duplicate key " + quote(key.text) + ", first given on line " +
                           std::to_string(first->second))};
  }

  std::shared_ptr<const Document> document_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::optional<Node> root_;
  std::size_t nodes_ = 0;
};

// Offset of the first byte that is_clean_text() refuses, or text.size().
std::size_t clean_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if ((lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r') || lead == 0x7F) return i;
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return i;
}

Status check_text(std::string_view text, const Document& document) {
  const std::size_t clean = clean_prefix(text);
  if (clean == text.size()) return {};
  const std::string_view before = text.substr(0, clean);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  return fail_at({document.name, static_cast<int>(line), static_cast<int>(clean - line_start) + 1},
                 "neither text in UTF-8 nor a line end; is this a YAML file?");
}

// What yaml-cpp does not say of the line at which it gave up.
std::string way_out(std::string_view text, int line) {
  for (int skipped = 1; skipped < line && !text.empty(); ++skipped)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const std::string_view shown = text.substr(0, text.find('\n'));
  if (shown.substr(0, shown.find_first_not_of(" \t")).find('\t') != std::string_view::npos)
    return "; the line is indented by a tab, and YAML takes spaces alone";
  const bool in_brackets = shown.find_first_of("{[") < shown.find("${");
  if (in_brackets && shown.find("${") != std::string_view::npos)
    return "; inside of { } and [ ] what has a ${...} must be quoted: {size: \"${size}\"}";
  return "";
}

}  // namespace

std::string Location::text() const {
  if (line <= 0) return file;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

Status Node::fail(std::string_view what) const { return fail_at(where(), what); }

Status Node::Entry::fail(std::string_view what) const {
  return fail_at({value.document ? value.document->name : "", line, column}, what);
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::kNull: return "nothing (null)";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a map";
    case Kind::kScalar: break;
  }
  const std::string value = quote(text);
  if (quoted) return shown() ? "the string " + value : "a string";
  if (parse_integer(text)) return shown() ? "the integer " + text : "an integer";
  if (parse_number(text)) return shown() ? "the number " + text : "a number";
  return shown() ? value : "a text";
}

const Node* Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));  // NOLINT(*-const-cast): *this is not
}

bool is_clean_text(std::string_view text) { return clean_prefix(text) == text.size(); }

Result<Node> parse_yaml(std::string_view text, std::shared_ptr<const Document> document) {
  SPDLD_TRY(check_text(text, *document));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(document);
    while (parser.HandleNextDocument(builder)) {
    }
    if (std::optional<Node> root = builder.take_root()) return *std::move(root);
    return error(Code::kInvalidArgument, document->name + ": the file is empty");
  } catch (const Refused& refused) {
    return tl::unexpected<Status>(refused.status);
  } catch (const YAML::Exception& exception) {
    const YAML::Mark& mark = exception.mark;
    const Location where{document->name, std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
    return tl::unexpected<Status>(
        fail_at(where, "not valid YAML: " + exception.msg + way_out(text, where.line)));
  } catch (const std::exception& exception) {
    return error(Code::kInvalidArgument,
                 document->name + ": not valid YAML: " + std::string(exception.what()));
  }
}

}  // namespace spdld::spec
