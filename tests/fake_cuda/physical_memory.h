// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "posix/unique_fd.h"
#include "tests/fake_cuda/devices.h"

namespace spdld::fake_cuda {

// Memory of a device is created, mapped and reserved in multiples of this.
constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;

class PhysicalMemory;
using PhysicalMemoryPtr = std::shared_ptr<const PhysicalMemory>;

// Memory of one device, by whatever process it was created: a memfd, which lives as long as any
// process has a descriptor of it or has it mapped. One object is one reference of this process.
//
// Which of it is alive is told by the kernel alone, so that no process that is killed can leave
// anything wrong behind: each memfd has a lock of its open file, which mappings and descriptors
// share, those in flight through a socket too, and /proc/locks shows it. The range of the lock
// tells the ledger, the device and how many bytes.
class PhysicalMemory {
 public:
  // Null where this machine has no memory or descriptors left. `ledger`: Ledger::id.
  static PhysicalMemoryPtr create(const Device& device, std::uint64_t bytes, std::uint32_t ledger);
  // Null if a descriptor is none of such memory. Leaves the descriptor as it is.
  static PhysicalMemoryPtr import(int descriptor);

  // A new descriptor of it, or -1.
  int descriptor() const;

  const std::string& uuid() const { return uuid_; }  // of its device
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t inode() const { return inode_; }  // the same for all references to one memory
  int fd() const { return fd_.get(); }

  PhysicalMemory(UniqueFd fd, std::string uuid);

 private:
  UniqueFd fd_;
  std::string uuid_;
  std::uint64_t bytes_ = 0;
  std::uint64_t inode_ = 0;
};

// What is alive of a ledger's memory, in bytes by Device::index.
std::array<std::uint64_t, kMostDevices> living_bytes(std::uint32_t ledger);

}  // namespace spdld::fake_cuda
