// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "op/order_spec.h"

// A pipeline's tar shards and what is taken from their samples, as plain values: spec/ fills them
// from YAML, source/ acts on them. A suffix is what follows the first dot of a member's base name,
// in lower case.
namespace spdld {

struct WebdatasetSpec {
  // A part of each sample, brought with it: the first of `suffixes` that the sample has.
  struct Part {
    std::string field = {};
    std::vector<std::string> suffixes = {};
    bool optional = false;  // a sample need not have it; likewise below

    friend bool operator==(const Part&, const Part&) = default;
  };
  // A part whose whole text is an integer or the name of a class, read when the index is made. All
  // suffixes are of one kind other than SuffixKind::kBytes.
  struct Label {
    std::string field = {};
    std::vector<std::string> suffixes = {};
    bool optional = false;

    friend bool operator==(const Label&, const Label&) = default;
  };
  // A value of a JSON part, read when the index is made.
  struct IndexedValue {
    std::string field = {};
    std::string suffix = {};
    std::string pointer = {};  // as RFC 6901 has it: "/size/0"; empty: the whole document
    bool optional = false;

    friend bool operator==(const IndexedValue&, const IndexedValue&) = default;
  };
  // What becomes of a sample that lacks something of the above that is not optional.
  enum class Missing { kError, kSkip };

  std::vector<std::string> shards = {};  // patterns as given, absolute: source/tar/shard_names.h
  std::vector<Part> parts = {};
  std::vector<Label> labels = {};
  std::vector<IndexedValue> index = {};
  std::optional<ClassesSpec> classes = {};  // of labels of SuffixKind::kClass
  Missing missing = Missing::kError;

  friend bool operator==(const WebdatasetSpec&, const WebdatasetSpec&) = default;
};

}  // namespace spdld
