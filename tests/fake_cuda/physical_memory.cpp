// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

const std::string kName = "fake_cuda ";  // and the device's UUID
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A lock begins at this position for a ledger and a device, and has a byte for each granule.
constexpr int kGranuleBits = 32;
constexpr int kDeviceBits = 3;
static_assert(kMostDevices <= 1 << kDeviceBits);

std::uint64_t lock_begin(std::uint32_t ledger, std::uint64_t device) {
  return ((std::uint64_t{ledger} << kDeviceBits) | device) << kGranuleBits;
}

bool lock(int fd, std::uint64_t begin, std::uint64_t bytes) {
  struct flock range {};
  range.l_type = F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(begin);
  range.l_len = static_cast<off_t>(bytes);
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0;
}

struct Living {
  std::uint64_t device = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Living&) const = default;
};
using LivingByInode = std::map<std::uint64_t, Living>;

LivingByInode read_locks(std::uint32_t ledger) {
  std::ifstream locks("/proc/locks");
  if (!locks) abort_with("/proc/locks cannot be read: it tells which memory is alive");
  LivingByInode living;
  for (std::string line; std::getline(locks, line);) {
    std::uint64_t inode = 0, begin = 0, last = 0;
    if (std::sscanf(line.c_str(),
                    "%*u: OFDLCK ADVISORY READ -1 %*x:%*x:%" SCNu64 " %" SCNu64 " %" SCNu64, &inode,
                    &begin, &last) != 3)
      continue;
    const std::uint64_t device = (begin >> kGranuleBits) & ((1 << kDeviceBits) - 1);
    if (begin == lock_begin(ledger, device))
      living[inode] = {device, (last - begin + 1) * kGranule};
  }
  return living;
}

}  // namespace

PhysicalMemory::PhysicalMemory(UniqueFd fd, std::string uuid)
    : fd_(std::move(fd)), uuid_(std::move(uuid)) {
  struct stat status {};
  ::fstat(fd_.get(), &status);
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  inode_ = status.st_ino;
}

PhysicalMemoryPtr PhysicalMemory::create(const Device& device, std::uint64_t bytes,
                                         std::uint32_t ledger) {
  const std::string uuid = text_of(device.uuid);
  UniqueFd fd(::memfd_create((kName + uuid).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto index = static_cast<std::uint64_t>(device.index);
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0 ||
      !lock(fd.get(), lock_begin(ledger, index), bytes / kGranule))
    return nullptr;
  return std::make_shared<const PhysicalMemory>(std::move(fd), uuid);
}

PhysicalMemoryPtr PhysicalMemory::import(int descriptor) {
  char target[256] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const std::string begin = "/memfd:" + kName;
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return nullptr;
  const std::string name = target;
  if (!name.starts_with(begin) || ::fcntl(descriptor, F_GET_SEALS) != kSeals) return nullptr;
  UniqueFd fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!fd) return nullptr;
  const std::size_t uuid_end = name.find(' ', begin.size());  // " (deleted)" follows
  return std::make_shared<const PhysicalMemory>(std::move(fd),
                                                name.substr(begin.size(), uuid_end - begin.size()));
}

int PhysicalMemory::descriptor() const { return ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0); }

std::array<std::uint64_t, kMostDevices> living_bytes(std::uint32_t ledger) {
  // A long list is not read in one moment: what was missed once is not missed twice.
  LivingByInode living = read_locks(ledger);
  for (;;) {
    LivingByInode again = read_locks(ledger);
    if (again == living) break;
    living = std::move(again);
  }
  std::array<std::uint64_t, kMostDevices> bytes{};
  for (const auto& [inode, memory] : living) bytes[memory.device] += memory.bytes;
  return bytes;
}

}  // namespace spdld::fake_cuda
