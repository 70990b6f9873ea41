// SPDX-License-Identifier: Apache-2.0
#include "pipeline/file_applies.h"

#include <pthread.h>

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace spdld::pipeline {
namespace {

constexpr std::chrono::milliseconds kAskStalled{100};

}  // namespace

FileApplies::FileApplies(Apply apply, std::function<bool()> stalled, std::function<void()> done)
    : apply_(std::move(apply)), stalled_(std::move(stalled)), done_(std::move(done)) {}

FileApplies::~FileApplies() { stop(); }

void FileApplies::begin(std::vector<std::string> files) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    ++calls_;
  }
  order_.post([this, files = std::move(files)] {
    begin_each(files);
    {
      MutexLock lock(mutex_);
      --calls_;
      changed_.notify_all();
    }
    done_();
  });
}

void FileApplies::begin_each(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::jthread before;  // of this file; it has ended
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      if (!under_way_.insert(file).second) {
        spdlog::warn("{} is still being applied: its data may not answer", file);
        continue;
      }
      try {
        before = std::exchange(threads_[file], std::jthread([this, file] { apply(file); }));
      } catch (const std::system_error& none) {  // the machine has no thread
        under_way_.erase(file);
        spdlog::error("{} is not applied: {}", file, none.what());
        continue;
      }
    }
    const auto done = [this, &file]() SPDLD_REQUIRES(mutex_) {
      return stopping_ || !under_way_.contains(file);
    };
    while (!wait_for(done, kAskStalled) && !stalled_()) {
    }
  }
}

void FileApplies::apply(const std::string& file) {
  ::pthread_setname_np(::pthread_self(), "spdld-reload");
  try {
    apply_(file);
  } catch (const std::exception& thrown) {  // no memory, say
    spdlog::error("{}: {}", file, thrown.what());
  }
  {
    MutexLock lock(mutex_);
    under_way_.erase(file);
    changed_.notify_all();
  }
  done_();
}

bool FileApplies::pending() const {
  MutexLock lock(mutex_);
  return calls_ > 0 || !under_way_.empty();
}

bool FileApplies::wait_for(const std::function<bool()>& done, std::chrono::nanoseconds grace) {
  const auto end = std::chrono::steady_clock::now() + grace;
  MutexLock lock(mutex_);
  while (!done()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return false;
    changed_.wait_for(mutex_, left);
  }
  return true;
}

bool FileApplies::idle_within(std::chrono::nanoseconds grace) {
  return wait_for([this]() SPDLD_REQUIRES(mutex_) { return calls_ == 0 && under_way_.empty(); },
                  grace);
}

void FileApplies::stop() {
  std::map<std::string, std::jthread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  order_.stop();
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
}

}  // namespace spdld::pipeline
