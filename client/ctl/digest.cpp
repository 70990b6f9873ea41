// SPDX-License-Identifier: Apache-2.0
#include "ctl/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"

namespace spdld::ctl {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    SPDLD_CHECK(state_ != nullptr);
    XXH3_128bits_reset(state_.get());
  }
  void add(const void* data, std::uint64_t bytes) {
    if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
  }
  std::string hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    std::string text;
    for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

std::vector<const TensorView*> hashed_fields(std::span<const TensorView> fields) {
  std::vector<const TensorView*> chosen;
  for (const TensorView& field : fields) {
    if (!field.meta) chosen.push_back(&field);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  return chosen;
}

std::uint64_t dims_of_row(const TensorView& field) { return field.ndim > 0 ? field.ndim - 1 : 0; }

}  // namespace

std::string batch_digest(std::span<const TensorView> fields, std::uint64_t rows) {
  Hash hash;
  for (const TensorView* field : hashed_fields(fields)) {
    hash.add(field->data, field->bytes);
    if (field->offsets != nullptr) hash.add(field->offsets, (rows + 1) * sizeof(std::int64_t));
    if (field->shapes != nullptr)
      hash.add(field->shapes, rows * dims_of_row(*field) * sizeof(std::int64_t));
  }
  return hash.hex();
}

std::string row_digest(std::span<const TensorView> fields, std::uint64_t rows, std::uint64_t row) {
  Hash hash;
  for (const TensorView* field : hashed_fields(fields)) {
    if (field->offsets == nullptr) {
      const std::uint64_t row_bytes = rows == 0 ? 0 : field->bytes / rows;
      hash.add(field->data + row * row_bytes, row_bytes);
      continue;
    }
    const std::uint64_t unit =
        field->kind == FieldKind::kBytes ? 1 : wire::dtype_bytes(field->dtype);
    const std::int64_t begin = field->offsets[row];
    const std::int64_t count = field->offsets[row + 1] - begin;
    hash.add(field->data + static_cast<std::uint64_t>(begin) * unit,
             static_cast<std::uint64_t>(count) * unit);
    hash.add(&count, sizeof(count));
    if (field->shapes != nullptr) {
      hash.add(field->shapes + row * dims_of_row(*field),
               dims_of_row(*field) * sizeof(std::int64_t));
    }
  }
  return hash.hex();
}

}  // namespace spdld::ctl
