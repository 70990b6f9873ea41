// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "op/field_task.h"
#include "op/tensor_spec.h"

// Calls of users' own functions on rows, as plain values and an interface: engine/ makes the calls,
// delivery/runners/ carries them to the processes of the user, and neither knows the other.
namespace spdld {

// What a row of an array that a function is given or gives back may take at most.
inline constexpr std::uint64_t kMostArrayBytes = std::uint64_t{256} << 20;

// A field that a function is given, or gives back.
struct CallField {
  enum class Kind : std::uint8_t { kArray = 1, kBytes, kText, kInt64, kFloat64, kBool };
  std::string name;
  Kind kind = Kind::kArray;
  DType dtype = DType::kUInt8;           // of an array
  std::vector<std::int64_t> shape = {};  // likewise; -1: of an extent that rows may differ in
  std::uint64_t max_bytes = 0;           // of what a row gives back
  int sample_rate = 0;                   // of what is sound: in Hz
  bool optional = false;                 // of what is given: rows need not have it

  friend bool operator==(const CallField&, const CallField&) = default;
};

// A function, and what it is called with. Two that are equal do the same.
struct CallSpec {
  std::string call;  // "mypkg.aug:cutout", or "aug.py:cutout" with the file's absolute path
  // `call` makes a dataset, or is one: its items are asked for, by their index and by how many
  // there are to be; the two are `in`.
  bool is_dataset = false;
  std::string args = "{}";  // keyword arguments, as a JSON object
  std::int64_t version = 1;
  std::vector<CallField> in = {};
  std::vector<CallField> out = {};
  int concurrency = 0;  // processes at once; 0: as many as there are cores
  std::chrono::milliseconds timeout{60'000};
  std::uint64_t max_rss = 0;  // bytes of a process; 0: unbounded
  bool spawn = false;         // each process imports anew, instead of being forked after the import

  friend bool operator==(const CallSpec&, const CallSpec&) = default;
};

// A dataset of the user's own that is a source, and what its items have: CallSpec::out.
struct DatasetSpec {
  CallSpec call;
  bool replaces_rejected = true;  // another item takes the place of one that is None

  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
};

// One argument of a row: of a number, its eight bytes (a bool's one), of all else its bytes.
struct CallArgument {
  std::span<const std::byte> bytes;
  std::array<std::int64_t, wire::kMaxRank> shape{};  // of an array
  bool absent = false;                               // the row has none
};

// One row at a call. The caller (RowCaller) has it, and the memory that its arguments lie in, from
// call() until the sink is told.
struct CallRow {
  // Of the order: what draws of the function are keyed by.
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t item = 0;
  const std::atomic<bool>* dropped = nullptr;  // nobody wants it any more; null: it never is
  std::chrono::nanoseconds pause{0};           // before it is taken: it was called in vain just now
  std::vector<CallArgument> arguments;         // one for each CallSpec::in
  bool describes = false;                      // asks a dataset what it is, and for no item
  // Where answers of one size are to lie, one for each CallSpec::out; empty: in their own memory.
  std::vector<std::span<std::byte>> into;

  // The answer.
  bool rejected = false;           // the function gave None: no answers
  std::vector<PackedRow> answers;  // one for each CallSpec::out, of the declared dtype and shape
  std::string description;         // of a dataset, as source/python_source.h reads it
};

// Told when a row has come back. Called from the caller's thread, once for each call(); must not
// block. `status` not OK: kDataLoss (the item's fault: a bad sample, or one whose row ended two
// processes), kFailedPrecondition (the function raised: with its traceback; or gave back what it
// does not declare), kUnavailable (a transient error of I/O), kCancelled (dropped, or the caller
// ends).
class CallSink {
 public:
  struct Back {
    std::uint64_t token;
    Status status;
  };
  virtual ~CallSink() = default;
  virtual void called(std::uint64_t token, Status status) = 0;
  // Of several that came back together.
  virtual void all_called(std::span<Back> rows) {
    for (Back& row : rows) called(row.token, std::move(row.status));
  }
};

// Carries rows of one run to the function and back. Thread-safe.
class RowCaller {
 public:
  virtual ~RowCaller() = default;
  // Returns at once. Rows are taken in the order in which they came, or in which their pauses end,
  // several at once where they wait; rows that come back may overtake each other.
  virtual void call(CallRow& row, CallSink& sink, std::uint64_t token) = 0;
  // Some rows have been dropped: those that no process has yet come back with kCancelled, from
  // another thread.
  virtual void look_for_dropped() = 0;
  // Why rows wait for processes, and what to start; empty: they do not, beyond their turn.
  virtual std::string waits_for() const = 0;
  // What a process is to be told that comes to take rows; empty: some have come already.
  virtual std::string wanted() const = 0;
};

using RowCallers = std::vector<std::shared_ptr<RowCaller>>;

}  // namespace spdld
