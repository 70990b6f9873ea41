// SPDX-License-Identifier: Apache-2.0
#include "engine/image_task.h"

#include <utility>

#include "engine/image_worker.h"

namespace spdld::engine {

std::unique_ptr<FieldWorker> ImageTask::make_worker() const {
  return std::make_unique<ImageWorker>(*this);
}

std::vector<std::int64_t> ImageTask::shape_of(Size size) const {
  const std::int64_t channels = decode->channels();
  if (layout == Layout::kNCHW) return {channels, size.height, size.width};
  return {size.height, size.width, channels};
}

int ImageTask::bytes_per_value() const {
  return static_cast<int>(wire::dtype_bytes(decode->dtype()));
}

ImageView ImageTask::packed(const std::uint8_t* data, Size size) const {
  return {.data = data,
          .width = size.width,
          .height = size.height,
          .channels = decode->channels(),
          .stride_bytes = std::ptrdiff_t{size.width} * pixel_bytes(),
          .bytes_per_value = bytes_per_value()};
}

void ImageTask::set_tensor(const std::string& name) {
  tensors_.push_back({.name = name,
                      .kind = output ? FieldKind::kDense : FieldKind::kRagged,
                      .dtype = format.dtype,
                      .shape = shape_of(output.value_or(Size{-1, -1})),
                      .to_one_shape = "add a resize to [height, width], a center_crop or a "
                                      "random_resized_crop"});
}

ImageChain::ImageChain(const DecodeImageOp& op, std::size_t request, std::string decode_key,
                       Layout layout) {
  task_->decode = &op;
  task_->request = request;
  task_->decode_key = std::move(decode_key);
  task_->layout = layout;
  task_->format.dtype = op.dtype();
}

Status ImageChain::append(const GeometryOp& op, const StageKey& key) {
  if (!converted_by_.empty())
    return {Code::kInvalidArgument,
            "'" + key.name + "' must come before '" + converted_by_ +
                "': the pixels are converted as they are written into the batch, last"};
  task_->geometry.push_back({&op, key.draw_key});
  moved_by_ = key.name;
  size_ = op.output_size(size_);
  return {};
}

Status ImageChain::append(const PixelOp& op, const StageKey& key, std::string& doubt) {
  converted_by_ = key.name;
  const std::string unlikely = op.doubt(task_->format);
  if (doubt.find(unlikely) == std::string::npos) doubt += (doubt.empty() ? "" : "; ") + unlikely;
  SPDLD_TRY(op.append_to(task_->format, task_->decode->channels()));
  if (is_mask() && (task_->format.normalized || task_->format.scale != 1.0F))
    return {Code::kInvalidArgument,
            "'" + key.name +
                "' would make other numbers of those of classes, which 'decode_image' gives with "
                "'mode: index': remove it, or name other fields"};
  return {};
}

Result<std::unique_ptr<FieldTask>> ImageChain::finish(const std::string& name) {
  task_->output = size_;
  task_->set_tensor(name);
  return std::move(task_);
}

}  // namespace spdld::engine
