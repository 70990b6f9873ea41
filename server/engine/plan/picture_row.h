// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "op/field_task.h"
#include "op/geometry.h"

namespace spdld::engine {

// Where a task of pictures writes its row, or the memory that it has to be granted first.
struct PictureRow {
  std::byte* data = nullptr;  // null: needs_bytes is more than there is room for
  std::uint64_t needs_bytes = 0;
};

// `size`: of the task's pictures. `taken`: the memory that making them takes beside the row.
template <typename Task>
Result<PictureRow> begin_row(const Task& task, Size size, std::uint64_t taken,
                             std::uint64_t room_bytes, RowOutput& out) {
  if (task.output) {
    if (taken > room_bytes) return PictureRow{.needs_bytes = taken};
    SPDLD_CHECK(size == *task.output);  // the slot has room for this and no more
    return PictureRow{.data = out.data()};
  }
  const std::vector<std::int64_t> shape = task.shape_of(size);
  SPDLD_TRY(out.check(shape));
  if (const std::uint64_t bytes = taken + out.resize_bytes(shape); bytes > room_bytes)
    return PictureRow{.needs_bytes = bytes};
  SPDLD_ASSIGN(std::byte* const data, out.resize(shape));
  return PictureRow{.data = data};
}

}  // namespace spdld::engine
