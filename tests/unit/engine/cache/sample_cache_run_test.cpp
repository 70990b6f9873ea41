// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/cache/sample_cache_disk.h"
#include "engine/cache/sample_cache_memory.h"
#include "engine/cache/sample_caches.h"
#include "engine/run.h"
#include "posix/unique_fd.h"
#include "tests/support/pipelines.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/sizes.h"
#include "tests/unit/engine/kept_source.h"
#include "tests/unit/engine/no_calls.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/source/item/fake_sink.h"

// Rows made with a cache and without, which must be the same to the byte.
namespace spdld::engine {
namespace {

using media::test::JpegRecipe;
using media::test::make_jpeg;
using spdld::testing::KeptSource;
using test::kMiB;

// Makes whole epochs by hand, a row after the other.
class Maker {
 public:
  Maker(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
        std::shared_ptr<SampleCache> cache, std::uint64_t seed = 5, RunPool pool = {})
      : plan_(plan),
        items_(source->size()),
        run_(plan, source, source::Sampler(source->size(), plan->spec.shuffle, seed), seed, pool,
             RunLimits{}, clock_, std::move(cache)) {}

  // All of an epoch's batches, one after the other.
  std::vector<std::byte> epoch(std::uint64_t number) {
    const std::uint64_t rows = plan_->layout.rows();
    std::vector<std::byte> all;
    for (std::uint64_t step = 0; step * rows < items_; ++step) {
      std::vector<std::byte> slot(plan_->layout.slot_bytes(), std::byte{0xaa});
      const BatchOrder order{.epoch = number,
                             .step = step,
                             .rows = {.first = step * rows, .rows = rows, .valid = rows},
                             .next_position = (step + 1) * rows,
                             .slot = slot.data(),
                             .ticket = 0};
      Packing packing(plan_, rows);
      for (std::uint64_t index = 0; index < rows; ++index) make(order, index, packing);
      if (plan_->packs()) {
        const Status status = run_.pack(order, packing);
        EXPECT_TRUE(status.ok()) << status.message();
      }
      all.insert(all.end(), slot.begin(), slot.end());
    }
    return all;
  }

  const Run& run() const { return run_; }
  NotingPort port;
  int turns_lost = 0;  // rows that were given back before they were made

 private:
  void make(const BatchOrder& order, std::uint64_t index, Packing& packing) {
    Row row;
    row.order = &order;
    row.port = &port;
    row.packing = &packing;
    row.index = index;
    StreamFailure failure;
    for (std::uint64_t token = 1;; ++token) {
      source::FakeSink sink;
      NoCalls no_calls;
      const RowState state =
          run_.process(row, 0, 0, {.fetch = sink, .call = no_calls}, token, failure);
      ASSERT_NE(state, RowState::kFailed) << failure.status.message();
      if (state == RowState::kDone) return;
      if (state == RowState::kAgain) {
        ++turns_lost;
        continue;
      }
      run_.fetched(row, sink.wait(token));
    }
  }

  const std::shared_ptr<const Plan> plan_;
  const std::uint64_t items_;
  SystemClock clock_;
  Run run_;
};

std::vector<KeptSource::Bytes> pictures() {
  std::vector<KeptSource::Bytes> items;
  for (std::uint64_t i = 0; i < 8; ++i) {
    JpegRecipe recipe;
    recipe.width = 61 + static_cast<int>(i * 13);
    recipe.height = 90 - static_cast<int>(i * 5);
    recipe.luma_h = i % 2 == 0 ? 2 : 1;
    recipe.luma_v = i % 4 == 0 ? 2 : 1;
    recipe.progressive = i % 3 == 0;
    recipe.kind = i == 5 ? JpegRecipe::Kind::kGray : JpegRecipe::Kind::kYcc;
    recipe.seed = i;
    items.push_back(make_jpeg(recipe));
  }
  items.push_back(media::test::make_png({.width = 83, .height = 71}));
  items.push_back(media::test::make_png({.width = 64, .height = 99, .color_type = 6}));
  items.push_back(items[0]);
  items.push_back(items[3]);
  return items;
}

std::vector<KeptSource::Bytes> gray_pictures() {
  std::vector<KeptSource::Bytes> items;
  items.reserve(8);
  for (int i = 0; i < 8; ++i) {
    items.push_back(media::test::make_png({.width = 61 + i * 13,
                                           .height = 90 - i * 5,
                                           .color_type = i % 2 == 0 ? 0 : 4,
                                           .bit_depth = i % 3 == 0 ? 8 : 16,
                                           .seed = static_cast<std::uint64_t>(i)}));
  }
  return items;
}

class CachedRunTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Plan> plan(const std::string& stages, const std::string& rest) {
    const auto made = testing::compile(stages, rest);
    EXPECT_TRUE(made) << made.error().message();
    return *made;
  }
  std::shared_ptr<SampleCache> cache(const Plan& plan, source::Source& source) {
    auto opened = caches_.open(plan, source);
    EXPECT_TRUE(opened) << opened.error().message();
    return *opened;
  }
  // One that is used whether it pays or not.
  std::shared_ptr<SampleCache> made_cache(const Plan& plan) {
    const spec::CacheSpec& asked = *plan.spec.cache;
    std::unique_ptr<CacheLog> log;
    if (asked.where == spec::CacheSpec::Where::kDisk) {
      auto file = open_unnamed_file(dir_.path());
      EXPECT_TRUE(file) << file.error().message();
      log = std::make_unique<DiskLog>(std::move(file).value(), io_);
    } else {
      log = std::make_unique<MemoryLog>(
          MemoryLog::Options{.free_bytes = [] { return std::uint64_t{1} << 40; }});
    }
    return std::make_shared<SampleCache>(SampleCache::Options{.name = "test",
                                                              .form = asked.form,
                                                              .where = asked.where,
                                                              .limit_bytes = asked.size_bytes},
                                         std::move(log));
  }
  // What is on its way to the disk is there.
  static void wait_until_kept(const SampleCache& cache, std::uint64_t items) {
    while (cache.snapshot().items + cache.snapshot().dropped < items) std::this_thread::yield();
  }

  test::ScratchDir dir_;
  source::IoPool io_{{.threads = 2}};
  SampleCaches caches_{{.ram_bytes = 512 * kMiB,
                        .disk_bytes = 512 * kMiB,
                        .dir = dir_.path(),
                        .io = io_,
                        .free_memory = [] { return std::uint64_t{1} << 40; },
                        .free_disk = [](const std::string&) { return std::uint64_t{1} << 40; }}};
};

struct Chain {
  const char* name;
  const char* stages;
  bool gray = false;  // of gray images
};

constexpr Chain kChains[] = {
    {"crop_flip_normalise",
     "  - fetch\n  - decode_image\n  - random_resized_crop: {size: 24}\n"
     "  - random_horizontal_flip\n"
     "  - normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}\n"},
    {"resize_center",
     "  - fetch\n  - decode_image\n  - resize: {size: 30}\n"
     "  - center_crop: {size: [28, 20]}\n"},
    {"two_resizes",
     "  - fetch\n  - decode_image\n  - resize: {size: 50}\n"
     "  - random_resized_crop: {size: [13, 31], interpolation: bicubic}\n"},
    {"padded_crop",
     "  - fetch\n  - decode_image\n"
     "  - random_crop: {size: [100, 120], pad_if_needed: true, padding: 3}\n"},
    {"gray_nearest",
     "  - fetch\n  - decode_image: {mode: gray, exif: false}\n"
     "  - resize: {size: [17, 19], interpolation: nearest}\n"
     "  - to_dtype: {dtype: float16, scale: true}\n"},
    {"alpha",
     "  - fetch\n  - decode_image: {mode: rgba}\n  - resize: {size: [40, 30]}\n"
     "  - random_resized_crop: {size: [13, 31]}\n"},
    {"sixteen_bits",
     "  - fetch\n  - decode_image: {mode: gray16}\n  - resize: {size: [40, 30]}\n"
     "  - random_resized_crop: {size: [13, 31]}\n  - random_horizontal_flip\n",
     true},
    {"sixteen_bits_to_floats",
     "  - fetch\n  - decode_image: {mode: gray16}\n"
     "  - resize: {size: [17, 19], interpolation: nearest}\n"
     "  - to_dtype: {dtype: float32, scale: true}\n",
     true},
    {"corner",
     "  - fetch\n  - decode_image\n  - center_crop: {size: 200}\n"
     "  - random_crop: {size: 8}\n"},
};

#ifdef SPDLD_THREAD_SANITIZED
const std::vector<const char*> kLayouts{"NCHW"};  // threads do the same for any
#else
const std::vector<const char*> kLayouts{"NCHW", "NHWC"};
#endif

class EveryChain : public CachedRunTest,
                   public ::testing::WithParamInterface<std::tuple<Chain, const char*>> {};

TEST_P(EveryChain, MakesTheSameBytesWithACacheAsWithout) {
  const auto& [chain, cache_keys] = GetParam();
  for (const char* layout : kLayouts) {
    const std::string batch =
        std::string("shuffle: global\nbatch: {size: 4, layout: ") + layout + "}\n";
    const auto bare = plan(chain.stages, batch);
    const auto cached = plan(chain.stages, batch + "cache: {" + cache_keys + "}\n");
    const auto source = std::make_shared<KeptSource>(chain.gray ? gray_pictures() : pictures());
    const auto kept = made_cache(*cached);
    // Another job with another seed fills it on the way; a third comes to a warm one.
    for (const std::uint64_t seed : {5U, 77U, 901U}) {
      Maker without(bare, source, nullptr, seed);
      Maker with(cached, source, kept, seed);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        EXPECT_EQ(with.epoch(epoch), without.epoch(epoch)) << seed << ", epoch " << epoch;
        wait_until_kept(*kept, std::min<std::uint64_t>(kept->snapshot().misses, 1));
      }
      EXPECT_TRUE(with.port.failures.empty());
    }
    EXPECT_GT(kept->snapshot().hits, 0U);
    EXPECT_EQ(kept->snapshot().why, "");
  }
}

std::string name_of(const ::testing::TestParamInfo<EveryChain::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param).name) + "_";
  for (const char* c = std::get<1>(info.param); *c != '\0'; ++c) {
    if (std::isalnum(static_cast<unsigned char>(*c)) != 0) name += *c;
  }
  return name;
}

// 40 kB hold a few of the images, so that hits and misses mix.
INSTANTIATE_TEST_SUITE_P(
    Chains, EveryChain,
    ::testing::Combine(::testing::ValuesIn(kChains),
                       ::testing::Values("form: decoded, size: 64MiB", "form: decoded, size: 40kB",
                                         "form: encoded, size: 64MiB", "form: encoded, size: 12kB",
                                         "form: coefficients, size: 64MiB",
                                         "form: coefficients, size: 20kB",
                                         "form: decoded, size: 64MiB, where: disk",
                                         "form: coefficients, size: 64MiB, where: disk",
                                         "form: encoded, size: 64MiB, where: disk")),
    name_of);

TEST_F(CachedRunTest, MakesTheSameBytesForManyJobsThatFillOneCacheAtOnce) {
  const std::string batch = "shuffle: global\nbatch: {size: 4}\n";
  for (const char* keys :
       {"form: decoded, size: 64MiB", "form: encoded, size: 12kB",
        "form: coefficients, size: 64MiB", "form: decoded, size: 100kB, where: disk"}) {
    const auto cached = plan(kChains[0].stages, batch + "cache: {" + keys + "}\n");
    const auto bare = plan(kChains[0].stages, batch);
    const auto source = std::make_shared<KeptSource>(pictures());
    const auto kept = made_cache(*cached);
    std::vector<std::jthread> jobs;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      jobs.emplace_back([&, seed] {
        Maker with(cached, source, kept, seed);
        Maker without(bare, source, nullptr, seed);
        for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
          EXPECT_EQ(with.epoch(epoch), without.epoch(epoch)) << keys << ", seed " << seed;
      });
    }
    jobs.clear();
    const SampleCache::Snapshot seen = kept->snapshot();
    EXPECT_EQ(seen.hits + seen.misses, 4U * 4U * 12U);
    EXPECT_LE(seen.bytes, seen.limit_bytes);
    EXPECT_LE(seen.items, 12U);
  }
}

TEST_F(CachedRunTest, PacksTheSameEncodedBytes) {
  const std::string batch = "batch: {size: 4, max_bytes: 1MiB}\n";
  for (const char* where : {"ram", "disk"}) {
    const auto bare = plan("  - fetch\n", batch);
    const auto cached =
        plan("  - fetch\n", batch + "cache: {form: encoded, size: 1MiB, where: " + where + "}\n");
    const auto source = std::make_shared<KeptSource>(pictures());
    const auto kept = cache(*cached, *source);
    ASSERT_NE(kept, nullptr);
    Maker without(bare, source, nullptr);
    Maker with(cached, source, kept);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(with.epoch(epoch), without.epoch(epoch));
      wait_until_kept(*kept, 12);
    }
    EXPECT_EQ(kept->snapshot().hits, 12U);
  }
}

TEST_F(CachedRunTest, CountsOnlyWhatIsDecodedWholeAsFilling) {
  const std::string batch = "shuffle: global\nbatch: {size: 4}\n";
  for (const char* const form : {"decoded", "coefficients"}) {
    const auto cached =
        plan(kChains[0].stages, batch + "cache: {form: " + std::string(form) + ", size: 40kB}\n");
    const auto kept = made_cache(*cached);
    Maker with(cached, std::make_shared<KeptSource>(pictures()), kept);
    with.epoch(0);
    const SampleCache::Snapshot first = kept->snapshot();
    EXPECT_GT(first.fills, 0U) << form;
    for (std::uint64_t epoch = 1; epoch < 4; ++epoch) with.epoch(epoch);
    const SampleCache::Snapshot last = kept->snapshot();
    EXPECT_GT(last.misses, first.misses) << form;
    EXPECT_EQ(last.fills, first.fills) << form;
  }
}

std::uint64_t recoded_so_far() { return testing::indexes()->snapshot().images.recoded; }

// What a full cache has no room for must not be recoded in vain in each epoch.
TEST_F(CachedRunTest, RecodesNothingForACacheThatIsFull) {
  std::vector<KeptSource::Bytes> items;
  for (std::uint64_t i = 0; i < 12; ++i)
    items.push_back(make_jpeg({.width = 100, .height = 100 + static_cast<int>(i), .seed = i}));
  const auto source = std::make_shared<KeptSource>(items);
  for (const int size_kb : {1, 20, 40, 63}) {
    const auto cached = plan(
        kChains[0].stages,
        "batch: {size: 4}\ncache: {form: coefficients, size: " + std::to_string(size_kb) + "kB}\n");
    const auto kept = made_cache(*cached);
    Maker with(cached, source, kept);
    const std::uint64_t before = recoded_so_far();
    with.epoch(0);
    const std::uint64_t first = recoded_so_far();
    EXPECT_LE(first - before, 12U);
    with.epoch(1);
    with.epoch(2);
    EXPECT_EQ(recoded_so_far(), first) << size_kb;
    EXPECT_LT(kept->snapshot().items, 12U) << size_kb;
  }
}

// A crop of a large image takes less than the whole image, which the cache would keep.
TEST_F(CachedRunTest, KeepsNoImageForWhichARowWouldTakeMoreThanItMay) {
  const std::string stages = "  - fetch\n  - decode_image\n  - center_crop: {size: 20}\n";
  const std::vector<KeptSource::Bytes> items(
      4, make_jpeg({.width = 2600, .height = 2600, .quality = 30}));
  const auto cached = plan(stages, "batch: {size: 4}\ncache: {form: decoded, size: 100MiB}\n");
  const auto kept = made_cache(*cached);
  Maker with(cached, std::make_shared<KeptSource>(items), kept, 5, {1, 16 * kMiB});
  Maker without(plan(stages, "batch: {size: 4}\n"), std::make_shared<KeptSource>(items), nullptr);
  EXPECT_EQ(with.epoch(0), without.epoch(0));
  EXPECT_EQ(kept->snapshot().items, 0U);
}

class WarmRunTest : public CachedRunTest {
 protected:
  void start(const std::string& cache_keys, const std::string& size = "24") {
    const std::string stages =
        "  - fetch\n  - decode_image\n  - random_resized_crop: {size: " + size + "}\n";
    const std::string batch = "batch: {size: 4}\n";
    bare_ = plan(stages, batch);
    cached_ = plan(stages, batch + "cache: {" + cache_keys + "}\n");
    source_ = std::make_shared<KeptSource>(pictures());
    kept_ = cache(*cached_, *source_);
    ASSERT_NE(kept_, nullptr);
    with_ = std::make_unique<Maker>(cached_, source_, kept_);
    without_ = std::make_unique<Maker>(bare_, source_, nullptr);
  }
  void expect_same(std::uint64_t epoch) {
    EXPECT_EQ(with_->epoch(epoch), without_->epoch(epoch)) << "epoch " << epoch;
  }

  std::shared_ptr<const Plan> bare_;
  std::shared_ptr<const Plan> cached_;
  std::shared_ptr<KeptSource> source_;
  std::shared_ptr<SampleCache> kept_;
  std::unique_ptr<Maker> with_;
  std::unique_ptr<Maker> without_;
};

TEST_F(WarmRunTest, BringsNoBytesOfWhatIsKept) {
  start("size: 64MiB");
  with_->epoch(0);
  const std::uint64_t brought = source_->brought();
  with_->epoch(1);
  EXPECT_EQ(source_->brought(), brought);
  EXPECT_EQ(kept_->snapshot().hits, 12U);
  EXPECT_EQ(kept_->snapshot().misses, 12U);
}

TEST_F(WarmRunTest, AsksForRoomForWhatIsReadBackFromADisk) {
  for (const auto& [keys, on_disk] : {std::pair("form: decoded, size: 64MiB", false),
                                      std::pair("form: decoded, size: 64MiB, where: disk", true),
                                      std::pair("form: encoded, size: 64MiB, where: disk", true)}) {
    start(keys);
    with_->epoch(0);
    wait_until_kept(*kept_, 12);
    EXPECT_EQ(source_->kept_bytes(), 0U) << keys;
    with_->epoch(1);
    const std::uint64_t kept = kept_->snapshot().bytes - 12 * SampleCache::kEntryBytes;
    if (on_disk)
      EXPECT_GE(source_->kept_bytes(), kept) << keys;
    else
      EXPECT_EQ(source_->kept_bytes(), 0U) << keys;
  }
}

TEST_F(WarmRunTest, NeverServesAnItemAsItWas) {
  for (const char* keys :
       {"form: decoded, size: 64MiB", "form: encoded, size: 64MiB",
        "form: coefficients, size: 64MiB", "form: decoded, size: 64MiB, where: disk"}) {
    start(keys);
    with_->epoch(0);
    wait_until_kept(*kept_, 12);
    JpegRecipe other;
    other.width = 50;
    other.height = 70;
    other.seed = 99;
    source_->change(4, make_jpeg(other));
    expect_same(1);
    EXPECT_EQ(kept_->snapshot().changed, 1U);
    wait_until_kept(*kept_, 12);
    expect_same(2);
  }
}

TEST_F(WarmRunTest, FailsWithAnItemThatIsGone) {
  start("size: 64MiB");
  with_->epoch(0);
  source_->fail(4, Status(Code::kDataLoss, "became shorter"));
  expect_same(1);
  ASSERT_EQ(with_->port.failures.size(), 1U);
  EXPECT_EQ(with_->port.failures[0].item, 4U);
}

TEST_F(WarmRunTest, KeepsNothingThatMayChangeUnseen) {
  start("size: 64MiB");
  source_->give_no_stamps();
  expect_same(0);
  expect_same(1);
  EXPECT_EQ(kept_->snapshot().items, 0U);
  EXPECT_EQ(kept_->snapshot().hits, 0U);
}

TEST_F(WarmRunTest, MakesAnImageThatIsCorruptOnlyWhereTheCropDoesNotLook) {
  const std::string stages =
      "  - fetch\n  - decode_image\n  - random_resized_crop: {size: 8, scale: [0.01, 0.05]}\n";
  const auto bare = plan(stages, "batch: {size: 4}\n");
  std::vector<KeptSource::Bytes> items;
  for (std::uint64_t i = 0; i < 16; ++i) {
    JpegRecipe recipe;
    recipe.width = 200;
    recipe.height = 300;
    recipe.seed = i;
    KeptSource::Bytes bytes = make_jpeg(recipe);
    // The last rows' codes.
    for (std::size_t at = bytes.size() - 200; at < bytes.size() - 20; ++at)
      bytes[at] = std::byte{0x55};
    items.push_back(std::move(bytes));
  }
  const auto source = std::make_shared<KeptSource>(items);
  for (const char* form : {"decoded", "coefficients"}) {
    const auto cached =
        plan(stages, std::string("batch: {size: 4}\ncache: {size: 64MiB, form: ") + form + "}\n");
    const auto kept = made_cache(*cached);
    Maker with(cached, source, kept);
    Maker without(bare, source, nullptr);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(with.epoch(epoch), without.epoch(epoch)) << form << ", epoch " << epoch;
      ASSERT_EQ(with.port.failures.size(), without.port.failures.size());
    }
    // Otherwise the above has shown nothing: rows of corrupt images were made.
    EXPECT_LT(with.port.failures.size(), 3U * 16U);
    // Of such an image there are no pixels to keep, and no coefficients: its file is kept.
    if (cached->spec.cache->form == spec::CacheSpec::Form::kDecoded) {
      EXPECT_LT(kept->snapshot().items, 16U);
    } else {
      EXPECT_GT(kept->snapshot().items, 8U);
    }
  }
}

TEST_F(WarmRunTest, ReplacesACorruptImageAlike) {
  start("size: 64MiB");
  KeptSource::Bytes cut = pictures()[2];
  cut.resize(cut.size() / 2);
  source_->change(2, cut);
  expect_same(0);
  expect_same(1);
  EXPECT_EQ(with_->port.failures.size(), 2U);
  EXPECT_EQ(with_->turns_lost, 2) << "others may go on before a row's next item is tried";
}

TEST_F(WarmRunTest, GoesBackToTheItemWhereTheDiskHasLostIt) {
  start("size: 64MiB, where: disk");
  with_->epoch(0);
  wait_until_kept(*kept_, 12);
  const std::uint64_t brought = source_->brought();
  // Whoever has the daemon's file open may do this to it.
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code failed;
    const std::string target = std::filesystem::read_symlink(entry.path(), failed).string();
    if (target.find(dir_.path()) == std::string::npos) continue;
    const UniqueFd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(file);
    ASSERT_EQ(::pwrite(file.get(), "garbage", 7, 100), 7);
    ASSERT_EQ(::ftruncate(file.get(), 40'000), 0);
    found = true;
  }
  ASSERT_TRUE(found);
  expect_same(1);
  EXPECT_GT(kept_->snapshot().corrupt, 1U);
  EXPECT_GT(source_->brought(), brought);
  EXPECT_EQ(kept_->snapshot().why, "");
  expect_same(2);
}

}  // namespace
}  // namespace spdld::engine
