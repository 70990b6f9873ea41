// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spdld::fake_cuda {

constexpr int kMostDevices = 8;

// One GPU of the machine, or a MIG instance of one.
struct Device {
  int index = 0;  // among all of the machine
  std::string name = {};
  CUuuid uuid = {};
  bool mig = false;
  std::map<int, int> attributes = {};  // by CUdevice_attribute

  int attribute(CUdevice_attribute which) const;  // 0 where it has none
};

std::map<int, int> usual_attributes();

// Of 32 hexadecimal digits, with dashes after the 8th, 12th, 16th and 20th.
std::optional<CUuuid> uuid_of(const std::string& text);
std::string text_of(const CUuuid& uuid);
CUuuid made_uuid(int index);

// The devices that CUDA_VISIBLE_DEVICES names by index, by "GPU-" or "MIG-" and the beginning of a
// UUID: in its order, up to the first name of none; none at all if one is named twice, which driver
// 580 takes otherwise.
std::vector<Device> visible_devices(const std::vector<Device>& all,
                                    const std::vector<std::string>& names);

}  // namespace spdld::fake_cuda
