// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "control/messages.h"

namespace spdld::control {

inline Status cut_off() { return Status(Code::kCancelled, "the caller is gone"); }

// Writes a batch into a stream of `Response`: its header, then the tensors' bytes in chunks.
template <typename Response>
Status write_batch(const pipeline::PreviewView& view, grpc::ServerWriter<Response>* writer) {
  constexpr std::size_t kChunkBytes = 1 << 20;
  Response response;
  fill(response.mutable_header(), view);
  if (!writer->Write(response)) return cut_off();
  for (std::size_t i = 0; i < view.data.size(); ++i) {
    const std::vector<std::byte>& data = view.data[i];
    for (std::size_t begin = 0; begin < data.size(); begin += kChunkBytes) {
      const std::size_t bytes = std::min(kChunkBytes, data.size() - begin);
      v1::PreviewChunk* chunk = response.mutable_chunk();
      chunk->set_tensor(static_cast<std::uint32_t>(i));
      chunk->set_data(data.data() + begin, bytes);
      if (!writer->Write(response)) return cut_off();
    }
  }
  return Status();
}

}  // namespace spdld::control
