// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "delivery/device_memory.h"
#include "posix/unique_fd.h"

namespace spdld::stream::testing {

// A GPU whose memory is this process's, and whose thread is the test: nothing is copied, and
// nothing posted is done, before the test says so. What it checks by itself: a slot does not change
// while it is copied, nothing is written outside of what was allocated, and what was allocated and
// pinned is let go of. Memory that a copy is to write to is spoilt when the copy begins, so that
// whoever still reads it notices.
class HandGpu final : public delivery::DeviceMemory {
 public:
  explicit HandGpu(std::string uuid, std::uint64_t limit_bytes = std::uint64_t{1} << 30)
      : uuid_(std::move(uuid)), counts_(std::make_shared<Counts>()) {
    counts_->limit_bytes = limit_bytes;
  }
  ~HandGpu() override {
    EXPECT_TRUE(copies_.empty());
    EXPECT_TRUE(tasks_.empty());
    EXPECT_EQ(counts_->bytes, 0U) << "memory that nobody let go of";
    EXPECT_EQ(counts_->pinned.size(), 0U) << "slots that nobody unpinned";
  }
  HandGpu(const HandGpu&) = delete;
  HandGpu& operator=(const HandGpu&) = delete;

  const std::string& uuid() const override { return uuid_; }
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<delivery::DeviceArena>> allocate(std::uint64_t bytes) override {
    MutexLock lock(counts_->mutex);
    if (bytes > counts_->limit_bytes - counts_->bytes)
      return error(
          bytes > counts_->limit_bytes ? Code::kFailedPrecondition : Code::kResourceExhausted,
          std::to_string(bytes) + " bytes do not fit: " + std::to_string(counts_->bytes) + " of " +
              std::to_string(counts_->limit_bytes) + " are taken");
    counts_->bytes += bytes;
    ++counts_->allocations;
    return std::make_unique<Memory>(bytes, counts_);
  }
  std::unique_ptr<delivery::PinnedArena> pin(delivery::Arena&) override {
    return std::make_unique<Pins>(counts_);
  }
  void copy(delivery::DeviceCopy copy, std::function<void(const Status&)> done) override {
    MutexLock lock(mutex_);
    Begun begun{.what = std::move(copy), .done = std::move(done), .seen = {}};
    EXPECT_TRUE(is_alive(begun.what.pinned));
    auto& memory = static_cast<Memory&>(*begun.what.to);
    for (const auto& part : begun.what.parts) {
      begun.seen.emplace_back(part.from, part.from + part.bytes);
      std::memset(memory.at(part).data(), 0xEE, part.bytes);
    }
    copies_.push_back(std::move(begun));
    ++begun_;
  }
  void post(std::function<void()> task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  // The copy that was begun first is over, or fails. False: there is none.
  bool complete(const Status& status = {}) {
    Begun copy;
    {
      MutexLock lock(mutex_);
      if (copies_.empty()) return false;
      copy = std::move(copies_.front());
      copies_.pop_front();
    }
    if (copy.what.wanted && !copy.what.wanted()) {
      MutexLock lock(mutex_);
      ++unwanted_;
      return true;
    }
    EXPECT_TRUE(is_alive(copy.what.pinned)) << "let go of while the GPU reads it";
    auto& memory = static_cast<Memory&>(*copy.what.to);
    for (std::size_t i = 0; i < copy.what.parts.size(); ++i) {
      const auto& part = copy.what.parts[i];
      EXPECT_EQ(std::memcmp(copy.seen[i].data(), part.from, part.bytes), 0)
          << "the slot was written to while it was copied";
      if (status.ok()) std::memcpy(memory.at(part).data(), part.from, part.bytes);
    }
    const Status beside = copy.what.beside ? copy.what.beside() : Status();
    copy.done(status.ok() ? beside : status);
    return true;
  }
  // What was posted so far. False: nothing was.
  bool run_posted() {
    std::deque<std::function<void()>> tasks;
    {
      MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    const bool any = !tasks.empty();
    // Each dies before the next is run, as what it held may be what that lets go of.
    for (; !tasks.empty(); tasks.pop_front()) tasks.front()();
    return any;
  }
  // Until it has nothing to do.
  void settle() {
    while (complete() || run_posted()) {
    }
  }

  std::size_t under_way() const {
    MutexLock lock(mutex_);
    return copies_.size();
  }
  std::uint64_t begun() const {
    MutexLock lock(mutex_);
    return begun_;
  }
  // Copies that were not made, as nobody wanted them any more.
  std::uint64_t unwanted() const {
    MutexLock lock(mutex_);
    return unwanted_;
  }
  std::size_t pinned() const {
    MutexLock lock(counts_->mutex);
    return counts_->pinned.size();
  }
  int allocations() const {
    MutexLock lock(counts_->mutex);
    return counts_->allocations;
  }
  std::uint64_t bytes() const {
    MutexLock lock(counts_->mutex);
    return counts_->bytes;
  }
  void set_limit(std::uint64_t bytes) {
    MutexLock lock(counts_->mutex);
    counts_->limit_bytes = bytes;
  }
  // What lies there.
  static std::span<const std::byte> read(const delivery::DeviceArena& arena,
                                         delivery::DevicePlace place) {
    return static_cast<const Memory&>(arena).bytes().subspan(place.offset, place.bytes);
  }

 private:
  // What is left of it, which may be more than of the GPU itself.
  struct Counts {
    Mutex mutex;
    std::uint64_t limit_bytes SPDLD_GUARDED_BY(mutex) = 0;
    std::uint64_t bytes SPDLD_GUARDED_BY(mutex) = 0;
    int allocations SPDLD_GUARDED_BY(mutex) = 0;
    std::set<const delivery::PinnedArena*> pinned SPDLD_GUARDED_BY(mutex);
  };
  class Memory final : public delivery::DeviceArena {
   public:
    Memory(std::uint64_t bytes, std::shared_ptr<Counts> counts)
        : fd_(::memfd_create("hand-gpu", MFD_CLOEXEC)), counts_(std::move(counts)) {
      EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
      void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
      EXPECT_NE(at, MAP_FAILED);
      bytes_ = {static_cast<std::byte*>(at), bytes};
    }
    ~Memory() override {
      ::munmap(bytes_.data(), bytes_.size());
      MutexLock lock(counts_->mutex);
      counts_->bytes -= bytes_.size();
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    wire::DeviceMemoryKind kind() const override { return wire::DeviceMemoryKind::kVmm; }
    std::uint64_t total_bytes() const override { return bytes_.size(); }
    int client_fd() const override { return fd_.get(); }
    std::span<std::byte> at(const delivery::DeviceCopy::Part& part) const {
      EXPECT_LE(part.to + part.bytes, bytes_.size());
      return bytes_.subspan(part.to, part.bytes);
    }
    std::span<const std::byte> bytes() const { return bytes_; }

   private:
    const UniqueFd fd_;
    std::span<std::byte> bytes_;
    const std::shared_ptr<Counts> counts_;
  };
  class Pins final : public delivery::PinnedArena {
   public:
    explicit Pins(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {
      MutexLock lock(counts_->mutex);
      counts_->pinned.insert(this);
    }
    ~Pins() override {
      MutexLock lock(counts_->mutex);
      counts_->pinned.erase(this);
    }
    Pins(const Pins&) = delete;
    Pins& operator=(const Pins&) = delete;

   private:
    const std::shared_ptr<Counts> counts_;
  };
  bool is_alive(const delivery::PinnedArena* pins) const {
    MutexLock lock(counts_->mutex);
    return counts_->pinned.contains(pins);
  }
  struct Begun {
    delivery::DeviceCopy what;
    std::function<void(const Status&)> done;
    std::vector<std::vector<std::byte>> seen;  // of each part, when it was begun
  };

  const std::string uuid_;
  const std::string name_ = "a GPU by hand";
  const std::shared_ptr<Counts> counts_;
  mutable Mutex mutex_;
  std::deque<Begun> copies_ SPDLD_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> tasks_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t begun_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t unwanted_ SPDLD_GUARDED_BY(mutex_) = 0;
};
using HandGpuPtr = std::shared_ptr<HandGpu>;
inline const HandGpuPtr kMainMemory = nullptr;

}  // namespace spdld::stream::testing
