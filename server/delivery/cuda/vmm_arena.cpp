// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/vmm_arena.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/log.h"
#include "delivery/memory_probe.h"

namespace spdld::delivery::cuda {
namespace {

CUmemAllocationProp shared_memory_of(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

}  // namespace

Result<std::unique_ptr<VmmArena>> VmmArena::make(std::uint64_t bytes,
                                                 std::shared_ptr<const Context> context,
                                                 std::shared_ptr<VramBudget> budget) {
  const Current current(*context);
  if (!current.status().ok()) return tl::unexpected<Status>(current.status());
  std::unique_ptr<VmmArena> arena(new VmmArena(std::move(context), std::move(budget)));
  if (Status taken = arena->take(bytes); !taken.ok())
    return tl::unexpected<Status>(std::move(taken));
  return arena;
}

Status VmmArena::take(std::uint64_t bytes) {
  const Functions& functions = context_->functions();
  const CUmemAllocationProp properties = shared_memory_of(context_->device());
  std::size_t granularity = 0;
  SPDLD_TRY(context_->status(functions.MemGetAllocationGranularity(
                                 &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                             "asking in which units memory is shared"));
  SPDLD_TRY(reserve((bytes + granularity - 1) / granularity * granularity));
  const CUresult created = functions.MemCreate(&memory_, bytes_, &properties, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return no_room(bytes_);
  SPDLD_TRY(context_->status(created, "taking memory that can be shared"));
  created_ = true;
  int fd = -1;
  SPDLD_TRY(context_->status(functions.MemExportToShareableHandle(
                                 &fd, memory_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                             "exporting memory (is LimitNOFILE reached?)"));
  fd_ = UniqueFd(fd);
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  CUdeviceptr base = 0;
  SPDLD_TRY(context_->status(functions.MemAddressReserve(&base, bytes_, 0, 0, 0),
                             "reserving addresses for memory that is shared"));
  base_ = base;
  SPDLD_TRY(context_->status(functions.MemMap(base_, bytes_, 0, memory_, 0), "mapping memory"));
  mapped_ = true;
  const CUmemAccessDesc access{.location = properties.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return context_->status(functions.MemSetAccess(base_, bytes_, &access, 1),
                          "opening memory for copies");
}

Status VmmArena::reserve(std::uint64_t bytes) {
  std::uint64_t used = budget_->used.load(std::memory_order_relaxed);
  do {
    const bool ever_fits = bytes <= budget_->limit;
    if (!ever_fits || used > budget_->limit - bytes)
      return Status(
          ever_fits ? Code::kResourceExhausted : Code::kFailedPrecondition,
          fmt::format("{} on {} do not fit: {} of the {} that cuda.budget allows the daemon there "
                      "are taken; raise it, or lower batch.size or delivery.prefetch",
                      format_bytes(bytes), context_->name(), format_bytes(used),
                      format_bytes(budget_->limit)));
  } while (!budget_->used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  bytes_ = bytes;
  return {};
}

Status VmmArena::no_room(std::uint64_t bytes) const {
  std::size_t free = 0;
  std::size_t total = 0;
  std::string left;
  if (context_->functions().MemGetInfo(&free, &total) == CUDA_SUCCESS)
    left = fmt::format(": {} of its {} are free", format_bytes(free), format_bytes(total));
  const bool ever_fits = left.empty() || bytes <= total;
  return Status(
      ever_fits ? Code::kResourceExhausted : Code::kFailedPrecondition,
      fmt::format("{} on {} cannot be had{}; leave more of the GPU's memory to the daemon, "
                  "or lower batch.size or delivery.prefetch",
                  format_bytes(bytes), context_->name(), left));
}

VmmArena::~VmmArena() {
  if (Status gone = let_go(); !gone.ok()) {
    spdlog::error("{}; {} there stay taken until the daemon ends", gone.message(),
                  format_bytes(bytes_));
    return;
  }
  budget_->used.fetch_sub(bytes_, std::memory_order_relaxed);
}

// Addresses that cannot be freed cost nothing; memory that is still mapped or held does.
Status VmmArena::let_go() {
  if (base_ == 0 && !created_) return {};
  const Functions& functions = context_->functions();
  const Current current(*context_);
  SPDLD_TRY(current.status());
  const Status unmapped =
      mapped_ ? context_->status(functions.MemUnmap(base_, bytes_), "unmapping memory") : Status();
  if (base_ != 0 && unmapped.ok()) functions.MemAddressFree(base_, bytes_);
  const Status released =
      created_ ? context_->status(functions.MemRelease(memory_), "releasing memory") : Status();
  return unmapped.ok() ? released : unmapped;
}

}  // namespace spdld::delivery::cuda
