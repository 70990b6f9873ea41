// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include "batch.h"
#include "errors.h"
#include "loader.h"

// The package's only compiled part: libspdld as Python objects. It talks to no one else and knows
// neither numpy's nor torch's headers.
NB_MODULE(_core, module) {
  // Loaders often live in globals, which outlast the module at the interpreter's end.
  nanobind::set_leak_warnings(false);
  spdld::python::translate_errors();
  spdld::python::bind_batch(module);
  spdld::python::bind_loader(module);
}
