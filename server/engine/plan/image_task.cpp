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

void ImageTask::set_tensors(const std::string& name, const PictureSizes& sizes) {
  tensors_.push_back(tensor_of_pictures(*this, name, sizes, "images", "4MiB"));
}

ImageChain::ImageChain(const DecodeImageOp& op, std::size_t request, std::string decode_key,
                       Layout layout, SizesOfField known)
    : PixelChain(op.channels(), op.dtype()), known_(std::move(known)) {
  task_->decode = &op;
  task_->request = request;
  task_->decode_key = std::move(decode_key);
  task_->layout = layout;
}

}  // namespace spdld::engine
