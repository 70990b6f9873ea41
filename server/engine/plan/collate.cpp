// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/collate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text/counted.h"
#include "engine/plan/pad_value.h"
#include "engine/plan/plan.h"

namespace spdld::engine {
namespace {

using Kind = spec::CollateSpec::Kind;

// What a field may take in a batch without being asked for it by name.
constexpr std::uint64_t kMostUnasked = std::uint64_t{256} << 20;

bool is_flat(const TensorSpec& tensor) { return tensor.shape.size() == 1; }
// How many of the extents differ from row to row.
std::ptrdiff_t varying(const TensorSpec& tensor) {
  return std::count(tensor.shape.begin(), tensor.shape.end(), -1);
}

// That rows differ, and which of them, or that it is not known whether they do.
std::string differ(const TensorSpec& tensor) {
  if (!tensor.sizes.empty()) return "differ in size (" + tensor.sizes + ")";
  return tensor.to_one_shape.empty() ? "differ in size" : "may differ in size";
}

class Collator {
 public:
  Collator(const spec::PipelineSpec& spec, const std::string& made_by)
      : spec_(spec), made_by_(made_by), rows_(static_cast<std::uint64_t>(spec.batch.size)) {}

  // What `tensor` becomes.
  Status apply(TensorSpec& tensor) const {
    const auto found = spec_.batch.collate.find(tensor.name);
    const spec::CollateSpec* const given =
        found == spec_.batch.collate.end() ? nullptr : &found->second;
    if (!tensor.seen_shape.empty() && (given == nullptr || given->kind == Kind::kStack)) {
      tensor.kind = FieldKind::kDense;
      tensor.shape = tensor.seen_shape;
    }
    if (given != nullptr && given->kind) SPDLD_TRY(change_kind(tensor, *given));
    if (tensor.kind == FieldKind::kDense) return {};
    if (given == nullptr && tensor.kind == FieldKind::kRagged && !tensor.to_one_shape.empty() &&
        tensor.max_row_bytes == 0)
      return Status(Code::kInvalidArgument, "pipeline '" + spec_.name + "': the " + tensor.noun +
                                                " that come out of '" + made_by_ + "' " +
                                                differ(tensor) +
                                                ", and a batch needs one: " + tensor.mend());
    return bound(tensor, given);
  }

 private:
  // What was given, with a bound: "{pad: 0, max_bytes: 4KiB}".
  static std::string bounded(const TensorSpec& tensor, const spec::CollateSpec* given) {
    std::string keys;
    if (tensor.padded) {
      keys = fmt::format("pad: {}, ", given->pad_value);
      if (given->multiple_of > 1) keys += fmt::format("multiple_of: {}, ", given->multiple_of);
    } else if (given != nullptr && given->kind == Kind::kRagged) {
      keys = "kind: ragged, ";
    }
    return "{" + keys + "max_bytes: " + tensor.ample_row + "}";
  }

  Status fail(const TensorSpec& tensor, const spec::CollateSpec& given,
              const std::string& what) const {
    return {Code::kInvalidArgument,
            given.where.text() + ": batch.collate." + tensor.name + ": " + what};
  }

  Status change_kind(TensorSpec& tensor, const spec::CollateSpec& given) const {
    const bool bytes = tensor.kind == FieldKind::kBytes;
    switch (*given.kind) {
      case Kind::kStack:
        if (tensor.kind == FieldKind::kDense) return {};
        if (tensor.kind != FieldKind::kRagged || !is_flat(tensor))
          return fail(tensor, given,
                      "its rows " + differ(tensor) + ", so they cannot be stacked: " +
                          (tensor.to_one_shape.empty() ? "" : tensor.to_one_shape + ", or ") +
                          "write 'ragged'" + std::string(bytes ? " or 'bytes'" : " or 'pad'"));
        return stack(tensor, given);
      case Kind::kRagged:
        if (tensor.kind == FieldKind::kDense)
          return fail(tensor, given, "all its rows have one shape: leave it out");
        if (bytes) {
          tensor.kind = FieldKind::kRagged;
          tensor.text = false;
          tensor.shape = {-1};
        }
        return {};
      case Kind::kBytes:
        if (!bytes)
          return fail(tensor, given,
                      "it holds " + std::string(dtype_name(tensor.dtype)) +
                          " values, not bytes: leave it out");
        tensor.text = false;
        return {};
      case Kind::kPad:
        if (tensor.kind == FieldKind::kDense)
          return fail(tensor, given, "all its rows have one shape: leave it out");
        if (bytes) tensor.shape = {-1};
        tensor.kind = FieldKind::kRagged;
        tensor.text = false;
        tensor.padded = true;
        return {};
    }
    return {};
  }

  // Of lists that all have the length of the longest, or the one that is given.
  Status stack(TensorSpec& tensor, const spec::CollateSpec& given) const {
    const std::uint64_t element = wire::dtype_bytes(tensor.dtype);
    const std::uint64_t known = tensor.is_loose ? 0 : tensor.max_row_bytes;
    const std::uint64_t row_bytes = given.max_bytes > 0 ? given.max_bytes : known;
    if (row_bytes == 0)
      return fail(tensor, given,
                  "nothing says how long its rows are: if all are of one length, write {kind: "
                  "stack, max_bytes: BYTES_OF_A_ROW}, and else 'ragged' or 'pad'");
    if (row_bytes % element != 0)
      return fail(tensor, given,
                  "max_bytes: a row of " + std::string(dtype_name(tensor.dtype)) + " takes " +
                      counted(element, "byte") + " a value, and " + std::to_string(row_bytes) +
                      " are no multiple of that");
    tensor.kind = FieldKind::kDense;
    tensor.shape = {static_cast<std::int64_t>(row_bytes / element)};
    return {};
  }

  Status bound(TensorSpec& tensor, const spec::CollateSpec* given) const {
    const std::uint64_t most = spec_.batch.max_bytes;
    tensor.bound_name = "batch.collate." + tensor.name + ".max_bytes";
    if (given != nullptr && given->max_bytes > 0) {
      tensor.max_row_bytes = given->max_bytes;
    } else if (tensor.max_row_bytes == 0) {
      if (most == 0)
        return Status(Code::kInvalidArgument,
                      "'" + tensor.name +
                          "' differs in size from row to row, so the batch needs a bound: " +
                          // Files may be large, and what is large has a mean that says more.
                          (tensor.kind == FieldKind::kRagged
                               ? "write 'batch: {collate: {" + tensor.name + ": " +
                                     bounded(tensor, given) + "}}' with what one may take, or set "
                               : "set ") +
                          "batch.max_bytes (for example 64MiB) to what " + counted(rows_, "row") +
                          " may take" + (rows_ == 1 ? "" : " together"));
      tensor.max_row_bytes = most;
      tensor.bound_name = "batch.max_bytes";
    }
    const std::uint64_t pad = tensor.padded ? static_cast<std::uint64_t>(given->multiple_of) *
                                                  wire::dtype_bytes(tensor.dtype)
                                            : 0;
    // Padded rows are as large as the largest; what the rounding adds is known for flat ones.
    const std::uint64_t row = tensor.max_row_bytes + pad;
    const bool overflows = row > ~std::uint64_t{0} / rows_;
    const std::uint64_t all = overflows ? ~std::uint64_t{0} : row * rows_;
    // Rows that are filled up along several extents may take more than any of them did.
    const bool is_bound = !tensor.padded || varying(tensor) <= 1;
    tensor.max_bytes = most == 0 ? all : is_bound ? std::min(most, all) : most;
    // What the batch has no room for is not made.
    if (tensor.max_row_bytes > tensor.max_bytes) {
      tensor.max_row_bytes = tensor.max_bytes;
      tensor.bound_name = "batch.max_bytes";
    }
    if (most == 0 && (given == nullptr || given->max_bytes == 0) && all > kMostUnasked)
      return Status(Code::kInvalidArgument,
                    "'" + tensor.name + "': a row has up to " +
                        std::to_string(tensor.max_row_bytes) + " bytes, and " +
                        counted(rows_, "row") + " of that size " + std::to_string(all) + ": " +
                        (tensor.bounded_by.empty()
                             ? ""
                             : "lower " + tensor.bounded_by + ", which that follows from, or ") +
                        "set batch.max_bytes (for example 256MiB) to what the rows of a batch "
                        "may take together, or " +
                        tensor.bound_name + " to what one row may");
    return {};
  }

  const spec::PipelineSpec& spec_;
  const std::string& made_by_;
  const std::uint64_t rows_;
};

}  // namespace

Status collate(const spec::PipelineSpec& spec, std::vector<TensorSpec>& tensors,
               std::vector<TensorSource>& sources, const std::string& made_by) {
  for (const auto& entry : spec.batch.collate) {
    const std::string& name = entry.first;
    const spec::CollateSpec& given = entry.second;
    const bool known = std::any_of(tensors.begin(), tensors.end(),
                                   [&](const TensorSpec& tensor) { return tensor.name == name; });
    if (known) continue;
    std::string names;
    for (const TensorSpec& tensor : tensors)
      names += (names.empty() ? "'" : ", '") + tensor.name + "'";
    return Status(Code::kInvalidArgument, given.where.text() +
                                              ": batch.collate: there is no field '" + name +
                                              "'; there are " + names);
  }
  const Collator collator(spec, made_by);
  // Lengths come last, so that those before keep their numbers.
  const std::size_t count = tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    SPDLD_TRY(collator.apply(tensors[i]));
    if (!tensors[i].padded) continue;
    const spec::CollateSpec& given = spec.batch.collate.at(tensors[i].name);
    if (!is_value_of(tensors[i].dtype, given.pad_value))
      return Status(Code::kInvalidArgument, given.where.text() + ": batch.collate." +
                                                tensors[i].name + ".pad: no value of its dtype, " +
                                                std::string(dtype_name(tensors[i].dtype)));
    sources[i].pad_value = given.pad_value;
    sources[i].multiple_of = given.multiple_of;
    TensorSpec length{.name = tensors[i].name + "_length", .dtype = DType::kInt64};
    const bool taken = std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
      return tensor.name == length.name;
    });
    if (taken)
      return Status(Code::kInvalidArgument,
                    given.where.text() + ": batch.collate." + tensors[i].name +
                        ": the lengths of padded rows are named '" + length.name +
                        "', and there is such a field: call that one something else");
    const std::ptrdiff_t extents = varying(tensors[i]);
    if (extents > 1) length.shape = {static_cast<std::int64_t>(extents)};
    tensors.push_back(std::move(length));
    sources.push_back({.kind = TensorSource::Kind::kLength, .index = i});
  }
  return {};
}

}  // namespace spdld::engine
