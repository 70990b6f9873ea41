// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

namespace spdld::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kForked =
    "this process was forked after CUDA was begun in its parent, and cannot use it: start it by "
    "spawn or forkserver";

// Finds functions by the driver's own directory of them, which drivers have since CUDA 11.3.
class Finder {
 public:
  explicit Finder(void* library) {
    find_symbol(library, "cuGetProcAddress_v2", get_v12_);
    find_symbol(library, "cuGetProcAddress", get_v11_);
  }

  explicit operator bool() const { return get_v12_ != nullptr || get_v11_ != nullptr; }

  template <typename Function>
  bool find(const char* name, int version, Function& function) const {
    void* found = nullptr;
    CUdriverProcAddressQueryResult query{};
    const CUresult result =
        get_v12_ != nullptr ? get_v12_(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &query)
                            : get_v11_(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT);
    if (result != CUDA_SUCCESS) found = nullptr;
    static_assert(sizeof function == sizeof found);
    std::memcpy(&function, &found, sizeof found);
    return found != nullptr;
  }

 private:
  template <typename Function>
  static void find_symbol(void* library, const char* name, Function& function) {
    void* const found = ::dlsym(library, name);
    std::memcpy(&function, &found, sizeof found);
  }

  PFN_cuGetProcAddress_v12000 get_v12_ = nullptr;
  PFN_cuGetProcAddress_v11030 get_v11_ = nullptr;
};

// Returns the first one that is missing; empty: none is.
std::string find_functions(void* library, Functions& functions) {
  const Finder finder(library);
  if (!finder) return "cuGetProcAddress";
  std::string missing;
#define SPDLD_CUDA_FIND(name, version)                                        \
  if (!finder.find("cu" #name, version, functions.name) && missing.empty()) { \
    missing = "cu" #name;                                                     \
  }
  SPDLD_CUDA_FUNCTIONS(SPDLD_CUDA_FIND)
#undef SPDLD_CUDA_FIND
  return missing;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// It is there for as long as the process is: the driver does not support to be unloaded.
Driver load() {
  Driver driver;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    driver.why_not = "there is no NVIDIA driver here: " +
                     std::string(why != nullptr ? why : "libcuda.so.1 cannot be loaded");
    return driver;
  }
  static Functions functions;
  if (const std::string missing = find_functions(library, functions); !missing.empty()) {
    driver.why_not = "the NVIDIA driver has no " + missing +
                     ": it is older than CUDA 11.4 needs (470); upgrade the driver";
    return driver;
  }
  const auto fails = [&](CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return false;
    driver.why_not = std::string(what) + " failed: " + error_text(functions, result);
    return true;
  };
  const CUresult started = functions.Init(0);
  if (started == CUDA_ERROR_NOT_INITIALIZED) {
    driver.why_not = kForked;
    return driver;
  }
  const bool no_device = started == CUDA_ERROR_NO_DEVICE;
  if (!no_device && fails(started, "starting the NVIDIA driver (cuInit)")) return driver;
  if (fails(functions.DriverGetVersion(&driver.version), "cuDriverGetVersion")) return driver;
  if (!no_device && fails(functions.DeviceGetCount(&driver.devices), "cuDeviceGetCount"))
    return driver;
  if (driver.devices == 0) {
    driver.why_not = "the NVIDIA driver (CUDA " + version_text(driver.version) +
                     ") shows this process no GPU: see CUDA_VISIBLE_DEVICES, and which devices a "
                     "container was given";
    return driver;
  }
  driver.functions = &functions;
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver kLoaded = load();
  static const pid_t kLoadedBy = ::getpid();
  if (::getpid() == kLoadedBy) return kLoaded;
  static const Driver kOfChild = [] {
    Driver driver;
    driver.why_not = kForked;
    return driver;
  }();
  return kOfChild;
}

CUresult uuid_of(const Functions& functions, CUdevice device, std::string& uuid) {
  CUuuid bytes{};
  if (const CUresult result = functions.DeviceGetUuid(&bytes, device); result != CUDA_SUCCESS)
    return result;
  std::array<char, 128> name{};
  if (const CUresult result =
          functions.DeviceGetName(name.data(), static_cast<int>(name.size()), device);
      result != CUDA_SUCCESS)
    return result;
  // The driver has no attribute that tells. "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
  uuid = std::strstr(name.data(), " MIG ") != nullptr ? "MIG" : "GPU";
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (std::size_t i = 0; i < sizeof bytes.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    const auto byte = static_cast<unsigned char>(bytes.bytes[i]);
    uuid += kDigits[byte >> 4];
    uuid += kDigits[byte & 15];
  }
  return CUDA_SUCCESS;
}

std::string error_text(const Functions& functions, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions.GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "error " + std::to_string(static_cast<int>(result));
  if (functions.GetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace spdld::cuda
