// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "op/field_table.h"
#include "op/geometry.h"
#include "op/image.h"
#include "op/jpeg_images.h"
#include "op/tensor_spec.h"

namespace spdld {

// What a stage runs: immutable after it was made, used by every worker at once. An op says what it
// does to one sample by what it does to the table of its fields, and lets the compiler decide where
// and with what that runs (engine/plan/plan.h), which is how a crop becomes a region-of-interest
// decode and a normalise part of the write into the slot.
class Op {
 public:
  virtual ~Op() = default;

  // Enters into the table what the op does: to the chains of the fields it works on, or as chains
  // of fields that it decodes. Stages are read in order, each once. `doubt` gets what looks like a
  // slip though it can be run.
  virtual Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const = 0;

  // The fields that it names; none: those that it fits.
  const std::vector<std::string>& fields() const { return fields_; }

 protected:
  explicit Op(std::vector<std::string> fields) : fields_(std::move(fields)) {}

 private:
  std::vector<std::string> fields_;
};

// Brings an item's bytes from its source. Always first.
class FetchOp final : public Op {
 public:
  FetchOp() : Op({}) {}
  Status plan(FieldTable&, const StageKey&, std::string&) const override { return {}; }
};

// Turns encoded images into pixels. One per worker, made by DecodeImageOp: owns codec contexts and
// scratch, and is reused from sample to sample without allocating. Not thread-safe.
class ImageDecoder : public RegionReader {
 public:
  // Counts the JPEG images that it reads there, too. Called before the first open(); the counter
  // outlives this.
  virtual void count_in(JpegCounter& counter) = 0;

  // Reads the header and checks the limits and that the file is whole; the size is that of the
  // upright image. `bytes` must live until the next open(). Errors are the data's: kDataLoss
  // (corrupt, truncated), kResourceExhausted (over a limit), kInvalidArgument (not an image we
  // read); or kNoMemory (base/memory/no_memory.h), also from read(). It takes little memory itself.
  virtual Result<Size> open(std::span<const std::byte> bytes) = 0;

  // What read() takes at most for the image that open() saw, whatever the region.
  virtual std::uint64_t read_bytes() const = 0;

  // Decodes `region` of the image that open() saw, once per open(). Pixels are the same, byte for
  // byte, as those of a full decode.
  Status read(const Rect& region, RowSink& rows) override = 0;

  // In place of read(): bytes that give the same image, and any region of it faster than those that
  // open() saw. Only decoders of the same DecodeImageOp understand them. They stay until the
  // next call. Empty: there are none of this image.
  virtual std::span<const std::byte> recode() = 0;
  // Memory that recode() takes at most; 0: it would give no bytes.
  virtual std::uint64_t recode_bytes() const = 0;
  // As open(), of what recode() gave.
  virtual Result<Size> open_recoded(std::span<const std::byte> bytes) = 0;
};

class DecodeImageOp : public Op {
 public:
  explicit DecodeImageOp(std::string field) : Op({std::move(field)}) {}
  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override;
  virtual std::unique_ptr<ImageDecoder> make_decoder() const = 0;
  virtual int channels() const = 0;
  virtual DType dtype() const = 0;  // of the pixels: kUInt8 or kUInt16
  // Whether pixels are numbers of classes, as a mask's: geometry takes some of them and mixes none,
  // and no pixel op makes other numbers of them.
  virtual bool is_index() const = 0;
  // An image of more is refused.
  virtual std::int64_t max_pixels() const = 0;
};

// Crops, resizes, flips: changes which pixels are where, not what they are. All its fields, which
// may be images, masks and boxes, share one draw.
class GeometryOp : public Op {
 public:
  using Op::Op;
  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override;

  // Appends to the chain what it does to an image of chain.output() pixels; false when the chain
  // must be made into pixels first (Geometry::append_resize). A second call with the same rng on a
  // fresh chain of the same size does the same.
  virtual Result<bool> append_to(Geometry& chain, KeyedRng rng) const = 0;

  // The size it gives every image, or nothing if that depends on the image (`in`: likewise,
  // before).
  virtual std::optional<Size> output_size(std::optional<Size> in) const = 0;

  // Whether it resizes: at most one such op fits into a chain.
  virtual bool resizes() const = 0;
};

// The last pass over the pixels: the decoder's integers to dtype, scaled and normalised by channel.
// out = (in * scale - mean[c]) / std[c], in float32, rounded to nearest even for dtype.
struct PixelFormat {
  DType dtype = DType::kUInt8;  // or kUInt16, the decoder's own; or a float
  float scale = 1.0F;           // 1/255, or 1/65535, once the values are meant to lie in [0, 1]
  bool normalized = false;
  std::array<float, 4> mean{};
  std::array<float, 4> std{1, 1, 1, 1};
};

class PixelOp : public Op {
 public:
  using Op::Op;
  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override;
  // Appends to what the pixels become; an error names what cannot follow what.
  virtual Status append_to(PixelFormat& format, int channels) const = 0;
  // What looks like a slip in what it does to pixels of this format, and the likely values. Empty:
  // nothing does.
  virtual std::string doubt(const PixelFormat&) const { return {}; }
};

}  // namespace spdld
