// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/devices.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace spdld::fake_cuda {

int Device::attribute(CUdevice_attribute which) const {
  const auto found = attributes.find(which);
  return found == attributes.end() ? 0 : found->second;
}

std::map<int, int> usual_attributes() {
  return {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
  };
}

std::optional<CUuuid> uuid_of(const std::string& text) {
  CUuuid uuid{};
  if (text.size() != 36) return std::nullopt;
  std::size_t byte = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return std::nullopt;
      ++i;
      continue;
    }
    const std::string digits = text.substr(i, 2);
    char* end = nullptr;
    uuid.bytes[byte++] = static_cast<char>(std::strtoul(digits.c_str(), &end, 16));
    if (end != digits.c_str() + 2 || std::isxdigit(static_cast<unsigned char>(digits[0])) == 0)
      return std::nullopt;
    i += 2;
  }
  return uuid;
}

std::string text_of(const CUuuid& uuid) {
  std::string text;
  for (std::size_t byte = 0; byte < sizeof uuid.bytes; ++byte) {
    if (byte == 4 || byte == 6 || byte == 8 || byte == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[byte]));
    text += digits;
  }
  return text;
}

CUuuid made_uuid(int index) {
  CUuuid uuid{};
  for (std::size_t byte = 0; byte < sizeof uuid.bytes; ++byte)
    uuid.bytes[byte] = static_cast<char>(0x10 * (index + 1) + byte);
  return uuid;
}

std::vector<Device> visible_devices(const std::vector<Device>& all,
                                    const std::vector<std::string>& names) {
  std::vector<Device> visible;
  for (const std::string& name : names) {
    const auto named = std::find_if(all.begin(), all.end(), [&](const Device& device) {
      const std::string uuid = (device.mig ? "MIG-" : "GPU-") + text_of(device.uuid);
      return name == std::to_string(device.index) || (name.size() > 4 && uuid.starts_with(name));
    });
    if (named == all.end()) break;
    for (const Device& device : visible) {
      if (device.index == named->index) return {};
    }
    visible.push_back(*named);
  }
  return visible;
}

}  // namespace spdld::fake_cuda
