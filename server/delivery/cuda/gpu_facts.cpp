// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/gpu_facts.h"

#include <fmt/format.h>

#include <array>

namespace spdld::delivery::cuda {
namespace {

Status status_of(const Functions& functions, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  return Status(Code::kInternal, fmt::format("the driver does not tell {}: {}", what,
                                             spdld::cuda::error_text(functions, result)));
}

Status ask(const Functions& functions, int ordinal, CUdevice& device, DeviceFacts& facts) {
  SPDLD_TRY(status_of(functions, functions.DeviceGet(&device, ordinal), "which device it is"));
  std::array<char, 128> name{};
  SPDLD_TRY(status_of(functions,
                      functions.DeviceGetName(name.data(), static_cast<int>(name.size()), device),
                      "its name"));
  facts.name = name.data();
  std::size_t total = 0;
  SPDLD_TRY(
      status_of(functions, functions.DeviceTotalMem(&total, device), "how much memory it has"));
  facts.total_bytes = total;
  std::string uuid;
  SPDLD_TRY(status_of(functions, spdld::cuda::uuid_of(functions, device, uuid), "its UUID"));
  facts.mig = uuid.starts_with("MIG-");
  facts.uuid = std::move(uuid);
  return {};
}

Status check(const Functions& functions, CUdevice device, DeviceFacts& facts) {
  const auto attribute = [&](CUdevice_attribute which, int& value) {
    return status_of(functions, functions.DeviceGetAttribute(&value, which, device),
                     "what it can do");
  };
  const auto refusal = [](const char* why) { return Status(Code::kFailedPrecondition, why); };
  int supported = 0;
  SPDLD_TRY(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, supported));
  if (supported == 0) facts.why_no_pinning = "its driver cannot register memory of a process";
  SPDLD_TRY(attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, supported));
  if (supported == 0 && facts.why_no_pinning.empty())
    facts.why_no_pinning = "its driver cannot register memory that may only be read";
  int mode = 0;
  SPDLD_TRY(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, mode));
  facts.compute_mode = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS ? "exclusive process"
                       : mode == CU_COMPUTEMODE_PROHIBITED      ? "prohibited"
                                                                : "default";
  if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
    return refusal(
        "it is in exclusive-process mode, and a context of the daemon would lock the trainer "
        "out; 'nvidia-smi -c DEFAULT' lets both in");
  if (mode == CU_COMPUTEMODE_PROHIBITED)
    return refusal("its compute mode forbids all contexts; 'nvidia-smi -c DEFAULT' allows them");
  SPDLD_TRY(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, supported));
  if (supported == 0) return refusal("its driver has no virtual memory management");
  SPDLD_TRY(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, supported));
  if (supported == 0) return refusal("its driver cannot share memory by file descriptors");
  return {};
}

}  // namespace

Status identify(const Functions& functions, int ordinal, CUdevice& device, DeviceFacts& facts) {
  Status asked = ask(functions, ordinal, device, facts);
  facts.why_not = asked.message();
  if (!asked.ok()) facts.name = fmt::format("GPU {}", ordinal);
  return asked;
}

void check_deliverable(const Functions& functions, CUdevice device, DeviceFacts& facts) {
  facts.compute_mode.clear();
  facts.why_no_pinning.clear();
  facts.why_not = check(functions, device, facts).message();
}

}  // namespace spdld::delivery::cuda
