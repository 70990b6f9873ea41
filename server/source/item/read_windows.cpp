// SPDX-License-Identifier: Apache-2.0
#include "source/item/read_windows.h"

#include <utility>

#include "base/rng.h"

namespace spdld::source {

std::uint64_t ReadWindows::key(const ItemStamp& file, std::uint64_t number) {
  return mix64(mix64(mix64(file.device, file.inode), static_cast<std::uint64_t>(file.ctime_ns)),
               number);
}

ReadWindows::WindowPtr ReadWindows::find(const ItemStamp& file, std::uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = windows_.find(key(file, number));
  if (found == windows_.end()) return nullptr;
  const WindowPtr& window = *found->second;
  if (window->file != file || window->number != number) return nullptr;
  used_.splice(used_.begin(), used_, found->second);
  return window;
}

void ReadWindows::keep(WindowPtr window) {
  const std::uint64_t at = key(window->file, window->number);
  WindowPtr unused;  // freed under no lock
  MutexLock lock(mutex_);
  if (const auto found = windows_.find(at); found != windows_.end()) {
    unused = std::exchange(*found->second, std::move(window));
    return;
  }
  used_.push_front(std::move(window));
  windows_.emplace(at, used_.begin());  // if it throws, the window is only not found
  if (used_.size() <= most_) return;
  unused = std::move(used_.back());
  windows_.erase(key(unused->file, unused->number));
  used_.pop_back();
}

}  // namespace spdld::source
