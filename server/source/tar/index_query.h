// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "op/webdataset_spec.h"

namespace spdld::source {

// What an index of tar shards is to say of their samples. Immutable; any thread.
class IndexQuery {
 public:
  // `classes`: the names in index order that spec.classes stands for; empty where it is not set.
  // kInvalidArgument: the spec asks for what no index can say.
  static Result<IndexQuery> make(WebdatasetSpec spec, std::vector<std::string> classes);

  const WebdatasetSpec& spec() const { return spec_; }
  const std::vector<std::string>& classes() const { return classes_; }
  // The columns of an index: of the labels, then of the indexed values, then NAME_present of what
  // is optional: of parts, labels and indexed values, in their order.
  const std::vector<std::string>& value_fields() const { return value_fields_; }

  // The suffixes of all labels, each once.
  const std::vector<std::string>& label_suffixes() const { return label_suffixes_; }
  // The number that the text of a label's part means. An error says what is wrong with the text.
  Result<std::int64_t> label(std::string_view suffix, std::string_view text) const;

  // A suffix whose parts are read as JSON, with what is taken from them.
  struct JsonPart {
    std::string suffix;
    std::vector<std::vector<std::string>> pointers;
  };
  const std::vector<JsonPart>& json_parts() const { return json_parts_; }
  // Where spec().index[i] is: json_parts()[part].pointers[pointer].
  struct JsonPlace {
    std::size_t part = 0;
    std::size_t pointer = 0;
  };
  const std::vector<JsonPlace>& json_places() const { return json_places_; }

  // Tells this query from any other, but for the shards.
  std::string key() const;

 private:
  IndexQuery(WebdatasetSpec spec, std::vector<std::string> classes);
  Status check_classes() const;
  Status add_labels();
  Status add_values();
  Status add_field(const std::string& field);

  WebdatasetSpec spec_;
  std::vector<std::string> classes_;
  std::unordered_map<std::string, std::int64_t> numbers_;  // of classes_
  bool numbered_ = false;  // a class is called by a number, so that other numbers are no classes
  std::vector<std::string> value_fields_;
  std::vector<std::string> label_suffixes_;
  std::vector<JsonPart> json_parts_;
  std::vector<JsonPlace> json_places_;
};

}  // namespace spdld::source
