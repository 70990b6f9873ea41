// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "spdld/batch.h"
#include "without_gil.h"

namespace spdld::python {

// Batch for Python's objects. Letting go of the last handle of one that lies on a device may wait
// for the streams that read it, and these for a host function in Python: so it is done without the
// GIL. One in main memory waits for nothing, and is spared that.
class PyBatch : public Batch {
 public:
  // `own`: its values are in memory of its own, and its reader's to write.
  explicit PyBatch(Batch batch, bool own = false)
      : Batch(std::move(batch)), on_device_(device() >= 0), own_(own) {}
  ~PyBatch() {
    if (!on_device_) return;
    without_gil([this] { const Batch gone(std::move(static_cast<Batch&>(*this))); });
  }
  PyBatch(const PyBatch&) = default;
  PyBatch(PyBatch&& other) noexcept
      : Batch(std::move(static_cast<Batch&>(other))),
        on_device_(std::exchange(other.on_device_, false)),
        own_(other.own_) {}
  PyBatch& operator=(const PyBatch&) = delete;
  PyBatch& operator=(PyBatch&&) = delete;

  bool own() const { return own_; }

 private:
  bool on_device_;
  bool own_;
};

}  // namespace spdld::python
