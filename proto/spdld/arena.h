// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What lies in the memory that a daemon shares with its consumers. Fixed-width, little-endian,
// offsets only. The daemon writes; a consumer maps read-only and writes nothing.
//
//   byte 0            ArenaHeader, padded to header_bytes
//   slots_offset      slot 0
//   + slot_stride     slot 1 ...
//
// A slot holds one batch. Where its fields lie is told once per schema by FieldLayout records (see
// wire.h, SchemaFrame), and which slot a batch is in by each BatchFrame.
namespace spdld::wire {

inline constexpr std::uint64_t kArenaMagic = 0x414e455241445053;  // "SPDARENA"
inline constexpr std::uint32_t kArenaAbiMajor = 1;
inline constexpr std::uint32_t kArenaAbiMinor = 0;
inline constexpr std::uint64_t kFieldAlignment = 256;
inline constexpr int kMaxRank = 8;  // dimensions of one row

enum class DType : std::uint32_t {
  kBool = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kInt16 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kFloat16 = 7,
  kBFloat16 = 8,
  kFloat32 = 9,
  kFloat64 = 10,
  kUInt16 = 11,
};

constexpr std::uint64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8: return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kInt32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kFloat64: return 8;
  }
  return 0;
}

struct ArenaHeader {
  std::uint64_t magic;
  std::uint32_t abi_major;
  std::uint32_t abi_minor;
  std::uint32_t header_bytes;  // offset of the first byte that is not header
  std::uint32_t page_bytes;
  std::uint64_t total_bytes;
  std::uint8_t generation[16];  // random per arena: a stale descriptor never matches
  std::uint64_t slots_offset;
  std::uint64_t slot_stride;
  std::uint32_t slot_count;
  std::uint32_t arena_id;
};
static_assert(sizeof(ArenaHeader) == 72);
static_assert(__builtin_offsetof(ArenaHeader, total_bytes) == 24);
static_assert(__builtin_offsetof(ArenaHeader, generation) == 32);
static_assert(__builtin_offsetof(ArenaHeader, slots_offset) == 48);
static_assert(__builtin_offsetof(ArenaHeader, arena_id) == 68);

enum class FieldKind : std::uint32_t {
  kDense = 1,   // rows x shape, C order
  kRagged = 2,  // rows of different shape, packed; element offsets int64[rows + 1], shapes
                // int64[rows][ndim]
  kBytes = 3,   // one byte string a row, packed; byte offsets int64[rows + 1]
};

enum FieldFlags : std::uint32_t {
  kFieldMeta = 1u << 0,    // about the rows (kIndexField, kValidField), not part of the sample
  kFieldText = 1u << 1,    // of kind bytes: each row is UTF-8
  kFieldPadded = 1u << 2,  // ragged, and all rows of a batch have one shape: rows x that shape
  // The values lie on a GPU: `offset` counts from the first byte of what the batch has there (see
  // wire.h, DeviceBatchFrame). Offsets and shapes of rows are in the slot all the same.
  kFieldOnDevice = 1u << 3,
};

inline constexpr char kIndexField[] =
    "__index";  // int64[rows]: dataset index of what the row holds
inline constexpr char kValidField[] =
    "__valid";  // bool[rows]: false = substituted, rejected, padding

struct FieldLayout {
  char name[48];  // NUL-terminated UTF-8
  FieldKind kind;
  DType dtype;
  std::uint32_t ndim;  // of one row
  std::uint32_t flags;
  std::int64_t shape[kMaxRank];  // of one row; -1 where rows differ (ragged)
  std::uint64_t offset;          // of the values, from the slot's first byte
  std::uint64_t capacity_bytes;  // of the values
  std::uint64_t offsets_offset;  // ragged, bytes: int64[rows + 1]; else 0
  std::uint64_t shapes_offset;   // ragged: int64[rows][ndim]; else 0
};
static_assert(sizeof(FieldLayout) == 160);
static_assert(__builtin_offsetof(FieldLayout, shape) == 64);
static_assert(__builtin_offsetof(FieldLayout, offset) == 128);

// Of a batch on a GPU, fields with no more room than this stay in main memory.
inline constexpr std::uint64_t kMostHostBytes = 64 * 1024;

// Whether the values of such a field lie on the GPU of a consumer that has one, whoever brings them
// there.
constexpr bool goes_to_device(const FieldLayout& field) {
  return field.capacity_bytes > kMostHostBytes && field.kind != FieldKind::kBytes &&
         (field.flags & kFieldMeta) == 0;
}

}  // namespace spdld::wire
