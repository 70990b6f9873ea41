// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace spdld::python {

// Adds _core.Loader.
void bind_loader(nanobind::module_& module);

}  // namespace spdld::python
