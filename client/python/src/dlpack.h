// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "spdld/batch.h"

namespace spdld::python {

// A tensor in main memory that other libraries take over by DLPack. Its memory is the reader's to
// write. Copies share the memory.
struct Exchange {
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  nanobind::dlpack::dtype dtype;
  std::vector<std::int64_t> shape;
  bool copied = false;  // the memory is a copy of the batch's
};

nanobind::dlpack::dtype dlpack_dtype(DType dtype);

// A capsule that ends the lease from whatever thread drops it, and without the GIL. `versioned`:
// "dltensor_versioned" of DLPack 1.0, else "dltensor".
nanobind::object to_capsule(const Exchange& exchange, bool versioned);

}  // namespace spdld::python
