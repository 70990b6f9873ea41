// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "engine/plan/plan.h"
#include "op/row_call.h"

namespace spdld::engine {

class RowSample;

// What a row of a plan with calls has beside its batch: the arrays that its functions are given and
// give back, how far it has come, and the call that is under way. Reused from row to row. While
// that call is under way it belongs to the caller.
class RowCalls {
 public:
  // The row is made anew, of another item perhaps.
  void restart();
  // Memory for the array, which a task is to make.
  RowOutput array(const Plan& plan, std::size_t array);
  // The array, once a call has given it back or a task made it.
  const PackedRow& made(std::size_t array) const { return arrays_[array]; }
  // Whether a call gave nothing back, of which this array would be.
  bool is_absent(std::size_t array) const { return array >= first_absent_; }
  // Whether all calls have come back.
  bool are_done(const Plan& plan) const { return back_ == plan.calls.size(); }
  // Whether a call was made, and its answer not looked at.
  bool is_under_way() const { return under_way_; }
  std::size_t number() const { return back_; }  // of the call that is next, or under way

  // The first tasks were run: keeps what lies in the memory of their worker, so that the row can
  // leave it.
  void keep(const Plan& plan, const RowSample& sample);
  // The values that they have made, and those that are arrays which have come back.
  std::span<Value> made_values(const Plan& plan);
  // Whether a call has come back, so that the row goes on behind it.
  bool goes_on() const { return goes_on_; }
  // Tasks that were run, and the time that they took and that the row waited for them.
  struct Tasks {
    std::size_t run = 0;
    std::chrono::nanoseconds took{0};
    std::chrono::nanoseconds waited{0};
  };
  Tasks& tasks() { return tasks_; }
  // What the next call is given.
  CallRow& prepare(const Plan& plan);
  // The call is the caller's from now on. Answered from another thread, with answered().
  void begin(std::chrono::nanoseconds now);
  // Returns how long it took, behind its pause.
  std::chrono::nanoseconds answered(Status status, std::chrono::nanoseconds now);
  // Takes in what came back, or tells why nothing did. `rejected`: the function gave None.
  Status take(bool& rejected);
  // Of what all calls give back, from the one that came back last on: they are done.
  Status put_nothing(const Plan& plan);
  // The call that came back last is made again. False: that was done `most` times already.
  bool try_again(int most);
  int tries() const { return tries_; }  // of the call that is next, that failed

  // Frees buffers of more than this.
  void shrink(std::size_t kept_bytes);

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void keep_made(const Plan& plan, const RowSample& sample);

  CallRow call_;
  std::size_t back_ = 0;       // calls that have come back
  std::size_t first_out_ = 0;  // of the call that is under way, among the arrays
  int tries_ = 0;
  bool under_way_ = false;
  bool goes_on_ = false;
  Tasks tasks_;
  std::size_t first_absent_ = kNone;
  Status status_;
  std::chrono::nanoseconds since_{0};
  std::vector<PackedRow> arrays_;  // [array]
  // Of all calls, one behind the other: the arguments but for arrays, and the numbers among them.
  std::vector<CallArgument> arguments_;
  std::vector<std::array<std::byte, 8>> numbers_;
  // Values that tasks have made, and the texts and lists among them.
  std::vector<Value> made_;
  std::vector<ByteBuffer> copies_;
};

}  // namespace spdld::engine
