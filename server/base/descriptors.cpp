// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <atomic>
#include <cerrno>

namespace spdld {
namespace {

// Descriptors are the process's, and so is this number. Relaxed: it stands for nothing else.
std::atomic<std::uint64_t> shortages{0};

}  // namespace

void note_descriptor_shortage(int err) {
  if (err == EMFILE || err == ENFILE) shortages.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t descriptor_shortages() { return shortages.load(std::memory_order_relaxed); }

}  // namespace spdld
