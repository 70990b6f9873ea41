// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "delivery/memory_probe.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

MemoryLog::MemoryLog(Options options) : options_(std::move(options)) {}

MemoryLog::~MemoryLog() {
  MutexLock lock(mutex_);
  for (const Slab& slab : slabs_) ::munmap(slab.data, slab.size_bytes);
}

void MemoryLog::append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) {
  std::byte* const room = take(bytes.size());
  if (room == nullptr) return sink.dropped(item);
  if (!bytes.empty()) std::memcpy(room, bytes.data(), bytes.size());
  sink.appended(item, reinterpret_cast<std::uintptr_t>(room));
}

const std::byte* MemoryLog::view(std::uint64_t location) const {
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(location));
}

Result<source::FetchState> MemoryLog::read(std::uint64_t location, std::uint64_t size_bytes,
                                           source::ItemBytes& out, source::FetchSink&,
                                           std::uint64_t) {
  std::byte* const data = out.bytes.resize(size_bytes);
  if (size_bytes > 0) std::memcpy(data, view(location), size_bytes);
  return source::FetchState::kReady;
}

Status MemoryLog::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::byte* MemoryLog::take(std::uint64_t size_bytes) {
  const std::uint64_t wanted = taken_by(size_bytes);
  MutexLock lock(mutex_);
  if (!failure_.ok()) return nullptr;
  if (slabs_.empty() || wanted > slabs_.back().size_bytes - used_bytes_) {
    if (!map_slab(wanted)) return nullptr;
  }
  std::byte* const room = slabs_.back().data + used_bytes_;
  used_bytes_ += wanted;
  return room;
}

bool MemoryLog::map_slab(std::uint64_t at_least_bytes) {
  const std::uint64_t size = round_up(std::max(options_.slab_bytes, at_least_bytes), kPage);
  const std::uint64_t free = options_.free_bytes();
  if (size > free) {
    failure_ = Status(Code::kResourceExhausted,
                      "it stops growing, as only " + delivery::format_bytes(free) +
                          " of memory are free: lower its 'size', or give the machine or the "
                          "cgroup more");
    return false;
  }
  void* const data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    failure_ = errno_status(errno, "it stops growing, as the system has no memory for it: mmap");
    return false;
  }
  slabs_.push_back({static_cast<std::byte*>(data), size});
  used_bytes_ = 0;
  return true;
}

}  // namespace spdld::engine
