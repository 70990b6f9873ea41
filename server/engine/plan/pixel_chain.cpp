// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pixel_chain.h"

#include <algorithm>

#include "base/rng.h"
#include "engine/plan/image_steps.h"

namespace spdld::engine {

Status PixelChain::append(const GeometryOp& op, const StageKey& key) {
  if (!converted_by_.empty())
    return {Code::kInvalidArgument,
            "'" + key.name + "' must come before '" + converted_by_ +
                "': the pixels are converted as they are written into the batch, last"};
  geometry_.push_back({&op, key.draw_key});
  moved_by_ = key.name;
  size_ = op.output_size(size_);
  follow(op);
  return {};
}

void PixelChain::follow(const GeometryOp& op) {
  if (!known_) {
    const std::optional<Size> size = op.output_size(std::nullopt);
    if (!op.resizes() || !size) return;
    known_ = Geometry::identity(*size);
    known_->crop = {};  // of a picture of another size
    return;
  }
  const KeyedRng rng(0);  // whatever is drawn, sizes are the same
  Result<bool> fits = op.append_to(*known_, rng);
  if (fits && !*fits) {
    const std::uint64_t made = picture_bytes(known_->output(), pixel_bytes_);
    largest_known_pair_ = std::max(largest_known_pair_, last_known_ + made);
    last_known_ = made;
    known_ = Geometry::identity(known_->output());
    fits = op.append_to(*known_, rng);
  }
  // What it refuses here it refuses of each picture.
  if (!fits) known_.reset();
}

Status PixelChain::append(const PixelOp& op, const StageKey& key, std::string& doubt) {
  converted_by_ = key.name;
  const std::string unlikely = op.doubt(format_);
  if (doubt.find(unlikely) == std::string::npos) doubt += (doubt.empty() ? "" : "; ") + unlikely;
  SPDLD_TRY(op.append_to(format_, channels_));
  if (is_index() && (format_.normalized || format_.scale != 1.0F))
    return {Code::kInvalidArgument,
            "'" + key.name +
                "' would make other numbers of those of classes, which 'decode_image' gives with "
                "'mode: index': remove it, or name other fields"};
  return {};
}

}  // namespace spdld::engine
