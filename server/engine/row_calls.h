// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "engine/plan/plan.h"
#include "op/row_call.h"

namespace spdld::engine {

class RowSample;

// What a row of a plan with calls has beside its batch: the arrays that its functions are given and
// give back, and the call that is under way. Reused from row to row. While that call is under way
// it belongs to the caller.
class RowCalls {
 public:
  // The row is made anew, of another item perhaps.
  void restart();
  // Memory for the array, which a task is to make.
  RowOutput array(const Plan& plan, std::size_t array);
  PackedRow& made(std::size_t array) { return arrays_[array]; }
  // Whether all calls have come back.
  bool are_done(const Plan& plan) const { return back_ == plan.calls.size(); }
  // Whether a call was made, and its answer not looked at.
  bool is_under_way() const { return under_way_; }
  std::size_t number() const { return back_; }  // of the call that is next, or under way

  // All tasks were run: keeps what lies in the memory of their worker, so that the row can leave
  // it.
  void keep(const Plan& plan, const RowSample& sample);
  // What the next call is given.
  CallRow& prepare(const Plan& plan);
  // The call is the caller's from now on. Answered from another thread, with answered().
  void begin(std::chrono::nanoseconds now);
  // Returns how long it took.
  std::chrono::nanoseconds answered(Status status, std::chrono::nanoseconds now);
  // Takes in what came back, or tells why nothing did. `rejected`: the function gave None.
  Status take(bool& rejected);
  // Of what all calls give back, from the one that came back last on: they are done.
  Status put_nothing(const Plan& plan);
  // The call that came back last is made again. False: that was done `most` times already.
  bool try_again(int most);

  // Frees buffers of more than this.
  void shrink(std::size_t kept_bytes);

 private:
  CallRow call_;
  std::size_t back_ = 0;       // calls that have come back
  std::size_t first_out_ = 0;  // of the call that is under way, among the arrays
  int tries_ = 0;              // of the call that is next, that failed
  bool under_way_ = false;
  Status status_;
  std::chrono::nanoseconds since_{0};
  std::vector<PackedRow> arrays_;  // [array]
  // Of all calls, one behind the other: the arguments but for arrays, the numbers among them, and
  // copies of the values that tasks have made.
  std::vector<CallArgument> arguments_;
  std::vector<std::array<std::byte, 8>> numbers_;
  std::vector<ByteBuffer> copies_;
};

}  // namespace spdld::engine
