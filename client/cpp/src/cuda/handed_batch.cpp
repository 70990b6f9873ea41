// SPDX-License-Identifier: Apache-2.0
#include "cuda/handed_batch.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "spdld/error.h"
#include "text.h"

namespace spdld::client::cuda {

void HandedBatch::make_ready(std::uintptr_t stream) {
  const Current current(*device_);
  CUstream const reader = usable(stream);
  await_values(reader);
  add_reader(reader);
}

void HandedBatch::record_stream(std::uintptr_t stream) {
  const Current current(*device_);
  add_reader(usable(stream));
}

void HandedBatch::read(const std::byte* from, std::uint64_t bytes, std::byte* to) {
  constexpr const char* kWhat = "copying a batch to main memory";
  const Current current(*device_);
  const Functions& functions = device_->functions();
  // Of its own: those of the caller may be captured into a graph. It is through before the batch is
  // let go of, and so counts as none that reads it.
  CUstream stream = nullptr;
  device_->check(functions.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), kWhat);
  const auto destroy = [&](CUstream_st* made) { functions.StreamDestroy(made); };
  const std::unique_ptr<CUstream_st, decltype(destroy)> made(stream, destroy);
  await_values(stream);
  if (!is_read_only()) await_writers(stream);
  device_->check(functions.MemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream),
                 kWhat);
  device_->check(functions.StreamSynchronize(stream), kWhat);
}

void HandedBatch::await_writers(CUstream stream) {
  std::vector<Reader> writers;
  {
    const std::lock_guard lock(mutex_);
    writers = readers_;
  }
  LastReads last(std::move(writers));
  if (!last.note(*device_))
    throw LeaseError(kFailedPrecondition,
                     "a batch cannot be copied to main memory while a stream that it was handed to "
                     "is being captured into a graph: copy it before or afterwards");
  last.wait_on(*device_, stream);
}

CUstream HandedBatch::usable(std::uintptr_t stream) const {
  auto* const reader = reinterpret_cast<CUstream>(stream);
  if (device_->is_capturing(reader))
    throw LeaseError(kFailedPrecondition,
                     "a batch cannot be handed to a stream that is being captured into a graph: "
                     "its memory is another one at each step. Copy it to a tensor of your own "
                     "before, and capture what reads that one");
  return reader;
}

void HandedBatch::add_reader(CUstream stream) {
  const Reader reader{stream, std::this_thread::get_id()};
  const std::lock_guard lock(mutex_);
  const auto is_same = [&](const Reader& known) { return known.is_same(reader); };
  if (std::none_of(readers_.begin(), readers_.end(), is_same)) readers_.push_back(reader);
}

}  // namespace spdld::client::cuda
