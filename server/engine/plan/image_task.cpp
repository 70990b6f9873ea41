// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_task.h"

#include <utility>

#include "engine/plan/image_worker.h"

namespace spdld::engine {

std::unique_ptr<FieldWorker> ImageTask::make_worker() const {
  return std::make_unique<ImageWorker>(*this);
}

std::vector<std::int64_t> ImageTask::shape_of(Size size) const {
  const std::int64_t channels = decode->channels();
  if (layout == Layout::kNCHW) return {channels, size.height, size.width};
  return {size.height, size.width, channels};
}

void ImageTask::set_tensors(const std::string& name) {
  tensors_.push_back({.name = name,
                      .kind = output ? FieldKind::kDense : FieldKind::kRagged,
                      .dtype = format.dtype,
                      .shape = shape_of(output.value_or(Size{-1, -1})),
                      .ample_row = "4MiB",
                      .noun = "images",
                      .to_one_shape = "add a resize to [height, width], a center_crop or a "
                                      "random_resized_crop"});
}

ImageChain::ImageChain(const DecodeImageOp& op, std::size_t request, std::string decode_key,
                       Layout layout)
    : PixelChain(op.channels(), op.dtype()) {
  task_->decode = &op;
  task_->request = request;
  task_->decode_key = std::move(decode_key);
  task_->layout = layout;
}

}  // namespace spdld::engine
