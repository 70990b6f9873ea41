// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "source/bytes/binary.h"
#include "source/bytes/varint.h"
#include "source/tar/tar_header.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;

struct Sample {
  std::uint64_t header_offset = 0;
  std::vector<TarPart> parts;
};

// Samples as a tar holds them: parts in any order, some missing, other members between.
std::vector<Sample> many_samples(std::size_t count, std::size_t parts) {
  std::vector<Sample> samples;
  KeyedRng rng(7);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Sample sample{.header_offset = at, .parts = std::vector<TarPart>(parts)};
    for (std::size_t n = 0; n < parts; ++n) {
      at += kTarBlock * (1 + rng.below(3));
      if (rng.below(8) == 0) continue;
      TarPart& part = sample.parts[(n + i) % parts];
      part = {.offset = at,
              .size = rng.below(4) == 0 ? rng.below(1 << 24) : rng.below(600),
              .present = true};
      at += tar_padded(part.size);
    }
    // Two fields may be the same member.
    if (parts > 1 && i % 5 == 0) sample.parts[1] = sample.parts[0];
    samples.push_back(sample);
  }
  return samples;
}

ShardIndex index_of(const std::vector<Sample>& samples, std::size_t parts) {
  ShardIndexBuilder builder(parts);
  for (const Sample& sample : samples)
    builder.add(sample.header_offset, sample.parts, sample.header_offset + 1);
  ShardIndex index = std::move(builder).finish();
  index.path = "/data/a.tar";
  index.stamp = {
      .device = 4, .inode = 1, .size_bytes = std::uint64_t{1} << 40, .mtime_ns = 2, .ctime_ns = 3};
  index.settled = true;
  return index;
}

void expect_holds(const ShardIndex& index, const std::vector<Sample>& samples) {
  ASSERT_EQ(index.samples(), samples.size());
  for (std::uint64_t i = 0; i < samples.size(); ++i) {
    std::vector<TarPart> parts(index.max_bytes().size());
    EXPECT_EQ(index.find(i, parts), samples[i].header_offset) << i;
    EXPECT_EQ(parts, samples[i].parts) << i;
  }
}

std::string written(const ShardIndex& index) {
  BinaryWriter out;
  index.write(out);
  return out.text();
}

std::optional<ShardIndex> read(const std::string& bytes, std::size_t parts) {
  BinaryReader in(bytes);
  auto index = ShardIndex::read(in, parts);
  if (in.left() != 0) return std::nullopt;
  return index;
}

TEST(Varint, GivesBackEveryNumber) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128},
                                    std::uint64_t{1} << 35, ~std::uint64_t{0}}) {
    std::string bytes;
    put_varint(bytes, value);
    std::string_view in = bytes;
    std::uint64_t taken = 1;
    EXPECT_TRUE(take_varint(in, taken));
    EXPECT_EQ(taken, value);
    EXPECT_TRUE(in.empty());
    in = std::string_view(bytes).substr(0, bytes.size() - 1);
    EXPECT_FALSE(take_varint(in, taken));
  }
  std::string_view large("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
  std::uint64_t taken = 0;
  EXPECT_FALSE(take_varint(large, taken));
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(unzigzag(zigzag(value)), value);
}

TEST(ShardIndex, GivesBackWhatItWasBuiltOf) {
  for (const std::size_t parts : {0, 1, 3, 7}) {
    const auto samples = many_samples(1000, parts);
    expect_holds(index_of(samples, parts), samples);
  }
}

TEST(ShardIndex, KnowsTheLargestOfEachPart) {
  const ShardIndex index =
      index_of({{.header_offset = 0, .parts = {{512, 7, true}, {}}},
                {.header_offset = 1024, .parts = {{1536, 5, true}, {2560, 0, true}}}},
               2);
  EXPECT_THAT(index.max_bytes(), ElementsAre(7, 0));
}

TEST(ShardIndex, TakesFewBytesASample) {
  ShardIndexBuilder builder(3);
  std::uint64_t at = 0;
  constexpr std::uint64_t kSamples = 10'000;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t header = at;
    std::vector<TarPart> parts(3);
    const std::uint64_t sizes[] = {3, 110'000 + i % 999, 200 + i % 90};
    for (std::size_t n = 0; n < 3; ++n) {
      parts[n] = {.offset = at + 512, .size = sizes[n], .present = true};
      at += 512 + tar_padded(sizes[n]);
    }
    builder.add(header, parts, 0);
  }
  ShardIndex index = std::move(builder).finish();
  index.stamp.size_bytes = at;
  EXPECT_LE(index.memory_bytes(), 20 * kSamples);
  EXPECT_LE(written(index).size(), 20 * kSamples);
}

TEST(ShardIndex, IsTheSameAfterItWasWrittenAndRead) {
  const auto samples = many_samples(100, 3);
  ShardIndex index = index_of(samples, 3);
  index.skipped[2] = 5;
  index.keys_digest = {6, 7};
  ColumnsBuilder values({{.name = "label", .type = ValueType::kInt64, .max_bytes = 0}});
  for (int i = 0; i < 100; ++i) values.add(0, Value(std::int64_t{i}));
  index.values = std::move(values).finish();
  index.value_keys = {"key"};
  const auto again = read(written(index), 3);
  ASSERT_TRUE(again);
  expect_holds(*again, samples);
  EXPECT_EQ(again->path, index.path);
  EXPECT_EQ(again->stamp, index.stamp);
  EXPECT_TRUE(again->settled);
  EXPECT_EQ(again->skipped, index.skipped);
  EXPECT_EQ(again->keys_digest, index.keys_digest);
  EXPECT_EQ(again->values.digest(), index.values.digest());
  EXPECT_EQ(again->value_keys, index.value_keys);
  EXPECT_EQ(again->max_bytes(), index.max_bytes());
}

TEST(ShardIndex, IsNotReadWithAnotherNumberOfParts) {
  EXPECT_FALSE(read(written(index_of(many_samples(100, 3), 3)), 2));
  EXPECT_FALSE(read(written(index_of(many_samples(100, 3), 3)), 4));
}

TEST(ShardIndex, IsNotReadWhenItIsCutOff) {
  const std::string bytes = written(index_of(many_samples(20, 3), 3));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read(bytes.substr(0, size), 3)) << size;
}

TEST(ShardIndex, StaysInsideTheShardWhateverWasWritten) {
  const std::string good = written(index_of(many_samples(40, 3), 3));
  int taken = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    KeyedRng rng(i);
    std::string bytes = good;
    for (std::uint64_t n = 0; n <= rng.below(4); ++n)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    const auto index = read(bytes, 3);
    if (!index) continue;
    ++taken;
    for (std::uint64_t sample = 0; sample < index->samples(); ++sample) {
      std::vector<TarPart> parts(3);
      EXPECT_LE(index->find(sample, parts), index->stamp.size_bytes);
      for (const TarPart& part : parts) EXPECT_LE(part.offset + part.size, index->stamp.size_bytes);
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 20'000);
}

}  // namespace
}  // namespace spdld::source
