// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace spdld::fake_cuda {

// A handle that was never given before: one that is used after its end is found out. None of them
// is an address, or one of CUDA's special handles.
template <typename Handle>
Handle new_handle() {
  static std::atomic<std::uintptr_t> last{0x1000};
  return reinterpret_cast<Handle>(last += 0x10);
}

}  // namespace spdld::fake_cuda
