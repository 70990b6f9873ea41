// SPDX-License-Identifier: Apache-2.0
#include "delivery/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/failpoint.h"
#include "base/random_bytes.h"
#include "delivery/memfd.h"

namespace spdld::delivery {
namespace {

constexpr std::uint64_t kSmallPage = 4096;
constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kMaxArenaBytes = 1ull << 46;

std::uint64_t page_bytes(ArenaKind kind) {
  return kind == ArenaKind::kHugetlb ? kHugePage : kSmallPage;
}

// Slots begin on 4 KiB pages, so that a private view of one can be dropped alone; on huge pages
// they are packed, the whole being rounded up once.
std::uint64_t stride_of(const ArenaShape& shape) {
  return (shape.slot_bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
}

// Read-write for the daemon; read-only, through a file description of its own, for consumers.
Result<std::pair<UniqueFd, UniqueFd>> open_posix() {
  std::uint64_t key[2];
  random_bytes(std::as_writable_bytes(std::span(key)));
  const std::string name = fmt::format("/spdld-{:016x}{:016x}", key[0], key[1]);
  UniqueFd writable(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!writable) return tl::unexpected(errno_status(errno, "shm_open of an arena"));
  UniqueFd readable(::shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0));
  const int why = errno;
  ::shm_unlink(name.c_str());
  if (!readable) return tl::unexpected(errno_status(why, "shm_open of an arena, read-only"));
  return std::pair{std::move(writable), std::move(readable)};
}

// ftruncate promises nothing: pages that cannot be had later would be a SIGBUS in the writer.
// Returns errno's number.
int take_pages(int fd, std::uint64_t offset, std::uint64_t bytes) {
  if (const int err = SPDLD_FAILPOINT_ERRNO("delivery.arena.pages"); err != 0) return err;
  int failed = 0;
  do {
    failed =
        ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  return failed;
}

Status no_room(ArenaKind kind, std::uint64_t bytes, int why) {
  const std::string what =
      fmt::format("an arena of {} ({})", format_bytes(bytes), arena_kind_name(kind));
  if (kind == ArenaKind::kHugetlb && (why == ENOMEM || why == ENOSPC)) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} needs {} huge pages of 2 MiB that are not free; raise "
                              "vm.nr_hugepages, or set arena.kind: memfd",
                              what, bytes / kHugePage));
  }
  if (kind == ArenaKind::kPosix && why == ENOSPC) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} does not fit into /dev/shm; make it larger (docker: --shm-size), "
                              "or set arena.kind: memfd, which does not use it",
                              what));
  }
  return errno_status(why, what);
}

// /dev/shm has a size of its own, which nothing reserves: what it has free must do for what other
// arenas have yet to take of it, too.
Result<ArenaBudget::ShmPromise> promise_shm(int fd, ArenaKind kind, std::uint64_t bytes,
                                            ArenaBudget& budget) {
  struct statvfs found {};
  if (::fstatvfs(fd, &found) != 0) return tl::unexpected(errno_status(errno, "/dev/shm"));
  if (found.f_blocks == 0) return budget.promise_shm(bytes, ~std::uint64_t{0}).value();  // no bound
  auto promised = budget.promise_shm(bytes, std::uint64_t{found.f_bavail} * found.f_frsize);
  if (!promised) return tl::unexpected(no_room(kind, bytes, ENOSPC));
  return std::move(*promised);
}

}  // namespace

std::string_view arena_kind_name(ArenaKind kind) {
  switch (kind) {
    case ArenaKind::kMemfd: return "memfd";
    case ArenaKind::kPosix: return "posix";
    case ArenaKind::kHugetlb: return "hugetlb";
  }
  return "unknown";
}

std::uint64_t arena_bytes(const ArenaShape& shape) {
  if (shape.slot_bytes == 0 || shape.slot_count == 0 || shape.slot_bytes > kMaxArenaBytes) return 0;
  const std::uint64_t stride = stride_of(shape);
  if (shape.slot_count > (kMaxArenaBytes - kSmallPage) / stride) return 0;
  const std::uint64_t page = page_bytes(shape.kind);
  return (kSmallPage + stride * shape.slot_count + page - 1) / page * page;
}

Result<std::unique_ptr<Arena>> Arena::create(const ArenaShape& shape, std::uint32_t arena_id,
                                             ArenaBudget& budget, uid_t uid) {
  const std::uint64_t total = arena_bytes(shape);
  if (total == 0) {
    return error(Code::kInvalidArgument, fmt::format("there is no arena of {} slots of {} bytes",
                                                     shape.slot_count, shape.slot_bytes));
  }
  std::unique_ptr<Arena> arena(new Arena);
  arena->shape_ = shape;
  arena->id_ = arena_id;
  arena->total_bytes_ = total;
  arena->slots_offset_ = kSmallPage;
  arena->slot_stride_ = stride_of(shape);
  SPDLD_ASSIGN(arena->reservation_,
               budget.reserve(total, uid,
                              fmt::format("an arena of {} batches of {}", shape.slot_count,
                                          format_bytes(shape.slot_bytes))));
  SPDLD_FAILPOINT_STATUS("delivery.arena.create");

  switch (shape.kind) {
    case ArenaKind::kMemfd: {
      SPDLD_ASSIGN(arena->fd_, open_memfd("spdld-arena"));
      break;
    }
    case ArenaKind::kHugetlb: {
      SPDLD_ASSIGN(arena->fd_, open_memfd("spdld-arena", MFD_HUGETLB));
      break;
    }
    case ArenaKind::kPosix: {
      SPDLD_ASSIGN(auto fds, open_posix());
      arena->fd_ = std::move(fds.first);
      arena->client_fd_ = std::move(fds.second);
      break;
    }
  }

  const int fd = arena->fd_.get();
  const auto size = static_cast<off_t>(total);
  if (::ftruncate(fd, size) != 0) return tl::unexpected(no_room(shape.kind, total, errno));
  arena->backed_.assign(shape.slot_count, 0);
  if (shape.kind == ArenaKind::kPosix) {
    SPDLD_ASSIGN(arena->shm_, promise_shm(fd, shape.kind, total, budget));
  }
  if (const int failed = take_pages(fd, 0, arena->slots_offset_); failed != 0)
    return tl::unexpected(no_room(shape.kind, total, failed));
  arena->shm_.keep(arena->slots_offset_);

  // This also reserves huge pages, all that the mapping has.
  void* base = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return tl::unexpected(no_room(shape.kind, total, errno));
  arena->base_ = static_cast<std::byte*>(base);
  (void)::madvise(base, total, MADV_DONTDUMP);  // an optimisation of core files, no more

  if (shape.kind != ArenaKind::kPosix) {
    // The mapping above keeps writing; whoever gets the fd from here on can only read.
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    if (::fcntl(fd, F_ADD_SEALS, seals) != 0) {
      return tl::unexpected(errno_status(errno, "sealing an arena (Linux 5.1 or newer is needed)"));
    }
  }
  arena->write_header();
  return arena;
}

Status Arena::back(std::uint32_t index) {
  if (backed_[index] != 0) return {};
  const int failed = take_pages(fd_.get(), slot_offset(index), slot_stride_);
  if (failed != 0) return no_room(shape_.kind, slot_stride_, failed);
  shm_.keep(slot_stride_);
  backed_[index] = 1;
  return {};
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, total_bytes_);
}

void Arena::write_header() {
  wire::ArenaHeader header{};
  header.magic = wire::kArenaMagic;
  header.abi_major = wire::kArenaAbiMajor;
  header.abi_minor = wire::kArenaAbiMinor;
  header.header_bytes = static_cast<std::uint32_t>(slots_offset_);
  header.page_bytes = static_cast<std::uint32_t>(page_bytes(shape_.kind));
  header.total_bytes = total_bytes_;
  random_bytes(std::as_writable_bytes(std::span(header.generation)));
  header.slots_offset = slots_offset_;
  header.slot_stride = slot_stride_;
  header.slot_count = shape_.slot_count;
  header.arena_id = id_;
  std::memcpy(base_, &header, sizeof header);
}

void Arena::rename(std::uint32_t arena_id) {
  id_ = arena_id;
  write_header();
}

std::span<const std::uint8_t, 16> Arena::generation() const {
  const auto* at = reinterpret_cast<const std::uint8_t*>(base_) +
                   __builtin_offsetof(wire::ArenaHeader, generation);
  return std::span<const std::uint8_t, 16>(at, 16);
}

std::uint64_t Arena::slot_offset(std::uint32_t index) const {
  return slots_offset_ + slot_stride_ * index;
}

std::span<std::byte> Arena::slot(std::uint32_t index) const {
  return {base_ + slot_offset(index), shape_.slot_bytes};
}

}  // namespace spdld::delivery
