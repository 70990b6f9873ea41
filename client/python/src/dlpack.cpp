// SPDX-License-Identifier: Apache-2.0
#include "dlpack.h"

#include <utility>

namespace nb = nanobind;

namespace spdld::python {
namespace {

// DLPack's ABI (dmlc/dlpack, dlpack.h), of which nanobind publishes the inner part alone.
struct Managed {
  nb::dlpack::dltensor tensor;
  void* manager_ctx = nullptr;
  void (*deleter)(Managed*) = nullptr;
};

struct ManagedVersioned {
  std::uint32_t major = 1;
  std::uint32_t minor = 0;
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedVersioned*) = nullptr;
  std::uint64_t flags = 0;
  nb::dlpack::dltensor tensor;
};

constexpr std::uint64_t kIsCopied = 1u << 1;
constexpr std::int32_t kCpu = 1;
constexpr std::int32_t kCuda = 2;

template <typename M>
struct Holder {
  M managed;
  Exchange exchange;
};

template <typename M>
struct CapsuleName;
template <>
struct CapsuleName<Managed> {
  static constexpr const char* kName = "dltensor";
};
template <>
struct CapsuleName<ManagedVersioned> {
  static constexpr const char* kName = "dltensor_versioned";
};

template <typename M>
nb::object make_capsule(const Exchange& exchange, std::uint64_t flags) {
  auto holder = std::make_unique<Holder<M>>(Holder<M>{{}, exchange});
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](M* self) { delete static_cast<Holder<M>*>(self->manager_ctx); };
  if constexpr (requires(M & managed) { managed.flags; }) holder->managed.flags = flags;
  nb::dlpack::dltensor& tensor = holder->managed.tensor;
  tensor.data = exchange.data;
  const auto [type, number] = exchange.device();
  tensor.device = {type, number};
  tensor.ndim = static_cast<std::int32_t>(exchange.shape.size());
  tensor.dtype = exchange.dtype;
  tensor.shape = holder->exchange.shape.data();

  // Who takes the tensor over renames the capsule and then calls the deleter itself.
  PyObject* capsule = PyCapsule_New(&holder->managed, CapsuleName<M>::kName, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, CapsuleName<M>::kName)) return;
    auto* managed = static_cast<M*>(PyCapsule_GetPointer(self, CapsuleName<M>::kName));
    managed->deleter(managed);
  });
  if (capsule == nullptr) nb::raise_python_error();
  static_cast<void>(holder.release());
  return nb::steal(capsule);
}

}  // namespace

std::pair<int, int> Exchange::device() const {
  if (!on_device) return {kCpu, 0};
  return {kCuda, on_device->device()};
}

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [dtype](Code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code),
                             static_cast<std::uint8_t>(8 * wire::dtype_bytes(dtype)), 1};
  };
  switch (dtype) {
    case DType::kBool: return of(Code::Bool);
    case DType::kUInt8:
    case DType::kUInt16: return of(Code::UInt);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return of(Code::Int);
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return of(Code::Float);
    case DType::kBFloat16: return of(Code::Bfloat);
  }
  throw PipelineError(12, "a field has a dtype that this client does not know (" +
                              std::to_string(static_cast<std::uint32_t>(dtype)) +
                              "): upgrade spdld in this environment");
}

nb::object to_capsule(const Exchange& exchange, bool versioned) {
  if (!versioned) return make_capsule<Managed>(exchange, 0);
  return make_capsule<ManagedVersioned>(exchange, exchange.copied ? kIsCopied : 0);
}

}  // namespace spdld::python
