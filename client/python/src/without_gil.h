// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace spdld::python {

inline bool holds_gil() {
#ifdef Py_LIMITED_API  // which is that of Python 3.12: a thread has a state while it holds the GIL
  return PyThreadState_GetDict() != nullptr;
#else
  return PyGILState_Check() != 0;
#endif
}

// Runs `call` without the GIL, whether this thread holds it or not: a library may let go of a
// tensor on a thread of its own, or after the interpreter has ended.
template <typename F>
void without_gil(F&& call) {
  if (!nanobind::is_alive() || !holds_gil()) {
    std::forward<F>(call)();
    return;
  }
  const nanobind::gil_scoped_release released;
  std::forward<F>(call)();
}

}  // namespace spdld::python
