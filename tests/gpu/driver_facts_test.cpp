// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about itself, its functions and its devices.
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "tests/gpu/facts.h"
#include "tests/gpu/new_process.h"

namespace spdld::cuda {
namespace {

CUresult count(int* devices) {
  return symbol<PFN_cuDeviceGetCount_v2000>("cuDeviceGetCount")(devices);
}

// "GPU-..." or "MIG-...". Asked in a child, since the driver looks at the environment once.
std::string first_uuid() {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  if (::fork() == 0) {
    CUuuid uuid{};
    char name[256] = "";
    REQUIRE(init() == CUDA_SUCCESS);
    REQUIRE(symbol<PFN_cuDeviceGetName_v2000>("cuDeviceGetName")(name, 256, 0) == CUDA_SUCCESS);
    REQUIRE(symbol<PFN_cuDeviceGetUuid_v11040>("cuDeviceGetUuid_v2")(&uuid, 0) == CUDA_SUCCESS);
    std::string text = std::strstr(name, " MIG ") != nullptr ? "MIG-" : "GPU-";
    for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
      char digits[4];
      const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
      std::snprintf(digits, sizeof digits, dash ? "-%02x" : "%02x",
                    static_cast<unsigned char>(uuid.bytes[i]));
      text += digits;
    }
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    std::_Exit(0);
  }
  char text[40];
  REQUIRE(::close(ends[1]) == 0);
  REQUIRE(::read(ends[0], text, sizeof text) == sizeof text);
  REQUIRE(::close(ends[0]) == 0);
  REQUIRE(::wait(nullptr) > 0);
  return {text, sizeof text};
}

void show(const std::string& devices) { ::setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1); }

TEST_F(DriverFacts, TheVersionIsToldBeforeInit) {
  HOLDS_IN_A_NEW_PROCESS({
    int version = 0;
    REQUIRE(symbol<PFN_cuDriverGetVersion_v2020>("cuDriverGetVersion")(&version) == CUDA_SUCCESS);
    REQUIRE(version >= 11040);
  });
}

TEST_F(DriverFacts, CallsBeforeInitAreRefused) {
  HOLDS_IN_A_NEW_PROCESS({
    int devices = 0;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    REQUIRE(count(&devices) == CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(symbol<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain")(&context, 0) ==
            CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(symbol<PFN_cuMemAlloc_v3020>("cuMemAlloc_v2")(&memory, 1) ==
            CUDA_ERROR_NOT_INITIALIZED);
  });
}

TEST_F(DriverFacts, InitMayBeCalledAgain) {
  HOLDS_IN_A_NEW_PROCESS({
    REQUIRE(init() == CUDA_SUCCESS);
    REQUIRE(init() == CUDA_SUCCESS);
  });
}

TEST_F(DriverFacts, InitTakesNoFlags) {
  HOLDS_IN_A_NEW_PROCESS(
      REQUIRE(symbol<PFN_cuInit_v2000>("cuInit")(1) == CUDA_ERROR_INVALID_VALUE));
}

TEST_F(DriverFacts, AForkedChildCannotUseTheDriver) {
  HOLDS_IN_A_NEW_PROCESS({
    REQUIRE(init() == CUDA_SUCCESS);
    const pid_t child = ::fork();
    if (child == 0) {
      int devices = 0;
      CUdeviceptr memory = 0;
      REQUIRE(count(&devices) == CUDA_ERROR_NOT_INITIALIZED);
      REQUIRE(init() == CUDA_ERROR_NOT_INITIALIZED);
      REQUIRE(symbol<PFN_cuMemAlloc_v3020>("cuMemAlloc_v2")(&memory, 1) ==
              CUDA_ERROR_NOT_INITIALIZED);
      std::_Exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  });
}

TEST_F(DriverFacts, AChildForkedBeforeInitCanUseTheDriver) {
  HOLDS_IN_A_NEW_PROCESS(REQUIRE(first_uuid().size() == 40));
}

TEST_F(DriverFacts, NoVisibleDevicesMeanNoDevice) {
  for (const char* const devices : {"", "-1", "none"}) {
    HOLDS_IN_A_NEW_PROCESS({
      show(devices);
      REQUIRE(init() == CUDA_ERROR_NO_DEVICE);
    });
  }
}

TEST_F(DriverFacts, VisibleDevicesEndAtTheFirstUnknownOne) {
  HOLDS_IN_A_NEW_PROCESS({
    show("0,999");
    int devices = 0;
    REQUIRE(init() == CUDA_SUCCESS);
    REQUIRE(count(&devices) == CUDA_SUCCESS);
    REQUIRE(devices == 1);
  });
}

// Driver 580 does not say so by CUDA_ERROR_NO_DEVICE of cuInit, as it does where none is visible.
TEST_F(DriverFacts, ADeviceThatIsVisibleTwiceHidesAll) {
  HOLDS_IN_A_NEW_PROCESS({
    show("0,0");
    int devices = 0;
    const CUresult started = init();
    record("cuInit where CUDA_VISIBLE_DEVICES=0,0", std::to_string(started));
    if (started == CUDA_SUCCESS) REQUIRE(count(&devices) == CUDA_SUCCESS);
    REQUIRE(devices == 0);
  });
}

TEST_F(DriverFacts, AVisibleDeviceMayBeNamedByItsUuid) {
  HOLDS_IN_A_NEW_PROCESS({
    const std::string uuid = first_uuid();
    show(uuid);
    REQUIRE(first_uuid() == uuid);
  });
}

TEST_F(DriverFacts, AVisibleDeviceMayBeNamedByTheBeginningOfItsUuid) {
  HOLDS_IN_A_NEW_PROCESS({
    const std::string uuid = first_uuid();
    if (uuid.starts_with("GPU-")) {  // of MIG instances this is not said
      show(uuid.substr(0, 12));
      REQUIRE(first_uuid() == uuid);
    }
  });
}

TEST_F(DeviceFacts, WhichFunctionsThereAreIsAnswered) {
  const auto get = symbol<PFN_cuGetProcAddress_v12000>("cuGetProcAddress_v2");
  ASSERT_NE(get, nullptr);
  void* found = this;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(get("cuNoSuchFunction", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  found = this;
  EXPECT_EQ(get("cuStreamIsCapturing", &found, 9000, CU_GET_PROC_ADDRESS_DEFAULT, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(get("cuStreamIsCapturing", &found, 10000, CU_GET_PROC_ADDRESS_DEFAULT, &status),
            CUDA_SUCCESS);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(get("cuInit", &found, 2000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr), CUDA_SUCCESS);
  EXPECT_NE(found, nullptr);
}

TEST_F(DeviceFacts, FunctionsOfNewerVersionsThanTheDriversAreRefused) {
  const auto get = symbol<PFN_cuGetProcAddress_v12000>("cuGetProcAddress_v2");
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(get("cuInit", &found, driver().version + 1000, CU_GET_PROC_ADDRESS_DEFAULT, &status),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceFacts, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_EQ(cu().GetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(cu().GetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
}

TEST_F(DeviceFacts, NumbersThatAreNoErrorsHaveNoNames) {
  const char* text = "something";
  EXPECT_EQ(cu().GetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  text = "something";
  EXPECT_EQ(cu().GetErrorString(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(DeviceFacts, OrdinalsOfNoDeviceAreRefused) {
  CUdevice device = 0;
  EXPECT_EQ(cu().DeviceGet(&device, driver().devices), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cu().DeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceFacts, DevicesHaveDifferentUuids) {
  std::set<std::string> uuids;
  for (int ordinal = 0; ordinal < driver().devices; ++ordinal) {
    CUuuid uuid{};
    ASSERT_EQ(cu().DeviceGetUuid(&uuid, ordinal), CUDA_SUCCESS);
    uuids.emplace(uuid.bytes, sizeof uuid.bytes);
  }
  EXPECT_EQ(uuids.size(), static_cast<std::size_t>(driver().devices));
}

TEST_F(DeviceFacts, NamesAreCutToTheirBuffer) {
  char name[256] = "";
  char cut[4] = "abc";
  ASSERT_EQ(cu().DeviceGetName(name, sizeof name, device()), CUDA_SUCCESS);
  ASSERT_GT(std::strlen(name), 3u);
  EXPECT_EQ(cu().DeviceGetName(cut, sizeof cut, device()), CUDA_SUCCESS);
  EXPECT_EQ(cut, std::string(name).substr(0, 3));
}

TEST_F(DeviceFacts, AttributesOfNoNumberAreRefused) {
  int value = 0;
  EXPECT_EQ(cu().DeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), device()),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().DeviceGetAttribute(&value, static_cast<CUdevice_attribute>(255), device()),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceFacts, DevicesShareOneAddressSpace) {
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
}

TEST_F(DeviceFacts, AProcessSeesOneMigInstance) {
  char name[256] = "";
  ASSERT_EQ(cu().DeviceGetName(name, sizeof name, device()), CUDA_SUCCESS);
  if (std::string(name).find(" MIG ") == std::string::npos)
    GTEST_SKIP() << "the first device is no MIG instance: " << name;
  EXPECT_EQ(driver().devices, 1);
}

}  // namespace
}  // namespace spdld::cuda
