// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_task.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/plan/image_worker.h"

namespace spdld::engine {

std::unique_ptr<FieldWorker> ImageTask::make_worker() const {
  return std::make_unique<ImageWorker>(*this);
}

std::vector<std::int64_t> ImageTask::shape_of(Size size) const {
  const std::int64_t channels = stored.channels;
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
  task_->stored = {.channels = op.channels(), .dtype = op.dtype(), .is_index = op.is_index()};
  task_->decode_key = std::move(decode_key);
  task_->layout = layout;
}

ImageChain::ImageChain(std::size_t array, const StoredFormat& stored, std::optional<Size> size,
                       Layout layout)
    : PixelChain(stored.channels, stored.dtype, size) {
  task_->given = array;
  task_->stored = stored;
  task_->layout = layout;
}

std::unique_ptr<ImageChain> chain_of_pixels(const Field& array, Layout layout) {
  constexpr std::int64_t kMostChannels = 4;
  const TensorSpec& tensor = array.tensor;
  const bool is_integer = tensor.dtype == DType::kUInt8 || tensor.dtype == DType::kUInt16;
  if (tensor.kind == FieldKind::kBytes || !is_integer || tensor.shape.size() != 3) return nullptr;
  const std::int64_t channels = tensor.shape[2];
  if (channels < 1 || channels > kMostChannels) return nullptr;
  if (std::max(tensor.shape[0], tensor.shape[1]) > std::numeric_limits<int>::max()) return nullptr;
  std::optional<Size> size;
  if (tensor.kind == FieldKind::kDense)
    size = Size{static_cast<int>(tensor.shape[1]), static_cast<int>(tensor.shape[0])};
  return std::make_unique<ImageChain>(array.index,
                                      StoredFormat{.channels = static_cast<int>(channels),
                                                   .dtype = tensor.dtype,
                                                   .is_index = array.index_numbers},
                                      size, layout);
}

}  // namespace spdld::engine
