// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/fake_cuda/devices.h"
#include "tests/fake_cuda/faults.h"

namespace spdld::fake_cuda {

// What the environment tells the fake to be: see fake_cuda.h.
struct Environment {
  CUresult init = CUDA_SUCCESS;
  int version = 0;
  std::vector<Device> devices = {};  // those that this process sees
  std::uint64_t memory_bytes = 0;    // of each
  std::set<std::string> missing = {};
  bool read_only_access = true;
  std::vector<Fault> faults = {};
  std::string ledger = {};  // a path; empty: none is shared
  std::uint64_t seed = 0;
  std::uint64_t lateness = 0;
};

// As it was at the first call. Thread-safe.
const Environment& environment();

}  // namespace spdld::fake_cuda
