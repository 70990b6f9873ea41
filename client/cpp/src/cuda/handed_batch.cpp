// SPDX-License-Identifier: Apache-2.0
#include "cuda/handed_batch.h"

#include <algorithm>
#include <thread>

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
  const Current current(*device_);
  // It is over before the batch is let go of: the stream counts as none that reads it.
  CUstream const stream = CU_STREAM_PER_THREAD;
  await_values(stream);
  const Functions& functions = device_->functions();
  device_->check(functions.MemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream),
                 "copying a batch to main memory");
  device_->check(functions.StreamSynchronize(stream), "copying a batch to main memory");
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
