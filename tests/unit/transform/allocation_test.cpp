// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/unit/transform/images.h"

namespace {

std::atomic<int> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A call of its own: next to an inlined free() the compiler warns of a mismatch.
[[gnu::noinline]] void give_back(void* memory) noexcept { std::free(memory); }

}  // namespace

// Every allocation of this binary is counted.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

namespace spdld::transform {
namespace {

TEST(ImagePass, AllocatesNothingOnceItHasSeenALargerImage) {
  const TestImage image = noise(300, 200, 3);
  std::vector<std::byte> out(64 * 64 * 3 * 4);
  ImagePass pass;
  const auto run_one = [&](Geometry geometry, const ImageTarget& target) {
    const Rect region = pass.begin(geometry, 3, target);
    for (int y = 0; y < region.height; ++y) {
      pass.row(y, image.pixels.data() + ((region.y + y) * image.width + region.x) * 3);
    }
    pass.finish();
  };
  const auto images = [&](int most) {
    KeyedRng rng(3);
    for (int i = 0; i < 50; ++i) {
      const auto interpolation = static_cast<Interpolation>(rng.below(3));
      const int width =
          most / 2 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most) / 2));
      Geometry geometry = resized({width, most * 2 / 3}, {64, 64}, interpolation);
      geometry.flip = i % 2 == 0;
      const PixelFormat format{.dtype = i % 3 == 0 ? DType::kUInt8 : DType::kFloat32};
      run_one(geometry, {out.data(), format, i % 4 < 2 ? Layout::kNCHW : Layout::kNHWC});
    }
  };
  images(300);
  run_one(resized({300, 200}, {64, 64}, Interpolation::kBicubic), {out.data(), {}, Layout::kNCHW});
  const int before = allocations.load();
  images(200);
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace spdld::transform
