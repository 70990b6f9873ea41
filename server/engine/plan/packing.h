// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "engine/plan/plan.h"
#include "op/field_task.h"

namespace spdld::engine {

// The rows of one batch that differ in size, until all are there and they are packed into its slot.
// Made for a batch of a plan that packs() and owned by the executor, which hands each row to one
// thread at a time; pack() comes last. A tensor that has more than its room is counted and not
// kept.
class Packing {
 public:
  Packing(std::shared_ptr<const Plan> plan, std::uint64_t rows);

  // Of tensors[tensor], which is not dense.
  PackedRow& row(std::size_t tensor, std::uint64_t index) {
    return rows_[first_of_[tensor] + index];
  }
  // The row is made, once and for all; its tensors are its share of the batch from now on.
  void made(std::uint64_t index);
  // The same of a row whose tensors are views of `bytes`, which are kept.
  void made(std::uint64_t index, ByteBuffer& bytes);

  // Lays the first `rows` rows of all tensors that are not dense into the slot. An error: they have
  // more than their room.
  Status pack(std::byte* slot, std::uint64_t rows) const;

 private:
  struct Extents;

  bool overflows(std::size_t tensor) const;
  Status check(std::size_t tensor, std::uint64_t bytes) const;
  Status pack_rows(std::byte* slot, std::size_t tensor, std::uint64_t rows) const;
  Status pad_rows(std::byte* slot, std::size_t tensor, std::uint64_t rows) const;
  void write_lengths(std::byte* slot, std::size_t tensor, std::uint64_t rows) const;

  const std::shared_ptr<const Plan> plan_;
  std::vector<std::size_t> first_of_;  // of each tensor, in rows_
  std::vector<PackedRow> rows_;
  std::vector<std::atomic<std::uint64_t>> bytes_;  // of each tensor
  std::vector<ByteBuffer> kept_;                   // of each row
  const std::uint64_t count_;
};

}  // namespace spdld::engine
