// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace spdld::python {

// Runs `call` without the GIL, whether this thread holds it or not: a library may let go of a
// tensor on a thread of its own, or after the interpreter has ended.
template <typename F>
void without_gil(F&& call) {
  if (!nanobind::is_alive() || PyGILState_Check() == 0) {
    std::forward<F>(call)();
    return;
  }
  const nanobind::gil_scoped_release released;
  std::forward<F>(call)();
}

}  // namespace spdld::python
