// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "posix/unique_fd.h"
#include "spdld/wire.h"

namespace spdld::client {

// A use of an arena that ends before the arena is unmapped.
class MappingUse {
 public:
  virtual ~MappingUse() = default;
};

// One arena as this process sees it: mapped read-only when it is opened, unmapped when the loader
// and the last lease have let go of it. Thread-safe. In a forked child it is not there, and
// destroying it does nothing.
class Mapping {
 public:
  // Checks that the memory is what the daemon says before touching it: sealed, so that reading it
  // can never fault (with posix: of /dev/shm, without a name, and not open for writing here), and
  // of this arena. Throws ConnectionError.
  static std::shared_ptr<Mapping> open(UniqueFd fd, const wire::ArenaOpenFrame& frame);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::byte* base() const { return base_; }
  std::uint64_t total_bytes() const { return total_bytes_; }
  // From the begin of one slot to that of the next.
  std::uint64_t slot_stride() const { return slot_stride_; }
  bool contains_slot(const std::byte* slot) const {
    const auto offset = static_cast<std::uint64_t>(slot - base_);
    return slot_stride_ > 0 && contains(offset, slot_stride_);
  }
  bool contains(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= total_bytes_ && bytes <= total_bytes_ - offset;
  }

  // The same memory, writable and copy-on-write; made when first asked for. Throws LeaseError.
  std::byte* private_base();
  // Forgets what was written to this part of the private view.
  void restore(std::uint64_t offset, std::uint64_t bytes);

  // The loader's thread alone asks for it and sets it. Null: there is none.
  MappingUse* use() const { return use_.get(); }
  void set_use(std::unique_ptr<MappingUse> use) { use_ = std::move(use); }

 private:
  Mapping() = default;

  pid_t owner_ = 0;
  wire::ArenaKind kind_{};
  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t slot_stride_ = 0;
  std::unique_ptr<MappingUse> use_;
  std::mutex mutex_;
  std::byte* private_base_ = nullptr;  // guarded by mutex_ until it is set; then constant
};

}  // namespace spdld::client
