// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::source {

// What pax extended headers say that matters to who reads members. Names are taken as the bytes
// that they are, whatever charset or hdrcharset says. An empty value takes back what was said
// before.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::string> link;
  std::optional<std::uint64_t> size;
  bool sparse = false;      // the content is a map and the pieces of a sparse file
  std::string sparse_name;  // what that file is called, where `path` is made up

  // Adds the records of one header. kDataLoss says what is wrong with them.
  Status add(std::string_view text);

 private:
  Status add_record(std::string_view keyword, std::string_view value);
};

}  // namespace spdld::source
