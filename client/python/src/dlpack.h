// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "py_batch.h"
#include "spdld/batch.h"

namespace spdld::python {

// A tensor that other libraries take over by DLPack. In main memory it is the reader's to write; on
// a device it is another batch's once the reader has let go of it. Copies share the memory.
struct Exchange {
  // Where it lies on a device, the batch that tells streams when it is there; else none. It is let
  // go of after `owner`, as what waits for streams does so without the GIL.
  std::optional<PyBatch> on_device = std::nullopt;
  std::shared_ptr<const void> owner = nullptr;
  std::byte* data = nullptr;
  nanobind::dlpack::dtype dtype;
  std::vector<std::int64_t> shape;
  bool copied = false;  // the memory is a copy of the batch's

  // As DLPack has it: type and number.
  std::pair<int, int> device() const;
};

nanobind::dlpack::dtype dlpack_dtype(DType dtype);

// A capsule that ends the lease from whatever thread drops it, and without the GIL. `versioned`:
// "dltensor_versioned" of DLPack 1.0, else "dltensor".
nanobind::object to_capsule(const Exchange& exchange, bool versioned);

}  // namespace spdld::python
