// SPDX-License-Identifier: Apache-2.0
#include "delivery/device_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spdld::delivery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::DType;
using wire::FieldKind;
using wire::FieldLayout;

constexpr std::uint64_t kRows = 4;
constexpr std::uint64_t kHostBytes = wire::kMostHostBytes;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + wire::kFieldAlignment - 1) / wire::kFieldAlignment * wire::kFieldAlignment;
}

// Fields one after the other, as they lie in a slot of main memory.
class Slot {
 public:
  explicit Slot(std::uint64_t rows = kRows) : rows_(rows) {}

  Slot& dense(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
              std::uint32_t flags = 0) {
    std::uint64_t bytes = rows_ * wire::dtype_bytes(dtype);
    for (const std::int64_t size : shape) bytes *= static_cast<std::uint64_t>(size);
    add(name, FieldKind::kDense, dtype, shape, bytes, flags);
    return *this;
  }
  Slot& ragged(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
               std::uint64_t capacity, std::uint32_t flags = 0) {
    FieldLayout& field = add(name, FieldKind::kRagged, dtype, shape, capacity, flags);
    field.offsets_offset = take((rows_ + 1) * sizeof(std::int64_t));
    field.shapes_offset = take(rows_ * shape.size() * sizeof(std::int64_t));
    return *this;
  }
  Slot& bytes(const std::string& name, std::uint64_t capacity, std::uint32_t flags = 0) {
    FieldLayout& field = add(name, FieldKind::kBytes, DType::kUInt8, {}, capacity, flags);
    field.offsets_offset = take((rows_ + 1) * sizeof(std::int64_t));
    return *this;
  }

  std::vector<FieldLayout> fields() const { return fields_; }
  std::uint64_t rows() const { return rows_; }
  std::uint64_t slot_bytes() const { return std::max<std::uint64_t>(end_, 1); }
  DeviceLayout on_device() const { return {fields_, rows_}; }

 private:
  FieldLayout& add(const std::string& name, FieldKind kind, DType dtype,
                   const std::vector<std::int64_t>& shape, std::uint64_t capacity,
                   std::uint32_t flags) {
    FieldLayout field{};
    name.copy(field.name, sizeof field.name - 1);
    field.kind = kind;
    field.dtype = dtype;
    field.ndim = static_cast<std::uint32_t>(shape.size());
    field.flags = flags;
    std::copy(shape.begin(), shape.end(), field.shape);
    field.offset = take(capacity);
    field.capacity_bytes = capacity;
    return fields_.emplace_back(field);
  }
  std::uint64_t take(std::uint64_t bytes) { return std::exchange(end_, aligned(end_ + bytes)); }

  const std::uint64_t rows_;
  std::uint64_t end_ = 0;
  std::vector<FieldLayout> fields_;
};

std::vector<std::string> names_on_device(const DeviceLayout& layout) {
  std::vector<std::string> names;
  for (const FieldLayout& field : layout.fields()) {
    if ((field.flags & wire::kFieldOnDevice) != 0) names.emplace_back(field.name);
  }
  return names;
}

TEST(DeviceLayout, ValuesAboveTheBoundGoToTheDevice) {
  const std::int64_t row = kHostBytes / kRows;
  Slot slot;
  slot.dense("at", DType::kUInt8, {row}).dense("above", DType::kUInt8, {row + 1});
  EXPECT_THAT(names_on_device(slot.on_device()), ElementsAre("above"));
}

TEST(DeviceLayout, BytesAndWhatIsAboutRowsStayInMainMemory) {
  Slot slot;
  slot.bytes("encoded", 2 * kHostBytes)
      .bytes("text", 2 * kHostBytes, wire::kFieldText)
      .dense("meta", DType::kInt64, {kHostBytes}, wire::kFieldMeta)
      .ragged("waveform", DType::kFloat32, {-1}, 2 * kHostBytes)
      .ragged("padded", DType::kFloat32, {-1, 80}, 2 * kHostBytes, wire::kFieldPadded)
      .ragged("boxes", DType::kFloat32, {-1, 4}, kHostBytes);
  const DeviceLayout layout = slot.on_device();
  EXPECT_THAT(names_on_device(layout), ElementsAre("waveform", "padded"));
  for (std::size_t i = 0; i < layout.fields().size(); ++i) {
    FieldLayout same = layout.fields()[i];
    const FieldLayout before = slot.fields()[i];
    same.flags &= ~static_cast<std::uint32_t>(wire::kFieldOnDevice);
    same.offset = before.offset;
    same.offsets_offset = before.offsets_offset;
    same.shapes_offset = before.shapes_offset;
    EXPECT_EQ(std::memcmp(&same, &before, sizeof same), 0)
        << before.name << " differs in more than where it lies";
  }
}

TEST(DeviceLayout, BatchWithoutLargeFieldsHasNothingOnTheDevice) {
  Slot slot;
  slot.dense("label", DType::kInt64, {}).bytes("text", kHostBytes);
  const DeviceLayout layout = slot.on_device();
  EXPECT_EQ(layout.device_bytes(), 0U);
  EXPECT_THAT(names_on_device(layout), IsEmpty());
  std::vector<std::byte> bytes(slot.slot_bytes());
  EXPECT_THAT(layout.parts(bytes.data(), kRows).device, IsEmpty());
}

TEST(DeviceLayout, BatchOfLargeFieldsAloneStillHasASlotInMainMemory) {
  Slot slot;
  slot.dense("image", DType::kFloat32, {3, 224, 224});
  const DeviceLayout layout = slot.on_device();
  EXPECT_EQ(layout.device_bytes(), aligned(kRows * 3 * 224 * 224 * 4));
  EXPECT_GT(layout.host_bytes(), 0U);
  EXPECT_EQ(DeviceLayout({}, kRows).device_bytes(), 0U);
  EXPECT_GT(DeviceLayout({}, kRows).host_bytes(), 0U);
}

TEST(DeviceLayout, ShortBatchIsCopiedAsFarAsItsRowsReach) {
  Slot slot;
  slot.dense("image", DType::kUInt8, {kHostBytes}).dense("label", DType::kInt64, {});
  std::vector<std::byte> bytes(slot.slot_bytes());
  const DeviceLayout::Parts parts = slot.on_device().parts(bytes.data(), 3);
  EXPECT_THAT(parts.device,
              ElementsAre(DeviceLayout::Part{.from = 0, .to = 0, .bytes = 3 * kHostBytes}));
  EXPECT_THAT(parts.host, ElementsAre(DeviceLayout::Part{
                              .from = 4 * kHostBytes, .to = 0, .bytes = 3 * sizeof(std::int64_t)}));
}

TEST(DeviceLayout, BatchWithoutRowsCopiesNothingButWhereItsRowsEnd) {
  Slot slot;
  slot.dense("image", DType::kUInt8, {kHostBytes})
      .ragged("waveform", DType::kFloat32, {-1}, 2 * kHostBytes)
      .bytes("text", 64);
  std::vector<std::byte> bytes(slot.slot_bytes());
  const DeviceLayout::Parts parts = slot.on_device().parts(bytes.data(), 0);
  EXPECT_THAT(parts.device, IsEmpty());
  ASSERT_EQ(parts.host.size(), 2U);
  for (const DeviceLayout::Part& part : parts.host) EXPECT_EQ(part.bytes, sizeof(std::int64_t));
}

// What of a field's values `rows` rows take.
std::uint64_t values_of(const FieldLayout& field, const std::byte* slot, std::uint64_t rows) {
  if (field.kind == FieldKind::kDense) {
    std::uint64_t bytes = rows * wire::dtype_bytes(field.dtype);
    for (std::uint32_t i = 0; i < field.ndim; ++i)
      bytes *= static_cast<std::uint64_t>(field.shape[i]);
    return bytes;
  }
  std::int64_t end = 0;
  std::memcpy(&end, slot + field.offsets_offset + rows * sizeof end, sizeof end);
  return static_cast<std::uint64_t>(end) * wire::dtype_bytes(field.dtype);
}

// Any fields, some to either side of the bound.
class RandomBatch {
 public:
  explicit RandomBatch(unsigned seed) : random_(seed), slot_(1 + pick(9)) {
    for (std::uint64_t field = pick(7); field > 0; --field) add(std::to_string(field));
    bytes_.resize(slot_.slot_bytes());
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random_());
    rows_ = pick(slot_.rows() + 1);
    for (const FieldLayout& field : slot_.fields()) {
      if (field.kind != FieldKind::kDense) divide(field);
    }
  }

  const Slot& slot() const { return slot_; }
  const std::byte* bytes() const { return bytes_.data(); }
  std::uint64_t rows() const { return rows_; }

 private:
  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  void add(const std::string& name) {
    constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64};
    const DType dtype = kTypes[pick(4)];
    const std::uint64_t capacity = 1 + pick(2 * kHostBytes);
    switch (pick(4)) {
      case 0: slot_.ragged(name, dtype, {-1, 3}, capacity); break;
      case 1: slot_.ragged(name, dtype, {-1}, capacity, wire::kFieldPadded); break;
      case 2: slot_.bytes(name, capacity); break;
      default:
        slot_.dense(name, dtype, {static_cast<std::int64_t>(1 + capacity / slot_.rows() / 8)},
                    pick(4) == 0 ? std::uint32_t{wire::kFieldMeta} : 0U);
    }
  }
  // Where its rows begin and end.
  void divide(const FieldLayout& field) {
    const std::uint64_t elements = field.capacity_bytes / wire::dtype_bytes(field.dtype);
    std::int64_t end = 0;
    for (std::uint64_t row = 0; row <= rows_; ++row) {
      std::memcpy(bytes_.data() + field.offsets_offset + row * sizeof end, &end, sizeof end);
      end += static_cast<std::int64_t>(pick(elements / (rows_ + 1) + 1));
    }
  }

  std::minstd_rand random_;
  Slot slot_;
  std::vector<std::byte> bytes_;
  std::uint64_t rows_ = 0;
};

using Range = std::pair<std::uint64_t, std::uint64_t>;

void expect_disjoint(std::vector<Range> ranges, std::uint64_t end) {
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t free_from = 0;
  for (const auto& [from, bytes] : ranges) {
    EXPECT_EQ(from % wire::kFieldAlignment, 0U);
    EXPECT_GE(from, free_from);
    free_from = from + bytes;
  }
  EXPECT_LE(free_from, end);
}

TEST(DeviceLayout, FieldsAndTheirTablesLieOnBytesOfTheirOwn) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomBatch batch(seed);
    const DeviceLayout layout = batch.slot().on_device();
    std::vector<Range> host;
    std::vector<Range> device;
    for (const FieldLayout& field : layout.fields()) {
      const bool there = (field.flags & wire::kFieldOnDevice) != 0;
      (there ? device : host).emplace_back(field.offset, field.capacity_bytes);
      const std::uint64_t rows = batch.slot().rows();
      if (field.kind != FieldKind::kDense)
        host.emplace_back(field.offsets_offset, (rows + 1) * sizeof(std::int64_t));
      if (field.kind == FieldKind::kRagged)
        host.emplace_back(field.shapes_offset, rows * field.ndim * sizeof(std::int64_t));
    }
    expect_disjoint(host, layout.host_bytes());
    expect_disjoint(device, layout.device_bytes());
  }
}

TEST(DeviceLayout, CopiesAreTheWholeBatchAndNothingElse) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomBatch batch(seed);
    const std::uint64_t rows = batch.rows();
    const DeviceLayout layout = batch.slot().on_device();
    std::vector<std::byte> host(layout.host_bytes());
    std::vector<std::byte> device(layout.device_bytes());
    std::uint64_t copied = 0;
    const auto copy = [&](const std::vector<DeviceLayout::Part>& parts,
                          std::vector<std::byte>& to) {
      for (const DeviceLayout::Part& part : parts) {
        EXPECT_GT(part.bytes, 0U);
        ASSERT_LE(part.to + part.bytes, to.size());
        ASSERT_LE(part.from + part.bytes, batch.slot().slot_bytes());
        std::memcpy(to.data() + part.to, batch.bytes() + part.from, part.bytes);
        copied += part.bytes;
      }
    };
    const DeviceLayout::Parts parts = layout.parts(batch.bytes(), rows);
    ASSERT_NO_FATAL_FAILURE(copy(parts.device, device));
    ASSERT_NO_FATAL_FAILURE(copy(parts.host, host));

    std::uint64_t used = 0;
    const auto expect_same = [&](const std::byte* is, std::uint64_t was, std::uint64_t bytes) {
      if (bytes > 0) {
        EXPECT_EQ(std::memcmp(is, batch.bytes() + was, bytes), 0);
      }
      used += bytes;
    };
    for (std::size_t i = 0; i < layout.fields().size(); ++i) {
      const FieldLayout& is = layout.fields()[i];
      const FieldLayout was = batch.slot().fields()[i];
      SCOPED_TRACE(was.name);
      const bool there = (is.flags & wire::kFieldOnDevice) != 0;
      expect_same((there ? device : host).data() + is.offset, was.offset,
                  values_of(was, batch.bytes(), rows));
      if (is.kind != FieldKind::kDense)
        expect_same(host.data() + is.offsets_offset, was.offsets_offset,
                    (rows + 1) * sizeof(std::int64_t));
      if (is.kind == FieldKind::kRagged)
        expect_same(host.data() + is.shapes_offset, was.shapes_offset,
                    rows * is.ndim * sizeof(std::int64_t));
    }
    EXPECT_EQ(copied, used);
  }
}

}  // namespace
}  // namespace spdld::delivery
