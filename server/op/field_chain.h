// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "op/field_task.h"

namespace spdld {

class AudioOp;
class GeometryOp;
class PixelOp;

// Which stage an op is of.
struct StageKey {
  std::string name;  // the op's
  std::string text;  // with all its parameters: the same text does the same
  // Of its draws: a hash of the op's name and of how many of that name stand before it, so that
  // adding a stage leaves the others' draws alone.
  std::uint64_t draw_key = 0;
};

// A field while a pipeline's stages are read: how it is decoded, and what is done with it then. The
// op that decodes a field makes its chain; later ops append to it what they do, and what a chain
// does not know it refuses. So an op and the chains that it fits know of each other, and the
// compiler of neither. One thread.
class FieldChain {
 public:
  virtual ~FieldChain() = default;

  // What its rows are, for messages: "images", "boxes", "arrays".
  virtual std::string_view noun() const = 0;

  // Whether geometry that names no fields means this one, too.
  virtual bool has_geometry() const { return false; }
  // Whether its rows are made of pixels, of which an op on pixels may make others.
  virtual bool has_pixels() const { return false; }
  // Whether its rows are sound, or made of it.
  virtual bool has_sound() const { return false; }
  // Whether its pixels are numbers of classes.
  virtual bool is_index() const { return false; }
  // The geometry op that was appended last; empty: none was.
  virtual std::string_view moved_by() const { return {}; }
  // Its pixels are to lie as [height, width, channels] do, whatever the batch says.
  virtual void interleave() {}
  virtual Status append(const GeometryOp& op, const StageKey& key);
  // Also whether something looks like a slip: `doubt` says so.
  virtual Status append(const PixelOp& op, const StageKey& key, std::string& doubt);
  virtual Status append(const AudioOp& op, const StageKey& key);

  // All stages were read: how the field `name` is made, which refers to the ops.
  virtual Result<std::unique_ptr<FieldTask>> finish(const std::string& name) = 0;
};

}  // namespace spdld
