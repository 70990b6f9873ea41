// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <nanobind/nanobind.h>

#include <exception>

#include "spdld/error.h"
#include "text.h"

namespace nb = nanobind;

namespace spdld::python {
namespace {

void raise(const char* class_name, const Error& error) {
  const nb::object type = nb::module_::import_("spdld._errors").attr(class_name);
  const nb::object exception = type(text_of(error.what()));
  exception.attr("code") = error.code();
  PyErr_SetObject(type.ptr(), exception.ptr());
}

}  // namespace

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ConnectionError& error) {
      raise("ConnectionError", error);
    } catch (const PipelineError& error) {
      raise("PipelineError", error);
    } catch (const LeaseError& error) {
      raise("LeaseError", error);
    } catch (const DeviceError& error) {
      raise("DeviceError", error);
    } catch (const TimeoutError& error) {
      raise("TimeoutError", error);
    } catch (const Error& error) {
      raise("Error", error);
    }
  });
}

}  // namespace spdld::python
