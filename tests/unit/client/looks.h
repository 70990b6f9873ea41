// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/fake_daemon.h"
#include "tests/unit/client/fake_gpu.h"

namespace spdld::test {

// Kernels that look whether all of a batch's image is what it should be, when they run. Must
// outlive them.
class Looks {
 public:
  explicit Looks(FakeGpu& gpu) : gpu_(gpu) {}

  // The stream has waited for the batch, and knows of it.
  void launch(const Batch& batch, CUstream stream) {
    const TensorView& image = batch["image"];
    Look& look = looks_.emplace_back();
    look.image = gpu_.peek(image.data);
    look.bytes = image.bytes;
    look.wanted = value_of(batch.epoch(), batch.step());
    gpu_.launch(
        stream,
        [](void* argument) {
          auto& at = *static_cast<Look*>(argument);
          bool all = at.image != nullptr && at.bytes > 0;
          for (std::uint64_t i = 0; all && i < at.bytes; i += 64) all = at.image[i] == at.wanted;
          ++(all ? at.right : at.wrong);
        },
        &look);
  }
  void make_ready_and_launch(const Batch& batch, CUstream stream) {
    batch.make_ready(reinterpret_cast<std::uintptr_t>(stream));
    launch(batch, stream);
  }
  // Waits for the streams; all looks must have found what they looked for.
  void expect_all_right(const std::vector<CUstream>& streams, std::size_t looks) {
    for (CUstream stream : streams) FakeGpu::check(gpu_.functions().StreamSynchronize(stream));
    EXPECT_EQ(looks_.size(), looks);
    for (const Look& look : looks_) {
      EXPECT_EQ(look.right, 1) << "of value " << static_cast<int>(look.wanted);
      EXPECT_EQ(look.wrong, 0) << "of value " << static_cast<int>(look.wanted);
    }
  }

 private:
  struct Look {
    const std::uint8_t* image = nullptr;
    std::uint64_t bytes = 0;
    std::uint8_t wanted = 0;
    std::atomic<int> right{0};
    std::atomic<int> wrong{0};
  };

  FakeGpu& gpu_;
  std::deque<Look> looks_;
};

// A kernel that holds a stream up until it is let go. One that was dropped before it began, with
// its context, must not begin any more when this is destroyed.
class Gate {
 public:
  Gate(FakeGpu& gpu, CUstream stream) {
    gpu.launch(
        stream, [](void* gate) { static_cast<Gate*>(gate)->hold(); }, this);
  }
  ~Gate() {
    open();
    while (reached_.load() && !passed_.load()) std::this_thread::yield();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() { open_.store(true); }
  void wait_until_reached() const {
    while (!reached_.load()) std::this_thread::yield();
  }

 private:
  void hold() {
    reached_.store(true);
    while (!open_.load()) std::this_thread::yield();
    passed_.store(true);
  }

  std::atomic<bool> reached_{false};
  std::atomic<bool> open_{false};
  std::atomic<bool> passed_{false};
};

}  // namespace spdld::test
