// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <variant>

#include "op/clips_spec.h"
#include "op/order_spec.h"
#include "op/row_call.h"
#include "op/select_spec.h"
#include "op/table_spec.h"
#include "op/webdataset_spec.h"

namespace spdld {

// Where a pipeline's items come from, and which of them it has.
struct SourceSpec {
  std::variant<FilesSpec, TableSpec, CocoSpec, WebdatasetSpec, DatasetSpec> items;
  std::optional<SelectSpec> select = {};
  // Of the files that are selected; none: items are whole files.
  std::optional<ClipsSpec> clips = {};

  friend bool operator==(const SourceSpec&, const SourceSpec&) = default;
};

}  // namespace spdld
