// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/row_values.h"

#include <fmt/format.h>
#include <spdld/batch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "ctl/digest.h"
#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/show/pixel_values.h"

namespace spdld::ctl {
namespace {

[[noreturn]] void contradicts(const v1::Tensor& tensor) {
  throw Failure(kFailed,
                fmt::format("the daemon sent rows of '{}' ({}) that contradict themselves: "
                            "it is of another version than this spdlctl, or broken",
                            cell(tensor.name()), show_tensor(tensor)));
}

DType dtype_of(const v1::Tensor& tensor) {
  constexpr std::array<std::pair<std::string_view, DType>, 11> kNames{
      {{"bool", DType::kBool},
       {"uint8", DType::kUInt8},
       {"int8", DType::kInt8},
       {"int16", DType::kInt16},
       {"uint16", DType::kUInt16},
       {"int32", DType::kInt32},
       {"int64", DType::kInt64},
       {"float16", DType::kFloat16},
       {"bfloat16", DType::kBFloat16},
       {"float32", DType::kFloat32},
       {"float64", DType::kFloat64}}};
  const auto named = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const auto& known) { return known.first == tensor.dtype(); });
  if (named == kNames.end()) contradicts(tensor);
  return named->second;
}

template <typename T>
T read(std::string_view data, std::size_t i) {
  T value{};
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}

nlohmann::ordered_json value_of(std::string_view data, DType dtype, std::string_view name,
                                std::size_t i) {
  switch (dtype) {
    case DType::kBool: return data[i] != 0;
    case DType::kUInt8: return read<std::uint8_t>(data, i);
    case DType::kInt8: return read<std::int8_t>(data, i);
    case DType::kInt16: return read<std::int16_t>(data, i);
    case DType::kUInt16: return read<std::uint16_t>(data, i);
    case DType::kInt32: return read<std::int32_t>(data, i);
    case DType::kInt64: return read<std::int64_t>(data, i);
    case DType::kFloat64: return read<double>(data, i);
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: break;
  }
  return value_at(data, name, i);
}

// A tensor as a client sees it: a view of the preview and of `offsets`.
TensorView view_of(const Preview& preview, int number, std::vector<std::int64_t>& offsets) {
  const v1::Tensor& tensor = preview.header.tensors(number);
  const std::string& data = preview.data.at(static_cast<std::size_t>(number));
  const int rows = preview.header.indices_size();
  TensorView view{.name = tensor.name(),
                  .dtype = dtype_of(tensor),
                  .ndim = static_cast<std::uint32_t>(tensor.shape_size()) + 1,
                  .data = reinterpret_cast<const std::byte*>(data.data()),
                  .bytes = data.size()};
  if (tensor.kind() == "dense") return view;
  view.kind = tensor.kind() == "bytes" ? FieldKind::kBytes : FieldKind::kRagged;
  if (number >= preview.header.packed_size()) contradicts(tensor);
  const v1::PreviewRows& packed = preview.header.packed(number);
  const auto& begins = packed.begins();
  if (begins.size() != rows + 1 || begins.Get(0) != 0 ||
      !std::is_sorted(begins.begin(), begins.end()) || begins.Get(rows) != data.size() ||
      (packed.shapes_size() > 0 && packed.shapes_size() != rows * tensor.shape_size()))
    contradicts(tensor);
  const std::uint64_t unit = wire::dtype_bytes(view.dtype);
  offsets.reserve(static_cast<std::size_t>(begins.size()));
  for (const std::uint64_t begin : begins)
    offsets.push_back(static_cast<std::int64_t>(begin / unit));
  view.offsets = offsets.data();
  if (packed.shapes_size() > 0) view.shapes = packed.shapes().data();
  return view;
}

// All fields of a preview, which outlives this.
struct FieldViews {
  explicit FieldViews(const Preview& preview)
      : rows(static_cast<std::uint64_t>(preview.header.indices_size())),
        offsets(static_cast<std::size_t>(preview.header.tensors_size())) {
    for (int i = 0; i < preview.header.tensors_size(); ++i)
      views.push_back(view_of(preview, i, offsets[static_cast<std::size_t>(i)]));
  }

  // Of each row.
  std::vector<std::string> digests(std::span<const TensorView> fields) const {
    std::vector<std::string> made;
    for (std::uint64_t row = 0; row < rows; ++row) made.push_back(row_digest(fields, rows, row));
    return made;
  }

  std::uint64_t rows;
  std::vector<std::vector<std::int64_t>> offsets;
  std::vector<TensorView> views;
};

}  // namespace

std::vector<ValueField> values_of(const Preview& preview) {
  const auto rows = static_cast<std::size_t>(preview.header.indices_size());
  std::vector<ValueField> fields;
  if (rows == 0) return fields;
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    if (tensor.kind() != "dense") continue;
    const DType dtype = dtype_of(tensor);
    const std::string& data = preview.data.at(static_cast<std::size_t>(i));
    const std::size_t each = rows * wire::dtype_bytes(dtype);
    if (data.size() % each != 0) contradicts(tensor);
    const std::size_t count = data.size() / each;
    if (count > ValueField::kMostValues) continue;
    ValueField& field = fields.emplace_back(ValueField{.name = tensor.name(), .rows = {}});
    for (std::size_t row = 0; row < rows; ++row) {
      auto values = nlohmann::ordered_json::array();
      for (std::size_t at = 0; at < count; ++at)
        values.push_back(value_of(data, dtype, tensor.dtype(), row * count + at));
      field.rows.push_back(tensor.shape_size() == 0 && count == 1 ? values.front()
                                                                  : std::move(values));
    }
  }
  return fields;
}

std::vector<std::string> digests_of(const Preview& preview) {
  const FieldViews of(preview);
  return of.digests(of.views);
}

std::vector<std::vector<std::string>> field_digests_of(const Preview& preview) {
  const FieldViews of(preview);
  std::vector<std::vector<std::string>> digests;
  for (const TensorView& view : of.views) digests.push_back(of.digests({&view, 1}));
  return digests;
}

}  // namespace spdld::ctl
