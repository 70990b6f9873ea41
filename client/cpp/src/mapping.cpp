// SPDX-License-Identifier: Apache-2.0
#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "spdld/arena.h"
#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr long kTmpfs = 0x01021994;  // of linux/magic.h
#ifndef F_SEAL_FUTURE_WRITE
constexpr int kSealFutureWrite = 0x0010;
#else
constexpr int kSealFutureWrite = F_SEAL_FUTURE_WRITE;
#endif

[[noreturn]] void refuse_arena(const std::string& why) {
  throw ConnectionError(kDataLoss, join("the daemon sent an arena that cannot be used: ", why));
}

void check_fd(int fd, const wire::ArenaOpenFrame& frame, wire::ArenaKind kind) {
  if (kind == wire::ArenaKind::kPosix) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY) refuse_arena("it is open for writing");
    // Nothing seals it: who could truncate it under us is whoever has it open for writing. That is
    // the daemon alone, whose identity Channel::connect() has checked, if no file system has a
    // name for it.
    struct statfs where {};
    struct stat what {};
    if (::fstatfs(fd, &where) != 0 || where.f_type != kTmpfs) refuse_arena("it is not on /dev/shm");
    if (::fstat(fd, &what) != 0 || !S_ISREG(what.st_mode) || what.st_nlink != 0)
      refuse_arena("others can open it by its name");
  } else {
    const int needed = F_SEAL_SHRINK | F_SEAL_GROW | kSealFutureWrite | F_SEAL_SEAL;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & needed) != needed) refuse_arena("it is not sealed");
  }
  struct stat found {};
  if (::fstat(fd, &found) != 0 || static_cast<std::uint64_t>(found.st_size) != frame.total_bytes) {
    refuse_arena(join("it has ", found.st_size, " bytes instead of ", frame.total_bytes));
  }
}

wire::ArenaHeader checked_header(const std::byte* base, const wire::ArenaOpenFrame& frame) {
  wire::ArenaHeader header;
  std::memcpy(&header, base, sizeof header);
  if (header.magic != wire::kArenaMagic) refuse_arena("it has no arena header");
  if (header.abi_major != wire::kArenaAbiMajor) {
    refuse_arena(join("its layout is version ", header.abi_major, ", and this client reads ",
                      wire::kArenaAbiMajor));
  }
  if (header.total_bytes != frame.total_bytes || header.arena_id != frame.arena_id ||
      !std::equal(std::begin(header.generation), std::end(header.generation),
                  std::begin(frame.generation))) {
    refuse_arena("it is another arena than was announced");
  }
  return header;
}

// Whether any page of the range was copied by a write: /proc/self/pagemap tells for each page
// whether it is there (bits 63, 62) and still the file's (bit 61). Asking costs a tenth of dropping
// pages that nobody wrote and faulting them in again.
bool written(const std::byte* base, std::uint64_t bytes) {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap) return true;
  std::uint64_t page = reinterpret_cast<std::uintptr_t>(base) / kPage;
  const std::uint64_t end = page + bytes / kPage;
  std::array<std::uint64_t, 512> entries;
  while (page < end) {
    const std::uint64_t count = std::min<std::uint64_t>(entries.size(), end - page);
    const auto wanted = static_cast<ssize_t>(count * sizeof entries[0]);
    if (::pread(pagemap.get(), entries.data(), static_cast<std::size_t>(wanted),
                static_cast<off_t>(page * sizeof entries[0])) != wanted) {
      return true;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (entries[i] >> 62 != 0 && (entries[i] >> 61 & 1) == 0) return true;
    }
    page += count;
  }
  return false;
}

}  // namespace

std::shared_ptr<Mapping> Mapping::open(UniqueFd fd, const wire::ArenaOpenFrame& frame) {
  const auto kind = static_cast<wire::ArenaKind>(frame.kind);
  if (kind != wire::ArenaKind::kMemfd && kind != wire::ArenaKind::kPosix &&
      kind != wire::ArenaKind::kHugetlb) {
    refuse_arena(join("its kind is ", frame.kind, ", which this client does not know; upgrade it"));
  }
  if (frame.total_bytes < sizeof(wire::ArenaHeader)) refuse_arena("it is smaller than its header");
  check_fd(fd.get(), frame, kind);
  void* base = ::mmap(nullptr, frame.total_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    throw ConnectionError(kUnavailable, join("mapping an arena of ", frame.total_bytes,
                                             " bytes: ", errno_text(errno)));
  }
  std::shared_ptr<Mapping> mapping(new Mapping);
  mapping->owner_ = ::getpid();
  mapping->kind_ = kind;
  mapping->base_ = static_cast<std::byte*>(base);
  mapping->total_bytes_ = frame.total_bytes;
  mapping->slot_stride_ = checked_header(mapping->base_, frame).slot_stride;
  // A child that read a slot would do so without a lease; a core file needs no training data.
  (void)::madvise(base, frame.total_bytes, MADV_DONTFORK);
  (void)::madvise(base, frame.total_bytes, MADV_DONTDUMP);
  mapping->fd_ = std::move(fd);
  return mapping;
}

Mapping::~Mapping() {
  use_.reset();
  if (owner_ != ::getpid()) return;  // MADV_DONTFORK: something else may be at that address
  if (base_ != nullptr) ::munmap(base_, total_bytes_);
  if (private_base_ != nullptr) ::munmap(private_base_, total_bytes_);
}

std::byte* Mapping::private_base() {
  const std::lock_guard lock(mutex_);
  if (private_base_ != nullptr) return private_base_;
  if (kind_ == wire::ArenaKind::kHugetlb) {
    throw LeaseError(kFailedPrecondition,
                     "a batch on huge pages has no private view (a write would need a free huge "
                     "page); copy it");
  }
  void* base = ::mmap(nullptr, total_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                      fd_.get(), 0);
  if (base == MAP_FAILED) {
    throw LeaseError(kUnavailable, join("mapping a private view: ", errno_text(errno)));
  }
  (void)::madvise(base, total_bytes_, MADV_DONTFORK);
  (void)::madvise(base, total_bytes_, MADV_DONTDUMP);
  private_base_ = static_cast<std::byte*>(base);
  return private_base_;
}

void Mapping::restore(std::uint64_t offset, std::uint64_t bytes) {
  std::byte* base = private_base();
  const std::uint64_t first = offset / kPage * kPage;
  const std::uint64_t end = std::min((offset + bytes + kPage - 1) / kPage * kPage, total_bytes_);
  if (written(base + first, end - first)) (void)::madvise(base + first, end - first, MADV_DONTNEED);
}

}  // namespace spdld::client
