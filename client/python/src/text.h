// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <string_view>

namespace spdld::python {

// Text that may hold names of files, which need not be UTF-8: what is none becomes surrogates, as
// os.fsdecode() makes them, so that os.fsencode() gives the name back.
inline nanobind::object text_of(std::string_view bytes) {
  PyObject* const text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw nanobind::python_error();
  return nanobind::steal(text);
}

}  // namespace spdld::python
