// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "op/order_spec.h"
#include "op/params.h"
#include "op/source_spec.h"
#include "op/tensor_spec.h"

namespace spdld::spec {

// Where something stands in a text; 1-based.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;

  std::string text() const;  // "file:line:col"
};

struct StageSpec {
  std::string op;
  Params params;
  std::optional<int> concurrency;  // none: as many as there are workers
  Location where;
};

// How the rows of one field lie in a batch, where that is not as its kind has it.
struct CollateSpec {
  enum class Kind {
    kStack,   // one shape, and rows of another are an error of their items
    kRagged,  // each row as it is, one after the other
    kBytes,   // ragged, one string of bytes a row
    kPad,     // filled up to the largest row of the batch
  };
  std::optional<Kind> kind;
  double pad_value = 0;
  std::int64_t multiple_of = 1;  // of each extent that is filled up
  std::uint64_t max_bytes = 0;   // of one row; 0: as the source knows it
  Location where;
};

struct BatchSpec {
  std::int64_t size = 0;
  Tail last = Tail::kDrop;
  Layout layout = Layout::kNCHW;
  std::uint64_t max_bytes = 0;  // of a variable-size field in one batch; 0: not given
  std::map<std::string, CollateSpec> collate;  // by field
};

// What becomes of a shard's batches while one of its replicas is away.
enum class AbsentReplica {
  kWait,  // they are kept for it, and the others wait once all slots are full
  kGoOn,  // it is forgotten, and goes on where the others are when it comes
};

struct DeliverySpec {
  enum class Device { kCpu, kCuda };  // kCuda: on the GPU that a consumer names
  enum class Unavailable { kFail, kHost };
  Device device = Device::kCpu;
  Unavailable on_unavailable = Unavailable::kFail;  // that GPU cannot be delivered to
  int prefetch = 4;  // batches that one consumer may hold or have waiting
  AbsentReplica absent_replica = AbsentReplica::kWait;
};

struct ErrorPolicy {
  enum class OnDecode { kReplace, kFail };
  OnDecode decode = OnDecode::kReplace;
  RetrySpec io;
  double budget_fraction = 0.01;  // of the dataset's items ...
  std::int64_t budget_min = 100;  // ... and at least so many may be replaced
};

// What of its items a pipeline asks to be kept for later epochs, and for whoever reads the same.
struct CacheSpec {
  enum class Form {
    kEncoded,       // the bytes that fetch brought
    kDecoded,       // the pixels that decode_image made, before any crop
    kCoefficients,  // what ImageDecoder::recode() made of them; kEncoded where that made nothing
  };
  enum class Where { kRam, kDisk };
  Form form = Form::kDecoded;
  std::uint64_t size_bytes = 0;  // all that is kept, with its bookkeeping
  Where where = Where::kRam;
  Location location;
};

// As pipelines have them, in the order of the enums.
inline constexpr std::array<std::string_view, 3> kCacheForms = {"encoded", "decoded",
                                                                "coefficients"};
inline constexpr std::array<std::string_view, 2> kCacheWheres = {"ram", "disk"};
inline std::string_view name_of(CacheSpec::Form form) {
  return kCacheForms[static_cast<std::size_t>(form)];
}
inline std::string_view name_of(CacheSpec::Where where) {
  return kCacheWheres[static_cast<std::size_t>(where)];
}

// A pipeline as its author meant it: parsed, complete, checked against the op registry; nothing in
// it refers to YAML any more. Immutable once parsed.
struct PipelineSpec {
  std::string name;
  std::uint64_t seed = 0;
  SourceSpec source;
  Shuffle shuffle;
  Location lengths_where;  // of shuffle.bucket's `by`
  Location repeat_where;   // of shuffle.repeat, which is a section of its own in the text
  std::vector<StageSpec> stages;
  BatchSpec batch;
  DeliverySpec delivery;
  ErrorPolicy on_error;
  std::optional<CacheSpec> cache;

  bool is_extended = false;  // parts of it stood in other files when it was parsed
  // The whole, resolved (vars, env, extends applied), in one canonical form: two pipelines with the
  // same text do the same.
  std::string canonical_text;
  std::map<std::string, std::string> vars;  // as resolved
};

}  // namespace spdld::spec
