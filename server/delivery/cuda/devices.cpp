// SPDX-License-Identifier: Apache-2.0
#include "delivery/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "delivery/cuda/copier.h"
#include "delivery/cuda/gpu_facts.h"
#include "delivery/cuda/pinned_slots.h"
#include "delivery/cuda/vmm_arena.h"

namespace spdld::delivery {
namespace cuda {
namespace {

// One GPU, shared by all streams that deliver there.
class LentDevice final : public DeviceMemory {
 public:
  LentDevice(std::string uuid, std::shared_ptr<Context> context, std::shared_ptr<VramBudget> budget,
             std::shared_ptr<Registrations> registrations, std::shared_ptr<Copier> copier)
      : uuid_(std::move(uuid)),
        context_(std::move(context)),
        budget_(std::move(budget)),
        registrations_(std::move(registrations)),
        copier_(std::move(copier)) {}
  // The thread of the copies has the context last, as a driver may take its time to end one.
  ~LentDevice() override {
    context_.reset();
    copier_->stop();
  }

  const std::string& uuid() const override { return uuid_; }
  const std::string& name() const override { return context_->name(); }
  Result<std::unique_ptr<DeviceArena>> allocate(std::uint64_t bytes) override {
    return VmmArena::make(bytes, context_, budget_);
  }
  std::unique_ptr<PinnedArena> pin(Arena& arena) override {
    return std::make_unique<PinnedSlots>(arena, context_, registrations_);
  }
  void copy(DeviceCopy copy, std::function<void(const Status&)> done) override {
    copier_->copy(std::move(copy), std::move(done));
  }
  void post(std::function<void()> task) override { copier_->post(std::move(task)); }
  Status failure() const { return copier_->failure(); }

 private:
  const std::string uuid_;
  std::shared_ptr<Context> context_;
  const std::shared_ptr<VramBudget> budget_;
  const std::shared_ptr<Registrations> registrations_;
  const std::shared_ptr<Copier> copier_;
};

// One GPU that the driver shows, whether or not anybody has it. Under CudaDevices::mutex_.
struct Gpu {
  // Held while a context is begun there, which may take a second. Comes before CudaDevices::mutex_,
  // and is no part of what that guards.
  Mutex beginning = {};
  CUdevice device = 0;
  bool identified = false;
  DeviceFacts facts = {};
  std::shared_ptr<VramBudget> budget = {};
  std::weak_ptr<LentDevice> lent = {};
};

// "GPU-" and "MIG-" tell what it is; the digits alone tell which.
std::string_view digits_of(std::string_view uuid) {
  const std::size_t dash = uuid.find('-');
  return dash == 3 ? uuid.substr(4) : uuid;
}

class CudaDevices final : public Devices {
 public:
  explicit CudaDevices(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  // Tasks on a copier's thread may hold the last reference to its GPU, and a thread cannot join
  // itself.
  ~CudaDevices() override {
    for (const auto& copier : copiers_) {
      copier->stop();
      copier->join();
    }
  }

  Result<DeviceMemoryPtr> open(const std::string& uuid) override SPDLD_EXCLUDES(mutex_) {
    if (!driver().why_not.empty())
      return error(Code::kFailedPrecondition, "the daemon cannot use GPUs: " + driver().why_not);
    SPDLD_ASSIGN(const std::shared_ptr<Gpu> gpu, find(uuid));
    const MutexLock beginning(gpu->beginning);
    if (auto lent = lent_of(*gpu)) return lent;
    return begin(*gpu);
  }

  std::vector<DeviceFacts> facts() const override SPDLD_EXCLUDES(mutex_) {
    look();
    MutexLock lock(mutex_);
    std::vector<DeviceFacts> facts;
    for (const auto& gpu : gpus_) {
      facts.push_back(gpu->facts);
      facts.back().context = !gpu->lent.expired();
      facts.back().arena_bytes = gpu->budget->used.load(std::memory_order_relaxed);
    }
    return facts;
  }
  std::uint64_t budget_bytes() const override { return budget_bytes_; }
  std::string why_none() const override { return driver().why_not; }
  std::string driver_text() const override {
    const int version = driver().version;
    return version == 0 ? std::string()
                        : fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }

 private:
  static const spdld::cuda::Driver& driver() { return spdld::cuda::driver(); }
  static const Functions& functions() { return *driver().functions; }

  Result<std::shared_ptr<Gpu>> find(const std::string& uuid) SPDLD_EXCLUDES(mutex_) {
    std::vector<std::shared_ptr<Copier>> ended;  // joined without the lock
    look();
    MutexLock lock(mutex_);
    const auto first_ended = std::stable_partition(
        copiers_.begin(), copiers_.end(), [](const auto& copier) { return !copier->ended(); });
    ended.assign(std::make_move_iterator(first_ended), std::make_move_iterator(copiers_.end()));
    copiers_.erase(first_ended, copiers_.end());
    const auto found = std::find_if(gpus_.begin(), gpus_.end(), [&](const auto& candidate) {
      return candidate->identified && digits_of(candidate->facts.uuid) == digits_of(uuid);
    });
    if (found == gpus_.end()) return error(Code::kFailedPrecondition, unseen(uuid));
    const DeviceFacts& facts = (*found)->facts;
    if (!facts.why_not.empty())
      return error(Code::kFailedPrecondition,
                   facts.name + " (" + facts.uuid + "): " + facts.why_not);
    return *found;
  }

  // Null: nobody has it, or it is of no more use.
  DeviceMemoryPtr lent_of(const Gpu& gpu) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto lent = gpu.lent.lock();
    return lent != nullptr && lent->failure().ok() ? lent : nullptr;
  }

  // Called without the lock, so that asking for facts, or for another GPU, does not wait for it.
  Result<DeviceMemoryPtr> begin(Gpu& gpu) SPDLD_EXCLUDES(mutex_) {
    CUdevice device = 0;
    DeviceFacts facts;
    {
      MutexLock lock(mutex_);
      device = gpu.device;
      facts = gpu.facts;
    }
    auto context = std::make_shared<Context>(functions(), device, facts.name);
    auto copier = std::make_shared<Copier>(context);
    if (Status begun = context->begin(); !begun.ok()) return tl::unexpected<Status>(begun);
    if (Status started = copier->start(); !started.ok()) return tl::unexpected<Status>(started);
    auto lent = std::make_shared<LentDevice>(facts.uuid, std::move(context), gpu.budget,
                                             registrations_, copier);
    MutexLock lock(mutex_);
    copiers_.push_back(std::move(copier));
    gpu.lent = lent;
    return lent;
  }

  // Asks the driver again for all that it failed to tell before, and for what may change.
  void look() const SPDLD_EXCLUDES(mutex_) {
    if (!driver()) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(driver().devices); ++i) {
      CUdevice device = 0;
      bool identified = false;
      DeviceFacts facts;
      {
        MutexLock lock(mutex_);
        if (gpus_.size() <= i) {
          gpus_.push_back(std::make_shared<Gpu>());
          gpus_.back()->budget = std::make_shared<VramBudget>(budget_bytes_);
          gpus_.back()->facts.budget_bytes = budget_bytes_;
        }
        device = gpus_[i]->device;
        identified = gpus_[i]->identified;
        facts = gpus_[i]->facts;
      }
      if (!identified) identified = identify(functions(), static_cast<int>(i), device, facts).ok();
      if (identified) check_deliverable(functions(), device, facts);
      MutexLock lock(mutex_);
      Gpu& gpu = *gpus_[i];
      if (gpu.identified && !identified) continue;  // another thread was told
      gpu.device = device;
      gpu.identified = identified;
      gpu.facts = std::move(facts);
    }
  }

  std::string unseen(const std::string& uuid) const SPDLD_REQUIRES(mutex_) {
    std::string seen;
    for (const auto& gpu : gpus_) {
      seen += (seen.empty() ? "" : ", ");
      seen += gpu->identified ? gpu->facts.uuid : gpu->facts.name + ": " + gpu->facts.why_not;
    }
    return "the daemon sees no GPU " + uuid + " (it sees " + seen +
           "): give its container or unit that device, or see its CUDA_VISIBLE_DEVICES; of a GPU "
           "that is cut up by MIG a process sees one instance";
  }

  const std::uint64_t budget_bytes_;
  const std::shared_ptr<Registrations> registrations_ = std::make_shared<Registrations>();
  mutable Mutex mutex_;
  mutable std::vector<std::shared_ptr<Gpu>> gpus_ SPDLD_GUARDED_BY(mutex_);
  // They are joined by this class alone: see the destructor.
  std::vector<std::shared_ptr<Copier>> copiers_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Devices> find_devices(std::uint64_t budget_bytes) {
  return std::make_unique<cuda::CudaDevices>(budget_bytes);
}

}  // namespace spdld::delivery
