// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace spdld::python {

// Adds _core.Batch and _core.Exchange.
void bind_batch(nanobind::module_& module);

}  // namespace spdld::python
