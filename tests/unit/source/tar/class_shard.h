// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "source/open_source.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {

// Writes the shard a.tar, in which each item has a part and the name of its class, and returns what
// reads it, with the part in that field.
inline WebdatasetSpec class_shard(TempDir& dir, const std::map<std::string, std::string>& items,
                                  const std::string& field) {
  test::TarWriter tar;
  for (const auto& [uri, bytes] : items) {
    const std::string key = uri.substr(0, uri.find('.'));
    tar.file(key + ".cls", uri.substr(0, uri.find('/'))).file(key + ".bin", bytes);
  }
  dir.file("a.tar", tar.archive());
  WebdatasetSpec spec;
  spec.shards = {dir.path("a.tar")};
  spec.parts = {{.field = field, .suffixes = {"bin"}}};
  spec.labels = {{.field = "label", .suffixes = {"cls"}}};
  spec.classes = ClassesSpec{.kind = ClassesSpec::Kind::kList, .names = {"c0", "c1", "c1-", "c2"}};
  return spec;
}

}  // namespace spdld::source
