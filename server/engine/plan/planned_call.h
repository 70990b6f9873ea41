// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/plan/rejection.h"
#include "op/field_table.h"
#include "op/row_call.h"
#include "op/tensor_spec.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

// A function of the user's own that each row is given to, once the calls before this one have come
// back and the tasks that need no further call were run.
struct PlannedCall {
  // Where an argument of a row comes from.
  struct Argument {
    enum class From {
      kPart,   // the bytes of requests[index]
      kValue,  // the value `index`, of the source or made
      kArray,  // arrays[index], which a task has made or an earlier call has given back
    };
    From from = From::kPart;
    std::size_t index = 0;
    // Of what rows need not have, as TensorSource has them.
    std::optional<std::size_t> request = {};
    std::optional<std::size_t> presence = {};
  };

  CallSpec spec = {};
  std::vector<Argument> arguments = {};  // one for each field of spec.in
  std::size_t first_array = 0;           // arrays[first_array + i] is spec.out[i]
  Rejection rejection = {};              // of rows for which it gives None
  spec::Location where = {};
};

// How a batch has the field that a call gives back.
TensorSpec tensor_of_answer(const CallField& field);
// How a function is given a field of the listing, of a part, or of an array; an error where it
// cannot be given one of this kind.
Result<CallField> argument_of(const Field& field);
CallField argument_of(const TensorSpec& array);

}  // namespace spdld::engine
