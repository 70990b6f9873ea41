// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "delivery/memory_probe.h"
#include "op/row_call.h"
#include "posix/unique_fd.h"
#include "spdld/runner.h"

namespace spdld::delivery {

// Bytes of a cell.
struct CellSizes {
  std::uint64_t input = 0;
  std::uint64_t answers = 0;

  friend bool operator==(const CellSizes&, const CellSizes&) = default;
};

// What a row's arguments, and the table of so many rows, take in a cell of the input.
std::uint64_t argument_bytes(const CallRow& row);
std::uint64_t row_table_bytes(std::size_t rows, std::size_t arguments);
// What the table takes in a cell of the answers, and the answers of a row at most, and at least.
std::uint64_t answer_table_bytes(const CallSpec& spec);
std::uint64_t most_answer_bytes(const CallSpec& spec, bool describes);
std::uint64_t least_answer_bytes(const CallSpec& spec);

// The memory of one child: kCells cells that the daemon writes rows to and the child can only read,
// and as many that the child writes answers to. Made, sized and sealed here. The daemon does not
// map what the child writes, but reads copies of it, so that nothing changes between a check and
// its use. Owned by the child's pool; one thread.
class CallCells {
 public:
  // kResourceExhausted: there is no memory for it.
  static Result<std::unique_ptr<CallCells>> create(CellSizes sizes, ArenaBudget& budget, uid_t uid);
  ~CallCells();
  CallCells(const CallCells&) = delete;
  CallCells& operator=(const CallCells&) = delete;

  const CellSizes& sizes() const { return sizes_; }
  std::span<std::byte> input(std::uint32_t cell) const {
    return {base_ + cell * sizes_.input, sizes_.input};
  }
  // kInvalidArgument: a cell of the answers has no such bytes.
  Status read(std::uint32_t cell, std::uint64_t offset, std::span<std::byte> to) const;

  int input_fd() const { return input_.get(); }
  int answers_fd() const { return answers_.get(); }
  void sent() { input_.reset(); }  // the child has the descriptors

 private:
  CallCells() = default;

  CellSizes sizes_;
  ArenaBudget::Reservation reservation_;
  UniqueFd input_;
  UniqueFd answers_;
  std::byte* base_ = nullptr;  // of the input
};

// Reads a cell of the answers, so that what `rows` small rows gave back one behind the other takes
// few system calls: it reads ahead, but no more than what so many would take. For the time in which
// one Answer is looked at: what it has read does not change. Of one thread.
class CellReader {
 public:
  CellReader(const CallCells& cells, std::uint32_t cell, std::size_t rows)
      : cells_(cells), cell_(cell), rows_(rows) {}
  std::uint64_t cell_bytes() const { return cells_.sizes().answers; }
  // As CallCells::read().
  Status read_entry(std::uint64_t offset, std::span<std::byte> to) {
    return read(table_, offset, to);
  }
  Status read_data(std::uint64_t offset, std::span<std::byte> to) {
    return read(data_, offset, to);
  }

 private:
  struct Window {
    std::uint64_t offset = 0;
    ByteBuffer memory = {};
  };
  Status read(Window& window, std::uint64_t offset, std::span<std::byte> to) const;

  const CallCells& cells_;
  const std::uint32_t cell_;
  const std::size_t rows_;
  Window table_;
  Window data_;
};

// Puts the rows, which must have room there, into a cell of the input.
void write_rows(std::span<const CallRow* const> rows, std::span<std::byte> cell);

// What a child says of one row.
struct RowAnswer {
  std::optional<runner::AnswerKind> kind;  // none: nothing yet
  std::string text;                        // of what is no answer: why
  std::uint64_t bytes = 0;                 // that the answers take, or would take
};

// Reads what there is in the cell of row `index` of the call, and puts its answers into `row`,
// unless that is null. kInvalidArgument: it is nothing that a child of ours says; `row` may hold
// anything.
Result<RowAnswer> read_answer(const CallSpec& spec, CellReader& cell, std::uint64_t call,
                              std::size_t index, CallRow* row);

}  // namespace spdld::delivery
