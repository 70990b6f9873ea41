// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::python {

// From here on what libspdld throws arrives in Python as the class of the same name in
// spdld._errors, with `code` set. Call once, when the module is made.
void translate_errors();

}  // namespace spdld::python
