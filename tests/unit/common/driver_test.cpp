// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace spdld::cuda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kFake = FAKE_CUDA_DIR;

// What a process says that loads the driver of a folder in this environment.
std::string found_in(const std::string& folder, const std::string& environment = "") {
  const std::string command = "env -u CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH=" + folder + " " +
                              environment + " " + DRIVER_PROBE;
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return "popen failed";
  std::string text;
  char part[256];
  while (const std::size_t bytes = std::fread(part, 1, sizeof part, output))
    text.append(part, bytes);
  EXPECT_EQ(::pclose(output), 0) << command;
  return text;
}

TEST(DriverTest, FindsDevicesOfTheDriver) {
  EXPECT_EQ(found_in(kFake, "FAKE_CUDA_VERSION=13000 FAKE_CUDA_DEVICES=3"),
            "version 13000, 3 devices");
}

TEST(DriverTest, FindsFunctionsOfDriversOfCuda11) {
  EXPECT_EQ(found_in(kFake + "/v11", "FAKE_CUDA_VERSION=11040"), "version 11040, 1 devices");
}

TEST(DriverTest, RefusesDriversThatCannotBeAskedForFunctions) {
  EXPECT_EQ(found_in(kFake + "/v10"),
            "the NVIDIA driver has no cuGetProcAddress: it is older than CUDA 11.4 needs (470); "
            "upgrade the driver");
}

TEST(DriverTest, SaysWhatIsMissingWhereThereIsNoLibrary) {
  // A machine with a driver has one here too.
  const std::string found = found_in("/nonexistent");
  if (found.starts_with("version") || found.find("cuInit") != std::string::npos)
    GTEST_SKIP() << "this machine has a driver";
  EXPECT_THAT(found,
              AllOf(StartsWith("there is no NVIDIA driver here: "), HasSubstr("libcuda.so.1")));
}

TEST(DriverTest, NamesTheFunctionThatADriverLacks) {
  EXPECT_THAT(found_in(kFake, "FAKE_CUDA_MISSING=cuMemHostRegister,cuEventQuery"),
              AllOf(StartsWith("the NVIDIA driver has no cuMemHostRegister: "),
                    EndsWith("upgrade the driver")));
  EXPECT_THAT(found_in(kFake, "FAKE_CUDA_MISSING=cuMemSetAccess"),
              StartsWith("the NVIDIA driver has no cuMemSetAccess: "));
}

TEST(DriverTest, NamesTheFunctionThatIsNewerThanTheDriver) {
  for (const char* const folder : {"", "/v11"}) {
    EXPECT_THAT(found_in(kFake + folder, "FAKE_CUDA_VERSION=11030"),
                HasSubstr("has no cuDeviceGetUuid: it is older than CUDA 11.4"));
  }
}

TEST(DriverTest, SaysWhyTheDriverDoesNotStart) {
  EXPECT_EQ(found_in(kFake, "FAKE_CUDA_INIT=CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            "starting the NVIDIA driver (cuInit) failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (system "
            "has unsupported display driver / cuda driver combination)");
}

TEST(DriverTest, SaysWhatHidesDevices) {
  for (const char* const environment :
       {"FAKE_CUDA_DEVICES=0", "CUDA_VISIBLE_DEVICES=", "FAKE_CUDA_INIT=CUDA_ERROR_NO_DEVICE"}) {
    EXPECT_EQ(found_in(kFake, environment),
              "the NVIDIA driver (CUDA 12.8) shows this process no GPU: see CUDA_VISIBLE_DEVICES, "
              "and which devices a container was given");
  }
}

TEST(DriverTest, PassesErrorsOfItsOtherCallsOn) {
  EXPECT_EQ(found_in(kFake, "FAKE_CUDA_FAIL=cuDeviceGetCount:1:CUDA_ERROR_UNKNOWN"),
            "cuDeviceGetCount failed: CUDA_ERROR_UNKNOWN (unknown error)");
  EXPECT_EQ(found_in(kFake, "FAKE_CUDA_FAIL=cuDriverGetVersion:1:CUDA_ERROR_UNKNOWN"),
            "cuDriverGetVersion failed: CUDA_ERROR_UNKNOWN (unknown error)");
}

TEST(DriverTest, TellsErrorsByNumberWhereTheDriverHasNoWords) {
  EXPECT_EQ(found_in(kFake,
                     "FAKE_CUDA_INIT=CUDA_ERROR_NOT_PERMITTED "
                     "FAKE_CUDA_FAIL=cuGetErrorName:1:CUDA_ERROR_INVALID_VALUE"),
            "starting the NVIDIA driver (cuInit) failed: error 800");
}

}  // namespace
}  // namespace spdld::cuda
