// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "spec/parse.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// So many files may extend one another.
inline constexpr std::size_t kMaxExtends = 16;

// Parses a text whose root must be a map (`what` names it in messages: "a pipeline"), and lays it
// over the file that its `extends` names, and that over the next one: maps merge, all else
// replaces. The result has no `extends`; each node still knows the file it came from.
Result<Node> parse_extended(std::string_view text, std::shared_ptr<const Document> document,
                            const FileReader& read_file, std::string_view what);

// `text` as an absolute path in its shortest form; relative ones start from the directory of the
// file that the node came from.
Result<std::string> absolute_path(const Node& node, const std::string& name,
                                  const std::string& text);

}  // namespace spdld::spec
