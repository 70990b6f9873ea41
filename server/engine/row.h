// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/plan/packing.h"
#include "engine/plan/row_filter.h"
#include "engine/row_calls.h"
#include "engine/row_fetch.h"
#include "engine/stream_port.h"

namespace spdld::engine {

// One row of one batch on its way: which item, how far it has come. Owned by the executor, which
// hands it to one thread at a time.
struct Row {
  const BatchOrder* order = nullptr;
  StreamPort* port = nullptr;
  Packing* packing = nullptr;                  // of plans that pack
  const std::atomic<bool>* dropped = nullptr;  // SampleInput's
  std::uint64_t index = 0;                     // in the batch
  std::uint64_t item = 0;
  std::uint64_t repetition = 0;  // which of the item's rows, also of a substitute
  std::uint32_t attempt = 0;     // 0: the item that the order says; then substitutes
  std::uint32_t failures = 0;    // attempts that failed; the others before this one were rejected
  const Rejection* rejected_by = nullptr;  // this attempt
  RowBytes bytes;
  std::uint64_t needs_bytes = 0;    // of the memory for decoding (engine/plan/decode_memory.h)
  std::unique_ptr<RowCalls> calls;  // of plans that have some, once they are needed
  bool alone = false;  // memory was lacking once: no other counted decode may run beside it
};

enum class RowState {
  kDone,
  kPending,      // the source has it: hands off
  kCalled,       // a function of the user's has it: likewise
  kAgain,        // another item takes its place: process() again, when it is the run's turn
  kDropped,      // it was, while it was made: nobody wants it
  kNeedsMemory,  // process() wants `needs_bytes` granted
  kNoMemory,     // there was none to be had: process() again after a pause, alone
  kFailed,       // the stream fails
};

}  // namespace spdld::engine
