// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "op/decode_timer.h"
#include "op/image.h"
#include "op/jpeg_images.h"
#include "op/media.h"
#include "op/tensor_spec.h"
#include "op/value.h"

namespace spdld {

class GeometryOp;
struct PackedRow;

// An op on geometry in a field's chain.
struct GeometryStep {
  const GeometryOp* op = nullptr;
  std::uint64_t draw_key = 0;  // StageKey's
};

// The sample that a worker is making, as the tasks of its fields see it. Lives for one row.
class SampleInput {
 public:
  virtual ~SampleInput() = default;
  // Parts from here on are bytes that a call has given back: of the array `i - kFirstArray`.
  static constexpr std::size_t kFirstArray = std::size_t{1} << 32;
  // The bytes of the plan's request `i`, or of an array; the value `i`: what the listing knows of
  // the item, or what a task has set.
  virtual std::span<const std::byte> part(std::size_t i) const = 0;
  // Which clip of a media file these bytes are of; null: they are the whole part.
  virtual const MediaClip* clip(std::size_t) const { return nullptr; }
  virtual Value value(std::size_t i) const = 0;
  // The array `i` of the plan, which a call has given back; null: it has given none.
  virtual const PackedRow* array(std::size_t) const { return nullptr; }
  // Called by the task that makes the value `i` (FieldTable::make_value) of the row, in whose
  // worker's memory it lies.
  virtual void set_value(std::size_t i, const Value& value) = 0;

  // Whether nobody wants the row any more. Work that may last looks at it between its steps and
  // rows of pixels, and ends with any error, such as check_wanted()'s.
  bool is_dropped() const { return dropped != nullptr && dropped->load(std::memory_order_relaxed); }
  Status check_wanted() const {
    return is_dropped() ? Status(Code::kCancelled, "nobody wants it any more") : Status();
  }

  // Runs a step of the decoding, whose time counts as such in a row that is timed.
  template <typename Step>
  auto decode(const Step& step) const {
    const DecodeTimer::Part part(decoding);
    return step();
  }

  DecodeTimer* decoding = nullptr;             // null: the row is not timed
  const std::atomic<bool>* dropped = nullptr;  // set by another thread; null: it is never
  std::uint64_t key = 0;                       // seeds the draws of this sample
  // The upright size of the image that the geometry of all fields goes by. Its task, which comes
  // first, sets it.
  Size canvas;
  // Likewise of each image that others must be as large as.
  static constexpr std::size_t kMostImages = 64;
  std::array<Size, kMostImages> leaders{};
};

// A row of a field whose rows differ in size, until the batch is packed into its slot.
struct PackedRow {
  ByteBuffer bytes;
  std::span<const std::byte> view;  // the row: in `bytes`, or in memory that outlives the batch
  std::array<std::int64_t, wire::kMaxRank> shape{};
};

// Where a task puts one tensor of a row.
class RowOutput {
 public:
  RowOutput() = default;
  RowOutput(const TensorSpec& tensor, std::byte* slot_row) : tensor_(&tensor), data_(slot_row) {}
  RowOutput(const TensorSpec& tensor, PackedRow& packed) : tensor_(&tensor), packed_(&packed) {}

  // Of a tensor of one shape: the row in the batch's slot.
  std::byte* data() const { return data_; }
  // Of one whose rows differ: memory for a row of this shape (of one extent for bytes). An error is
  // the data's: the row is larger than the tensor's bound, and the error says what to raise. Of one
  // of one shape, which rows that may differ are stacked to: data(), or the row has another shape.
  Result<std::byte*> resize(std::span<const std::int64_t> shape);
  // The row has nothing: zeros where all rows have one shape, else no values.
  Status put_nothing();
  // Memory that resize() would take for a row of this shape, beside the batch's slot.
  std::uint64_t resize_bytes(std::span<const std::int64_t> shape) const;
  // resize()'s error, before the row is made.
  Status check(std::span<const std::int64_t> shape) const;
  // The row is these bytes, which outlive the batch, instead.
  Status refer(std::span<const std::byte> bytes, std::span<const std::int64_t> shape);

 private:
  // Of a row of this shape; an error if it is over the tensor's bound.
  Result<std::uint64_t> bytes_of(std::span<const std::int64_t> shape) const;
  Result<std::uint64_t> set_shape(std::span<const std::int64_t> shape);

  const TensorSpec* tensor_ = nullptr;
  std::byte* data_ = nullptr;
  PackedRow* packed_ = nullptr;
};

// Runs a FieldTask for one worker: owns codec contexts and scratch, so that in steady state nothing
// is allocated. Not thread-safe. After an error it is as good as new.
class FieldWorker {
 public:
  virtual ~FieldWorker() = default;

  // Makes the field's tensors of one row; `out` holds one output for each. 0: they are made.
  // Otherwise the memory that this takes, which is more than `room_bytes`: nothing was made. An
  // error is the data's, or kNoMemory (base/memory/no_memory.h).
  virtual Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                                    std::uint64_t room_bytes) = 0;

  // Counts the JPEG images that it reads there, too. Called before the first run(); the counter
  // outlives this.
  virtual void count_in(JpegCounter&) {}

  // At most this is kept from one row to the next.
  virtual std::uint64_t kept_bytes() const { return 0; }
  // Whether values that it has set lie in its memory, which must stay until the row is made.
  virtual bool lends_values() const { return false; }
};

// How one decoded field of a sample is made: run as one task on one core. Immutable; used by every
// worker at once.
class FieldTask {
 public:
  virtual ~FieldTask() = default;
  virtual const std::vector<TensorSpec>& tensors() const = 0;
  virtual std::unique_ptr<FieldWorker> make_worker() const = 0;
  // The most pixels of an image that it decodes; 0: it decodes none.
  virtual std::int64_t max_pixels() const { return 0; }
  // Memory that each row takes on its way from op to op, as far as it is known before there are
  // data: the largest pair of what an op is given and what it makes. The tensors themselves do not
  // count.
  virtual std::uint64_t known_bytes() const { return 0; }
  // Whether it goes by SampleInput::canvas or a leader, so that the image's task must run before
  // it.
  virtual bool needs_canvas() const { return false; }
  // The array of the plan that it is made of, which a call gives back; none: of what was fetched.
  virtual std::optional<std::size_t> array() const { return std::nullopt; }
  // The values of the sample that it goes by.
  virtual std::vector<std::size_t> values() const { return {}; }
  // Whether it sets values of the sample; it decodes nothing else then.
  virtual bool makes_values() const { return false; }
  // How what it makes is moved, in pixels of the canvas.
  virtual std::span<const GeometryStep> steps() const { return {}; }
};

}  // namespace spdld
