// SPDX-License-Identifier: Apache-2.0
// The pixels of baseline JPEG from its coefficients, on every instruction set that this machine
// has, bit for bit as libjpeg-turbo makes them.
#include "media/jpeg/jpeg_kernels.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "media/jpeg/coefficient_kernels.h"
#include "tests/support/forced_target.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::media::test {
namespace {

using spdld::testing::all_targets;
using spdld::testing::ForcedTarget;

constexpr int kMostAc = 1023;
constexpr int kMostDc = 1023;

// What takes a second, and less of it where each access is checked.
#ifdef SPDLD_SANITIZED
constexpr std::size_t kUsualBlocks = 10'000;
constexpr int kChromaStep = 15;
#else
constexpr std::size_t kUsualBlocks = 200'000;
constexpr int kChromaStep = 1;
#endif
static_assert(255 % kChromaStep == 0);

// How many blocks each instruction set transforms: SPDLD_BLOCKS, or the usual number.
std::size_t blocks_wanted() {
  const char* const wanted = std::getenv("SPDLD_BLOCKS");
  return wanted == nullptr ? kUsualBlocks : std::strtoull(wanted, nullptr, 10);
}

int between(int least, int most, KeyedRng& rng) {
  return least + static_cast<int>(rng.below(static_cast<std::uint64_t>(most - least + 1)));
}

// In zigzag order: of all kinds that decoders take shortcuts for.
JpegBlock drawn_block(KeyedRng& rng) {
  JpegBlock block{};
  const int kind = between(0, 7, rng);
  const int most = kind % 2 == 0 ? kMostAc : between(0, 60, rng);
  block[0] = static_cast<std::int16_t>(between(-kMostDc - 1, kMostDc, rng));
  switch (kind / 2) {
    case 0: break;  // nothing but the mean
    case 1:         // few coefficients
      for (int i = 0; i < 6; ++i)
        block[rng.below(kBlockSize - 1) + 1] = static_cast<std::int16_t>(between(-most, most, rng));
      break;
    case 2:  // the first ones
      for (std::size_t i = 1, end = 1 + rng.below(20); i < end; ++i)
        block[i] = static_cast<std::int16_t>(between(-most, most, rng));
      break;
    default:
      for (std::size_t i = 1; i < kBlockSize; ++i)
        block[i] = static_cast<std::int16_t>(between(-most, most, rng));
  }
  return block;
}

TEST(JpegKernels, TransformBlocksAsLibjpegDoes) {
  constexpr std::size_t kAcross = 64;
  constexpr std::size_t kDown = 64;
  constexpr std::size_t kBlocks = kAcross * kDown;
  KeyedRng rng(21);
  for (std::size_t done = 0; done < blocks_wanted(); done += kBlocks) {
    std::vector<JpegBlock> blocks(kBlocks);
    for (JpegBlock& block : blocks) block = drawn_block(rng);
    std::array<std::uint8_t, kBlockSize> quantizer{};
    const int most = between(1, 255, rng);
    for (std::uint8_t& each : quantizer) each = static_cast<std::uint8_t>(between(1, most, rng));
    const std::vector<std::uint8_t> expected =
        bare_decode(make_jpeg_of(blocks, kAcross, quantizer), 1);
    JpegMultipliers multipliers{};
    for (std::size_t i = 0; i < kBlockSize; ++i)
      multipliers[natural_of_zigzag(i)] = static_cast<std::int16_t>(quantizer[i]);
    for (const std::int64_t target : all_targets()) {
      const ForcedTarget forced(target);
      constexpr std::size_t kStride = kAcross * 8;
      std::vector<std::uint8_t> found(kBlocks * kBlockSize + kJpegSlack);
      for (std::size_t row = 0; row < kDown; ++row) {
        inverse_dct({.first = blocks[row * kAcross].data(), .count = kAcross, .columns = 1},
                    multipliers, found.data() + row * 8 * kStride, kStride);
      }
      found.resize(kBlocks * kBlockSize);
      ASSERT_TRUE(found == expected) << hwy::TargetName(target) << ", after " << done << " blocks";
    }
  }
}

TEST(JpegKernels, MakeTheSameOfPackedBlocks) {
  constexpr std::size_t kCount = 512;
  KeyedRng rng(25);
  JpegMultipliers multipliers{};
  for (std::size_t done = 0; done < blocks_wanted(); done += kCount) {
    std::vector<JpegBlock> blocks(kCount);
    for (JpegBlock& block : blocks) block = drawn_block(rng);
    for (std::int16_t& each : multipliers) each = static_cast<std::int16_t>(between(1, 255, rng));
    std::vector<std::uint8_t> packed(kCount * kMostPackedBlock + kPackedSlack);
    std::uint8_t* end = packed.data();
    for (const JpegBlock& block : blocks) end = pack_block(block.data(), end);
    ASSERT_EQ(skip_blocks(packed.data(), end, kCount), end);
    for (const std::int64_t target : all_targets()) {
      const ForcedTarget forced(target);
      std::vector<std::int16_t> rows(kCount * kBlockSize);
      ASSERT_EQ(unpack_blocks(packed.data(), end, kCount, rows.data()), end)
          << hwy::TargetName(target);
      for (std::size_t i = 0; i < kCount * kBlockSize; ++i)
        ASSERT_EQ(rows[i], blocks[i / kBlockSize][kNaturalToZigzag[i % kBlockSize]])
            << hwy::TargetName(target);
      constexpr std::ptrdiff_t kStride = kCount * 8 + kJpegSlack;
      std::vector<std::uint8_t> expected(8 * kStride), found(8 * kStride);
      inverse_dct({.first = blocks[0].data(), .count = kCount}, multipliers, expected.data(),
                  kStride);
      inverse_dct({.first = rows.data(), .order = BlockOrder::kRows, .count = kCount}, multipliers,
                  found.data(), kStride);
      ASSERT_TRUE(found == expected) << hwy::TargetName(target) << ", after " << done << " blocks";
    }
  }
}

// Memory behind which is a page that nobody may touch: kernels of all instruction sets meet it,
// where AddressSanitizer's build has one alone.
class FencedBytes {
 public:
  explicit FencedBytes(std::size_t most) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t room = (most + page - 1) / page * page;
    mapped_ = room + page;
    void* const begin =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(begin, MAP_FAILED);
    begin_ = static_cast<std::uint8_t*>(begin);
    end_ = begin_ + room;
    EXPECT_EQ(::mprotect(end_, page, PROT_NONE), 0);
  }
  ~FencedBytes() { ::munmap(begin_, mapped_); }
  FencedBytes(const FencedBytes&) = delete;
  FencedBytes& operator=(const FencedBytes&) = delete;

  std::uint8_t* last(std::size_t bytes) const { return end_ - bytes; }

 private:
  std::uint8_t* begin_ = nullptr;
  std::uint8_t* end_ = nullptr;
  std::size_t mapped_ = 0;
};

TEST(JpegKernels, FindBytesThatAreNoBlocks) {
  const FencedBytes fenced(2 * kMostPackedBlock + kPackedSlack);
  KeyedRng rng(26);
  int refused = 0;
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::array<std::uint8_t, 2 * kMostPackedBlock> bytes{};
    std::uint8_t* end = bytes.data();
    for (int block = 0; block < 2; ++block) {
      JpegBlock drawn = drawn_block(rng);
      if (i % 8 == 0) drawn.fill(1000);  // the longest that there is
      end = pack_block(drawn.data(), end);
    }
    for (std::uint64_t left = rng.below(4); left > 0; --left)
      bytes[rng.below(bytes.size())] = static_cast<std::uint8_t>(rng.below(256));
    const std::size_t told = static_cast<std::size_t>(end - bytes.data()) - rng.below(3);
    std::uint8_t* const begin = fenced.last(told + kPackedSlack);
    std::copy_n(bytes.begin(), told, begin);
    for (std::size_t at = told; at < told + kPackedSlack; ++at)
      begin[at] = static_cast<std::uint8_t>(rng.below(256));
    const std::uint8_t* const skipped = skip_blocks(begin, begin + told, 2);
    EXPECT_TRUE(skipped == nullptr || skipped <= begin + told);
    std::array<std::int16_t, 2 * kBlockSize> rows{};
    const std::uint8_t* const found = unpack_blocks(begin, begin + told, 2, rows.data());
    EXPECT_TRUE(found == nullptr || found <= begin + told);
    for (const std::int64_t target : all_targets()) {
      const ForcedTarget forced(target);
      std::array<std::int16_t, 2 * kBlockSize> others{};
      ASSERT_EQ(unpack_blocks(begin, begin + told, 2, others.data()), found)
          << hwy::TargetName(target);
      if (found != nullptr) {
        ASSERT_EQ(others, rows) << hwy::TargetName(target);
      }
    }
    ++(found == nullptr ? refused : accepted);
    if (found != nullptr) {
      EXPECT_EQ(skipped, found);
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(accepted, 2000);
}

TEST(JpegKernels, TakeBlocksOutOfTheirMcus) {
  KeyedRng rng(22);
  std::vector<JpegBlock> blocks(6 * 5);  // of 4:2:0
  for (JpegBlock& block : blocks) block = drawn_block(rng);
  JpegMultipliers multipliers{};
  multipliers.fill(3);
  const auto transformed = [&](const BlockRow& row) {
    const std::size_t stride = row.count * 8 + kJpegSlack;
    std::vector<std::uint8_t> out(8 * stride);
    inverse_dct(row, multipliers, out.data(), static_cast<std::ptrdiff_t>(stride));
    return out;
  };
  const BlockRow luma{.first = blocks[0].data(), .count = 10, .columns = 2, .mcu_step = 6 * 64};
  const std::vector<std::uint8_t> together = transformed(luma);
  for (std::size_t i = 0; i < luma.count; ++i) {
    const auto alone =
        transformed({.first = blocks[i / 2 * 6 + i % 2].data(), .count = 1, .columns = 1});
    for (std::size_t y = 0; y < 8; ++y) {
      const std::uint8_t* const line = together.data() + y * (80 + kJpegSlack) + i * 8;
      EXPECT_TRUE(std::equal(line, line + 8, alone.data() + y * (8 + kJpegSlack)));
    }
  }
}

std::vector<std::uint8_t> drawn_samples(std::size_t count, KeyedRng& rng) {
  std::vector<std::uint8_t> samples(count + 2 * kJpegSlack);
  for (std::uint8_t& sample : samples) sample = static_cast<std::uint8_t>(rng.below(256));
  return samples;
}

// The triangle filter of libjpeg's "fancy" upsampling (jdsample.c).
TEST(JpegKernels, UpsampleByTheTriangleFilter) {
  KeyedRng rng(23);
  for (const std::int64_t target : all_targets()) {
    const ForcedTarget forced(target);
    for (std::size_t count = 1; count <= 70; ++count) {
      const auto near_samples = drawn_samples(count, rng);
      const auto far_samples = drawn_samples(count, rng);
      const std::uint8_t* const near = near_samples.data() + kJpegSlack;
      const std::uint8_t* const far = far_samples.data() + kJpegSlack;
      std::vector<std::uint8_t> out(2 * count + kJpegSlack);
      upsample_h2v1(near, count, out.data());
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) {
        ASSERT_EQ(out[2 * i], (3 * near[i] + near[i - 1] + 1) / 4);
        ASSERT_EQ(out[2 * i + 1], (3 * near[i] + near[i + 1] + 2) / 4);
      }
      upsample_h2v2(near, far, count, out.data());
      const auto sum = [&](std::ptrdiff_t i) { return 3 * near[i] + far[i]; };
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) {
        ASSERT_EQ(out[2 * i], (3 * sum(i) + sum(i - 1) + 8) / 16);
        ASSERT_EQ(out[2 * i + 1], (3 * sum(i) + sum(i + 1) + 7) / 16);
      }
    }
  }
}

// ITU-R BT.601 in 16 bits behind the point, as in jdcolor.c.
std::array<std::uint8_t, 3> rgb_of(int y, int cb, int cr) {
  constexpr int kHalf = 1 << 15;
  const auto fixed = [](double factor) { return static_cast<int>(factor * 65536 + 0.5); };
  const auto clamped = [](int value) {
    return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
  };
  const int blue = cb - 128;
  const int red = cr - 128;
  return {clamped(y + ((fixed(1.40200) * red + kHalf) >> 16)),
          clamped(y + ((-fixed(0.34414) * blue - fixed(0.71414) * red + kHalf) >> 16)),
          clamped(y + ((fixed(1.77200) * blue + kHalf) >> 16))};
}

TEST(JpegKernels, TurnEveryColourIntoLibjpegsRgb) {
  constexpr std::size_t kCount = 256;
  std::vector<std::uint8_t> y(kCount + kJpegSlack);
  for (std::size_t i = 0; i < kCount; ++i) y[i] = static_cast<std::uint8_t>(i);
  for (const std::int64_t target : all_targets()) {
    const ForcedTarget forced(target);
    std::vector<std::uint8_t> cb(kCount + kJpegSlack);
    std::vector<std::uint8_t> cr(kCount + kJpegSlack);
    std::vector<std::uint8_t> out(3 * kCount + kJpegSlack);
    for (int blue = 0; blue < 256; blue += kChromaStep) {
      std::fill(cb.begin(), cb.end(), static_cast<std::uint8_t>(blue));
      for (int red = 0; red < 256; red += kChromaStep) {
        std::fill(cr.begin(), cr.end(), static_cast<std::uint8_t>(red));
        ycc_to_rgb(y.data(), cb.data(), cr.data(), kCount, out.data());
        bool same = true;
        for (std::size_t i = 0; i < kCount; ++i) {
          const auto expected = rgb_of(static_cast<int>(i), blue, red);
          same &= std::equal(expected.begin(), expected.end(), out.data() + 3 * i);
        }
        ASSERT_TRUE(same) << hwy::TargetName(target) << ", cb " << blue << ", cr " << red;
      }
    }
  }
}

TEST(JpegKernels, TurnRowsOfEveryLengthIntoRgb) {
  KeyedRng rng(24);
  for (const std::int64_t target : all_targets()) {
    const ForcedTarget forced(target);
    for (std::size_t count = 1; count <= 150; ++count) {
      const auto y = drawn_samples(count, rng);
      const auto cb = drawn_samples(count, rng);
      const auto cr = drawn_samples(count, rng);
      std::vector<std::uint8_t> out(3 * count + kJpegSlack);
      ycc_to_rgb(y.data(), cb.data(), cr.data(), count, out.data());
      for (std::size_t i = 0; i < count; ++i) {
        const auto expected = rgb_of(y[i], cb[i], cr[i]);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.data() + 3 * i));
      }
    }
  }
}

}  // namespace
}  // namespace spdld::media::test
