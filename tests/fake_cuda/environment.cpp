// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/environment.h"

#include <cerrno>
#include <cstdlib>

#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

std::string text_of(const char* variable, const char* otherwise = "") {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : otherwise;
}

std::uint64_t number_in(const char* variable, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0)
    abort_with("%s: '%s' is no number", variable, text.c_str());
  return number;
}

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const std::string text = text_of(variable);
  return text.empty() ? otherwise : number_in(variable, text);
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

CUresult error_in(const char* variable, const std::string& name) {
  const auto error = error_of(name);
  if (!error) abort_with("%s: the fake knows no error '%s'", variable, name.c_str());
  return *error;
}

int compute_mode() {
  const std::string mode = text_of("FAKE_CUDA_COMPUTE_MODE", "default");
  if (mode == "default") return CU_COMPUTEMODE_DEFAULT;
  if (mode == "exclusive") return CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  if (mode == "prohibited") return CU_COMPUTEMODE_PROHIBITED;
  abort_with("FAKE_CUDA_COMPUTE_MODE: default, exclusive or prohibited, not '%s'", mode.c_str());
}

std::map<int, int> attributes() {
  std::map<int, int> values = usual_attributes();
  values[CU_DEVICE_ATTRIBUTE_COMPUTE_MODE] = compute_mode();
  constexpr const char* kVariable = "FAKE_CUDA_ATTRIBUTES";
  for (const std::string& setting : parts_of(text_of(kVariable), ',')) {
    const auto words = parts_of(setting, '=');
    if (words.size() != 2) abort_with("%s: '%s' is no NUMBER=VALUE", kVariable, setting.c_str());
    values[static_cast<int>(number_in(kVariable, words[0]))] =
        static_cast<int>(number_in(kVariable, words[1]));
  }
  return values;
}

std::vector<Device> devices() {
  const std::uint64_t count = number_of("FAKE_CUDA_DEVICES", 1);
  if (count > kMostDevices) abort_with("FAKE_CUDA_DEVICES: at most %d", kMostDevices);
  const auto names = parts_of(text_of("FAKE_CUDA_NAMES"), ',');
  const auto uuids = parts_of(text_of("FAKE_CUDA_UUIDS"), ',');
  const bool mig = number_of("FAKE_CUDA_MIG", 0) != 0;
  std::vector<Device> all;
  for (std::size_t i = 0; i < count; ++i) {
    Device device;
    device.index = static_cast<int>(i);
    device.name = i < names.size() ? names[i] : "Fake GPU " + std::to_string(i);
    if (mig) device.name += " MIG 1g.10gb";
    device.mig = mig;
    if (i < uuids.size()) {
      const auto uuid = uuid_of(uuids[i]);
      if (!uuid) abort_with("FAKE_CUDA_UUIDS: '%s' is no UUID", uuids[i].c_str());
      device.uuid = *uuid;
    } else {
      device.uuid = made_uuid(device.index);
    }
    device.attributes = attributes();
    all.push_back(std::move(device));
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) all = visible_devices(all, parts_of(visible, ','));
  if (mig && all.size() > 1) all.resize(1);
  return all;
}

std::vector<Fault> wanted_faults() {
  constexpr const char* kVariable = "FAKE_CUDA_FAIL";
  std::vector<Fault> faults;
  for (const std::string& setting : parts_of(text_of(kVariable), ',')) {
    const auto words = parts_of(setting, ':');
    if (words.size() != 3)
      abort_with("%s: '%s' is no FUNCTION:CALL:ERROR", kVariable, setting.c_str());
    faults.push_back({words[0], number_in(kVariable, words[1]), error_in(kVariable, words[2])});
  }
  return faults;
}

Environment read() {
  Environment read;
  read.init = error_in("FAKE_CUDA_INIT", text_of("FAKE_CUDA_INIT", "CUDA_SUCCESS"));
  read.version = static_cast<int>(number_of("FAKE_CUDA_VERSION", 12080));
  read.devices = devices();
  read.memory_bytes = number_of("FAKE_CUDA_MEMORY", std::uint64_t{1} << 30);
  for (std::string& name : parts_of(text_of("FAKE_CUDA_MISSING"), ','))
    read.missing.insert(std::move(name));
  read.read_only_access = number_of("FAKE_CUDA_READ_ONLY_ACCESS", 1) != 0;
  read.faults = wanted_faults();
  read.ledger = text_of("FAKE_CUDA_LEDGER");
  read.seed = number_of("FAKE_CUDA_SEED", 0);
  read.lateness = number_of("FAKE_CUDA_LATENESS", 0);
  return read;
}

}  // namespace

const Environment& environment() {
  static const Environment* environment = new Environment(read());
  return *environment;
}

}  // namespace spdld::fake_cuda
