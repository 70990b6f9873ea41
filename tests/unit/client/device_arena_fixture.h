// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>

#include "cuda/driver.h"
#include "tests/unit/client/fake_gpu.h"
#include "tests/unit/client/looks.h"

namespace spdld::test {

inline std::uintptr_t number_of(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream);
}

inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// A loader whose batches the daemon brings to the device itself, into memory of its own there. The
// driver is the fake one, whose copies and kernels run late and in a drawn order.
class DeviceArenaTest : public ::testing::Test {
 protected:
  FakeGpu gpu_;
  Looks looks_{gpu_};
};

}  // namespace spdld::test
