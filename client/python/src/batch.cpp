// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cursor_tuple.h"
#include "dlpack.h"
#include "py_batch.h"
#include "spdld/batch.h"
#include "without_gil.h"

namespace nb = nanobind;

namespace spdld::python {
namespace {

using Owner = std::shared_ptr<const void>;
using Array = nb::ndarray<nb::numpy, nb::ro>;
using OwnArray = nb::ndarray<nb::numpy>;  // its reader's to write

void let_go(void* owner) noexcept { delete static_cast<Owner*>(owner); }

// The last slot of an arena that a device copied from is given back to the driver, which may wait.
void let_go_of_slot(void* owner) noexcept {
  without_gil([owner] { let_go(owner); });
}

nb::capsule capsule_of(Owner owner, void (*drop)(void*) noexcept) {
  auto held = std::make_unique<Owner>(std::move(owner));
  nb::capsule capsule(held.get(), drop);
  static_cast<void>(held.release());
  return capsule;
}

template <typename Kind>
nb::object array_of(Owner owner, const void* data, const std::vector<std::size_t>& shape,
                    nb::dlpack::dtype dtype, void (*drop)(void*) noexcept = let_go) {
  static std::byte nothing{};  // numpy wants an address where there is no element
  const nb::capsule base = capsule_of(std::move(owner), drop);
  const Kind array(data != nullptr ? const_cast<void*>(data) : &nothing, shape.size(), shape.data(),
                   base, nullptr, dtype);
  return nb::cast(array, nb::rv_policy::reference);
}

// Fields that were copied at hand-out stay readable.
const TensorView& field_of(const PyBatch& batch, std::string_view name) {
  const TensorView& field = batch[name];
  if (!field.copied && batch.released()) {
    throw LeaseError(9, "batch (epoch " + std::to_string(batch.epoch()) + ", step " +
                            std::to_string(batch.step()) + ") was released: read '" +
                            std::string(name) + "' before release()");
  }
  return field;
}

// libspdld holds no lease, and so calls released, what consists of copies alone.
bool released(const PyBatch& batch) {
  const auto fields = batch.fields();
  return batch.released() && std::any_of(fields.begin(), fields.end(),
                                         [](const TensorView& field) { return !field.copied; });
}

// The rows as they lie in memory: for a dense field (rows, ...), else all rows' values in one
// dimension.
std::vector<std::size_t> packed_shape(const TensorView& field) {
  if (field.kind == FieldKind::kDense) return {field.shape().begin(), field.shape().end()};
  return {static_cast<std::size_t>(field.bytes / wire::dtype_bytes(field.dtype))};
}

// numpy has no bfloat16: its bits go as uint16, and the Python side gives them their type.
nb::dlpack::dtype numpy_dtype(DType dtype) {
  if (dtype == DType::kBFloat16) return nb::dtype<std::uint16_t>();
  return dlpack_dtype(dtype);
}

nb::object values(const PyBatch& batch, std::string_view name) {
  const TensorView& field = field_of(batch, name);
  if (field.on_device)
    throw LeaseError(9, "'" + std::string(name) +
                            "' lies on cuda:" + std::to_string(batch.device()) +
                            ", and numpy has no arrays there: take it by batch.torch() or "
                            "batch.dlpack(), or leave device= out");
  if (batch.own())
    return array_of<OwnArray>(batch.owner(field), field.data, packed_shape(field),
                              numpy_dtype(field.dtype));
  const bool in_slot = batch.device() >= 0 && !field.copied;
  return array_of<Array>(batch.owner(field), field.data, packed_shape(field),
                         numpy_dtype(field.dtype), in_slot ? let_go_of_slot : let_go);
}

std::vector<std::int64_t> offsets(const PyBatch& batch, std::string_view name) {
  const TensorView& field = field_of(batch, name);
  if (field.offsets == nullptr) return {};
  return {field.offsets, field.offsets + batch.rows() + 1};
}

std::vector<std::vector<std::int64_t>> shapes(const PyBatch& batch, std::string_view name) {
  const TensorView& field = field_of(batch, name);
  if (field.shapes == nullptr) return {};
  const std::size_t width = field.ndim - 1;
  std::vector<std::vector<std::int64_t>> all;
  all.reserve(batch.rows());
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    all.emplace_back(field.shapes + row * width, field.shapes + (row + 1) * width);
  }
  return all;
}

std::pair<std::byte*, Owner> copy_of(const TensorView& field) {
  auto* bytes = static_cast<std::byte*>(::operator new (field.bytes + 1, std::align_val_t{64}));
  Owner owner(static_cast<const void*>(bytes), [](const void* p) {
    ::operator delete (const_cast<void*>(p), std::align_val_t{64});
  });
  if (field.bytes != 0) std::memcpy(bytes, field.data, field.bytes);
  return {bytes, std::move(owner)};
}

// Its rows as they lie in the batch.
Exchange in_place(const PyBatch& batch, const TensorView& field) {
  Exchange result;
  if (field.on_device) result.on_device.emplace(batch);
  result.owner = batch.owner(field);
  result.data = const_cast<std::byte*>(field.data);
  result.dtype = dlpack_dtype(field.dtype);
  for (const std::size_t extent : packed_shape(field)) {
    result.shape.push_back(static_cast<std::int64_t>(extent));
  }
  return result;
}

// One row of a ragged field on a device.
Exchange device_row(const PyBatch& batch, std::string_view name, std::size_t row) {
  const TensorView& field = field_of(batch, name);
  Exchange result = in_place(batch, field);
  const std::size_t width = field.ndim - 1;
  result.data += static_cast<std::size_t>(field.offsets[row]) * wire::dtype_bytes(field.dtype);
  result.shape.assign(field.shapes + row * width, field.shapes + (row + 1) * width);
  // DLPack and the array interface want none where there is no element.
  if (field.offsets[row] == field.offsets[row + 1]) result.data = nullptr;
  return result;
}

// copy: true = always, false = never, none = where it is small or there is no private view of its
// memory. A small field is copied so that what is written is not seen in the batch.
Exchange exchange(const PyBatch& batch, std::string_view name, std::optional<bool> copy) {
  const TensorView& field = field_of(batch, name);
  if (field.on_device) return in_place(batch, field);
  Exchange result;
  result.dtype = dlpack_dtype(field.dtype);
  for (const std::size_t extent : packed_shape(field)) {
    result.shape.push_back(static_cast<std::int64_t>(extent));
  }
  bool copies = copy.value_or(field.copied);
  if (!copies) {
    try {
      result.data = batch.private_data(field);
      result.owner = batch.owner(field);
    } catch (const LeaseError&) {
      if (copy.has_value()) throw;
      copies = true;
    }
  }
  if (copies) std::tie(result.data, result.owner) = copy_of(field);
  result.copied = copies;
  return result;
}

// The very memory of the slot, which is mapped read-only, or of the device.
Exchange shared(const PyBatch& batch, std::string_view name) {
  return in_place(batch, field_of(batch, name));
}

[[noreturn]] void refuse(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  nb::raise_python_error();
}

// The value of an argument. Throws TypeError, which says what the argument must be.
template <typename T>
T argument(const nb::object& given, const char* name, const char* what) {
  T value{};
  if (nb::try_cast(given, value)) return value;
  const std::string why = std::string(name) + " is " + nb::repr(given).c_str() + ": it is " + what;
  throw nb::type_error(why.c_str());
}

std::string place_text(const Exchange& self) {
  return self.on_device ? "on cuda:" + std::to_string(self.on_device->device()) : "in main memory";
}

// Makes the stream wait for the values, as the array API standard has it: None and 1 are the legacy
// default stream, 2 that of the thread, -1 waits for nothing, and all others are a CUstream.
void make_ready(const Exchange& self, const nb::object& stream) {
  constexpr std::intptr_t kLegacy = 1;
  constexpr std::intptr_t kNoWait = -1;
  const auto wanted = stream.is_none() ? kLegacy
                                       : argument<std::intptr_t>(
                                             stream, "stream", "None or the number of a CUstream");
  if (wanted == 0)
    refuse("stream 0 may mean two things: say 1 (the legacy default stream) or 2 (the thread's)");
  if (wanted < kNoWait) refuse("stream is " + std::to_string(wanted) + ", which is no stream");
  if (wanted == kNoWait) return;
  const nb::gil_scoped_release released;
  self.on_device->make_ready(static_cast<std::uintptr_t>(wanted));
}

nb::object dlpack_of(const Exchange& self, const nb::object& stream, const nb::object& max_version,
                     const nb::object& dl_device, std::optional<bool> copy) {
  if (!self.on_device && !stream.is_none())
    refuse("this tensor is in main memory: stream must be None");
  const auto pair_of = [](const nb::object& given, const char* name) {
    return argument<std::pair<int, int>>(given, name, "None or a pair of numbers");
  };
  if (!dl_device.is_none() && pair_of(dl_device, "dl_device") != self.device()) {
    const auto [type, number] = self.device();
    refuse("this tensor is " + place_text(self) + ": dl_device must be (" + std::to_string(type) +
           ", " + std::to_string(number) + ")");
  }
  if (self.on_device) {
    if (copy.value_or(false))
      refuse("this tensor is on a device, where it is not copied: clone what you take of it");
    make_ready(self, stream);
  }
  const bool versioned = !max_version.is_none() && pair_of(max_version, "max_version").first >= 1;
  if (!copy.value_or(false)) return to_capsule(self, versioned);

  std::size_t bytes = self.dtype.bits / 8;
  for (const std::int64_t extent : self.shape) bytes *= static_cast<std::size_t>(extent);
  TensorView view;
  view.data = self.data;
  view.bytes = bytes;
  Exchange duplicate = self;
  std::tie(duplicate.data, duplicate.owner) = copy_of(view);
  duplicate.copied = true;
  return to_capsule(duplicate, versioned);
}

// torch's DLPack knows bool and uint16 only in newer versions, so that they travel as types of the
// same size.
nb::object torch_capsule(const Exchange& self, const nb::object& stream) {
  if (self.on_device) make_ready(self, stream);
  Exchange plain = self;
  if (plain.dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool)) {
    plain.dtype = nb::dtype<std::uint8_t>();
  } else if (plain.dtype == nb::dtype<std::uint16_t>()) {
    plain.dtype = nb::dtype<std::int16_t>();
  }
  return to_capsule(plain, false);
}

// Version 3. The legacy default stream waits for the values, and a library that takes them waits
// for that stream.
nb::dict cuda_array_interface(const Exchange& self) {
  if (!self.on_device) {
    PyErr_SetString(PyExc_AttributeError, "this tensor is in main memory");
    nb::raise_python_error();
  }
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(self.dtype.code);
  if (code == Code::Bfloat) {
    PyErr_SetString(PyExc_AttributeError,
                    "numpy has no name for bfloat16: take this tensor by from_dlpack()");
    nb::raise_python_error();
  }
  const char kind = code == Code::Bool   ? 'b'
                    : code == Code::UInt ? 'u'
                    : code == Code::Int  ? 'i'
                                         : 'f';
  make_ready(self, nb::none());
  nb::dict interface;
  const int bytes = self.dtype.bits / 8;
  interface["version"] = 3;
  interface["shape"] = nb::tuple(nb::cast(self.shape));
  interface["typestr"] = std::string(bytes == 1 ? "|" : "<") + kind + std::to_string(bytes);
  // numba and cupy take either. torch refuses what is read-only, and takes it by from_dlpack(),
  // whose older form has no such flag.
  interface["data"] =
      nb::make_tuple(reinterpret_cast<std::uintptr_t>(self.data), self.on_device->read_only());
  interface["strides"] = nb::none();
  interface["stream"] = 1;
  return interface;
}

// Exchange.__array__: without it numpy would make an array that holds the Exchange as one object.
nb::object numpy_array_of(const nb::object& self, const nb::object& dtype, const nb::object& copy) {
  const auto& exchange = nb::cast<const Exchange&>(self);
  if (exchange.on_device) {
    const std::string why = "this tensor lies " + place_text(exchange) +
                            ", and numpy has no arrays there: take it over by from_dlpack() of "
                            "torch, cupy or jax, or leave device= out";
    throw nb::type_error(why.c_str());
  }
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("from_dlpack")(self);
  // numpy 1 has no copy=None: there, and here, asarray() copies only if it must.
  if (copy.is_none()) return numpy.attr("asarray")(array, nb::arg("dtype") = dtype);
  return numpy.attr("array")(array, nb::arg("dtype") = dtype, nb::arg("copy") = copy);
}

std::string dtype_text(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::Bool) return "bool";
  const char* const kind = code == Code::UInt     ? "uint"
                           : code == Code::Int    ? "int"
                           : code == Code::Bfloat ? "bfloat"
                                                  : "float";
  return kind + std::to_string(dtype.bits);
}

// How its reader comes to an array.
std::string ways_out(const Exchange& self) {
  return self.on_device ? "from_dlpack() of torch, cupy or jax takes it where it lies, "
                          "Loader(..., output='torch') gives tensors, and batch.copy() has numpy's "
                          "arrays"
                        : "from_dlpack() of numpy, torch or jax takes it";
}

std::string text_of_tensor(const Exchange& self) {
  std::string shape;
  for (const std::int64_t extent : self.shape)
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  return "<spdld tensor " + place_text(self) + ": " + dtype_text(self.dtype) + "[" + shape +
         "]; no array: " + ways_out(self) + ">";
}

// What an array would have, but for what Python and libraries ask any object for.
nb::object no_attribute(const Exchange& self, const std::string& name) {
  // Its own error comes to pass here, too.
  if (name == "__cuda_array_interface__") return cuda_array_interface(self);
  std::string why = "a tensor of a batch has no attribute '" + name + "'";
  if (!name.starts_with('_')) why += ", as it is no array: " + ways_out(self);
  PyErr_SetString(PyExc_AttributeError, why.c_str());
  nb::raise_python_error();
}

nb::object no_element(const Exchange& self, const nb::object&) {
  const std::string why =
      "a tensor of a batch has no elements, as it is no array: " + ways_out(self);
  throw nb::type_error(why.c_str());
}

const char* kind_name(FieldKind kind) {
  switch (kind) {
    case FieldKind::kDense: return "dense";
    case FieldKind::kRagged: return "ragged";
    case FieldKind::kBytes: return "bytes";
  }
  return "unknown";
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "uint8";
    case DType::kUInt16: return "uint16";
    case DType::kInt8: return "int8";
    case DType::kInt16: return "int16";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
  }
  return "unknown";
}

std::vector<std::string_view> names(const PyBatch& batch) {
  std::vector<std::string_view> all;
  for (const TensorView& field : batch.fields()) {
    if (!field.meta) all.push_back(field.name);
  }
  return all;
}

nb::object meta_array(const PyBatch& batch, const char* name, bool if_absent) {
  if (const TensorView* field = batch.find(name)) {
    return array_of<Array>(batch.owner(*field), field->data, packed_shape(*field),
                           numpy_dtype(field->dtype));
  }
  if (!if_absent) {
    return array_of<Array>(nullptr, nullptr, {0}, nb::dtype<std::int64_t>());
  }
  auto ones = std::make_shared<std::vector<std::uint8_t>>(batch.rows(), std::uint8_t{1});
  const void* data = ones->data();
  return array_of<Array>(std::move(ones), data, {batch.rows()}, dlpack_dtype(DType::kBool));
}

}  // namespace

void bind_batch(nb::module_& module) {
  nb::class_<Exchange>(module, "Exchange", "A tensor that from_dlpack() takes over.")
      .def("__dlpack__", &dlpack_of, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__", &Exchange::device)
      .def("__array__", &numpy_array_of, nb::arg("dtype") = nb::none(),
           nb::arg("copy") = nb::none())
      .def_prop_ro("__cuda_array_interface__", &cuda_array_interface)
      .def("__repr__", &text_of_tensor)
      .def("__getattr__", &no_attribute)
      .def("__getitem__", &no_element)
      .def_prop_ro("dtype", [](const Exchange& self) { return dtype_text(self.dtype); })
      .def_prop_ro("copied", [](const Exchange& self) { return self.copied; })
      .def_prop_ro("shape", [](const Exchange& self) { return nb::tuple(nb::cast(self.shape)); })
      .def("_torch_capsule", &torch_capsule, nb::arg("stream") = nb::none());

  nb::class_<PyBatch>(module, "Batch", "libspdld's batch; spdld.Batch is its face.")
      .def_prop_ro("epoch", &PyBatch::epoch)
      .def_prop_ro("step", &PyBatch::step)
      .def_prop_ro("rows", &PyBatch::rows)
      .def_prop_ro("pipeline_version", &PyBatch::pipeline_version)
      .def_prop_ro("order_digest", &PyBatch::order_digest)
      .def("state", [](const PyBatch& self) { return cursor_tuple(self.state()); })
      .def_prop_ro("released", &released)
      .def_prop_ro("names", &names)
      .def("has",
           [](const PyBatch& self, std::string_view name) {
             const TensorView* field = self.find(name);
             return field != nullptr && !field->meta;
           })
      .def("kind", [](const PyBatch& self,
                      std::string_view name) { return kind_name(field_of(self, name).kind); })
      .def("is_text",
           [](const PyBatch& self, std::string_view name) { return field_of(self, name).text; })
      .def("dtype", [](const PyBatch& self,
                       std::string_view name) { return dtype_name(field_of(self, name).dtype); })
      .def("copied",
           [](const PyBatch& self, std::string_view name) { return field_of(self, name).copied; })
      .def("values", &values)
      .def("offsets", &offsets)
      .def("shapes", &shapes)
      .def("exchange", &exchange, nb::arg("name"), nb::arg("copy") = nb::none())
      .def("shared", &shared)
      .def("device_row", &device_row)
      .def_prop_ro("device", &PyBatch::device)
      .def("on_device", [](const PyBatch& self,
                           std::string_view name) { return field_of(self, name).on_device; })
      .def("make_ready", &PyBatch::make_ready, nb::call_guard<nb::gil_scoped_release>())
      .def("record_stream", &PyBatch::record_stream, nb::call_guard<nb::gil_scoped_release>())
      .def("indices",
           [](const PyBatch& self) { return meta_array(self, wire::kIndexField, false); })
      .def("valid", [](const PyBatch& self) { return meta_array(self, wire::kValidField, true); })
      .def(
          "copy", [](const PyBatch& self) { return PyBatch(self.copy(), true); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("release", &PyBatch::release, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace spdld::python
