// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace spdld::ctl {
namespace {

// The rows of one tensor of a preview that differ in size: texts, lists, boxes. A view of the
// preview.
class PackedRows {
 public:
  // Nothing: the tensor is dense, or what came contradicts itself.
  static std::optional<PackedRows> of(const Preview& preview, int tensor);
  // Those of the tensor of that name.
  static std::optional<PackedRows> of(const Preview& preview, std::string_view name);

  bool is_text() const { return rows_->text(); }
  std::string_view bytes(int row) const;
  // How many extents a row has; `i` below that.
  int rank() const { return rows_->shapes_size() / std::max(1, rows_->begins_size() - 1); }
  std::int64_t extent(int row, int i) const { return rows_->shapes(row * rank() + i); }
  // The row as numbers of this type; nothing: it is of another size.
  template <typename T>
  std::vector<T> numbers(int row) const {
    const std::string_view bytes = this->bytes(row);
    if (bytes.size() % sizeof(T) != 0) return {};
    std::vector<T> numbers(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

 private:
  PackedRows(const v1::PreviewRows& rows, const std::string& data) : rows_(&rows), data_(&data) {}

  const v1::PreviewRows* rows_;
  const std::string* data_;
};

std::optional<PackedRows> PackedRows::of(const Preview& preview, int tensor) {
  const v1::PreviewHeader& header = preview.header;
  if (tensor >= header.packed_size() || header.tensors(tensor).kind() == "dense")
    return std::nullopt;
  const v1::PreviewRows& rows = header.packed(tensor);
  const std::string& data = preview.data.at(static_cast<std::size_t>(tensor));
  if (rows.begins_size() != header.indices_size() + 1 || rows.begins().Get(0) != 0 ||
      !std::is_sorted(rows.begins().begin(), rows.begins().end()) ||
      rows.begins().Get(header.indices_size()) != data.size())
    return std::nullopt;
  return PackedRows(rows, data);
}

std::optional<PackedRows> PackedRows::of(const Preview& preview, std::string_view name) {
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    if (preview.header.tensors(i).name() == name) return of(preview, i);
  }
  return std::nullopt;
}

std::string_view PackedRows::bytes(int row) const {
  const std::uint64_t begin = rows_->begins(row);
  return std::string_view(*data_).substr(begin, rows_->begins(row + 1) - begin);
}

bool is_sound(const v1::Tensor& tensor) {
  if (tensor.dtype() != "float32" || tensor.shape_size() != 2) return false;
  const std::int64_t channels = tensor.shape(0);
  // A list of boxes has four numbers each.
  return channels <= SoundField::kMostChannels && channels != 0 &&
         (tensor.kind() == "dense" || tensor.shape(1) < 0);
}

// The row of this shape; one that does not have it is empty.
SoundField::Row sound_row(std::string_view bytes, std::int64_t channels, std::int64_t samples) {
  SoundField::Row row;
  if (channels < 1 || channels > SoundField::kMostChannels || samples < 0 ||
      static_cast<std::uint64_t>(samples) !=
          bytes.size() / sizeof(float) / static_cast<std::uint64_t>(channels))
    return row;
  row.channels = static_cast<std::uint32_t>(channels);
  row.samples = static_cast<std::size_t>(samples);
  row.values.resize(row.channels * row.samples);
  if (!row.values.empty())
    std::memcpy(row.values.data(), bytes.data(), row.values.size() * sizeof(float));
  return row;
}

}  // namespace

std::vector<TextField> texts_of(const Preview& preview) {
  std::vector<TextField> fields;
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const std::optional<PackedRows> rows = PackedRows::of(preview, i);
    if (!rows || !rows->is_text()) continue;
    TextField& field = fields.emplace_back();
    field.name = preview.header.tensors(i).name();
    for (int row = 0; row < preview.header.indices_size(); ++row)
      field.rows.emplace_back(rows->bytes(row));
  }
  return fields;
}

std::optional<BoxField> boxes_of(const Preview& preview) {
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    const std::optional<PackedRows> rows = PackedRows::of(preview, i);
    if (!rows || tensor.dtype() != "float32" || tensor.shape_size() != 2 || tensor.shape(1) != 4)
      continue;
    const std::optional<PackedRows> labels = PackedRows::of(preview, "labels");
    BoxField field{.name = tensor.name(), .rows = {}};
    for (int row = 0; row < preview.header.indices_size(); ++row) {
      const std::vector<float> edges = rows->numbers<float>(row);
      const std::vector<std::int64_t> numbers =
          labels ? labels->numbers<std::int64_t>(row) : std::vector<std::int64_t>{};
      std::vector<BoxField::Box>& boxes = field.rows.emplace_back();
      for (std::size_t at = 0; at + 4 <= edges.size(); at += 4)
        boxes.push_back({.left = edges[at],
                         .top = edges[at + 1],
                         .right = edges[at + 2],
                         .bottom = edges[at + 3],
                         .label = at / 4 < numbers.size() ? numbers[at / 4] : 0});
    }
    return field;
  }
  return std::nullopt;
}

std::optional<SoundField> sound_of(const Preview& preview) {
  const int count = preview.header.indices_size();
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    if (!is_sound(tensor)) continue;
    SoundField field{.name = tensor.name(), .rows = {}};
    const std::string_view data = preview.data.at(static_cast<std::size_t>(i));
    const std::optional<PackedRows> rows = PackedRows::of(preview, i);
    if (!rows && tensor.kind() != "dense") continue;
    if (rows && rows->rank() != 2) continue;
    for (int row = 0; row < count; ++row) {
      if (rows) {
        field.rows.push_back(
            sound_row(rows->bytes(row), rows->extent(row, 0), rows->extent(row, 1)));
        continue;
      }
      const std::size_t bytes = data.size() / static_cast<std::size_t>(count);
      field.rows.push_back(sound_row(data.substr(static_cast<std::size_t>(row) * bytes, bytes),
                                     tensor.shape(0), tensor.shape(1)));
    }
    return field;
  }
  return std::nullopt;
}

}  // namespace spdld::ctl
