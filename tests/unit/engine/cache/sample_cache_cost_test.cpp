// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pipelines.h"
#include "tests/unit/engine/kept_source.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::engine {
namespace {

using spdld::testing::KeptSource;
using ::testing::HasSubstr;
using Form = spec::CacheSpec::Form;
using Where = spec::CacheSpec::Where;

spec::CacheSpec cache_of(Form form, Where where, std::uint64_t size_bytes) {
  spec::CacheSpec cache;
  cache.form = form;
  cache.where = where;
  cache.size_bytes = size_bytes;
  return cache;
}

// A photograph as ImageNet has them, of which a crop takes most.
ItemProbe photograph() {
  ItemProbe item;
  item.encoded_bytes = 110'000;
  item.stamp = source::ItemStamp{.device = 7};
  item.size = {500, 375};
  item.region = {60, 40, 350, 300};
  return item;
}

CacheEstimate estimate(const spec::CacheSpec& cache, std::uint64_t items,
                       const ItemProbe& item = photograph(), std::uint64_t device = 7) {
  return estimate_cache(cache, 3, items, {item, item}, device);
}

TEST(CacheEstimate, UsesACacheThatHoldsTheDataset) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{1} << 40);
  const CacheEstimate seen = estimate(cache, 1000);
  EXPECT_TRUE(seen.used);
  EXPECT_EQ(seen.held, 1000U);
  EXPECT_GT(seen.saved_ns(), 0.5 * seen.without_ns);
  EXPECT_LT(seen.payback_epochs(), 3);
}

TEST(CacheEstimate, SaysHowMuchOfTheDatasetFits) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{8} << 30);
  const CacheEstimate seen = estimate(cache, 1'281'167);
  EXPECT_TRUE(seen.used);
  const std::string text = cache_text(cache, seen);
  EXPECT_THAT(text, HasSubstr("decoded, ram, 8.0 GiB: about 549.5 KiB an item, holds 15,267 of "
                              "1,281,167 items (1.2 %)\n         a hit takes 47.2 us in place "
                              "of "));
}

TEST(CacheEstimate, LeavesACacheAloneThatHoldsTooLittle) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{64} << 20);
  const CacheEstimate seen = estimate(cache, 1'281'167);
  EXPECT_FALSE(seen.used);
  EXPECT_LE(seen.saved_ns(), 0);
  EXPECT_THAT(cache_text(cache, seen), HasSubstr("NOT USED: it holds so little"));
}

TEST(CacheEstimate, LeavesACacheAloneThatHoldsNoItem) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, 100'000);
  const CacheEstimate seen = estimate(cache, 10);
  EXPECT_FALSE(seen.used);
  EXPECT_THAT(seen.why_not, HasSubstr("raise cache.size"));
}

TEST(CacheEstimate, LeavesPixelsOnDiskAloneWhereACropNeedsFewOfThem) {
  ItemProbe item = photograph();
  item.size = {6000, 4000};
  item.encoded_bytes = 400'000;
  item.region = {0, 0, 64, 64};
  const auto disk = cache_of(Form::kDecoded, Where::kDisk, std::uint64_t{1} << 40);
  const CacheEstimate on_disk = estimate(disk, 1000, item);
  EXPECT_FALSE(on_disk.used);
  EXPECT_THAT(on_disk.why_not, HasSubstr("costs more than making it again"));
  const auto ram = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{1} << 40);
  EXPECT_GT(estimate(ram, 1000, item).without_ns, estimate(ram, 1000, item).hit_ns);
}

TEST(CacheEstimate, CopiesNoFilesFromADiskToTheSameDisk) {
  const auto cache = cache_of(Form::kEncoded, Where::kDisk, std::uint64_t{1} << 40);
  const CacheEstimate same = estimate(cache, 1000);
  EXPECT_FALSE(same.used);
  EXPECT_THAT(same.why_not, HasSubstr("on the same device"));
  EXPECT_TRUE(estimate(cache, 1000, photograph(), 8).used);
}

TEST(CacheEstimate, KeepsFilesThatHaveToBeWaitedForThoughTheyAreFew) {
  const auto cache = cache_of(Form::kEncoded, Where::kRam, std::uint64_t{64} << 20);
  EXPECT_FALSE(estimate(cache, 1'000'000).used);
  ItemProbe slow = photograph();
  slow.waited = true;
  EXPECT_TRUE(estimate(cache, 1'000'000, slow).used);
}

TEST(CacheEstimate, KnowsWhenFillingNeverComesBack) {
  ItemProbe item = photograph();
  item.size = {6000, 4000};  // 72 MB of pixels for a thumbnail at the top
  item.encoded_bytes = 400'000;
  item.region = {0, 0, 64, 64};
  const auto cache = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{1} << 40);
  const CacheEstimate seen = estimate(cache, 1000, item);
  EXPECT_FALSE(seen.used);
  EXPECT_THAT(seen.why_not, HasSubstr("come back only after"));
}

// A photograph that has coefficients, as ImageNet's have them.
ItemProbe recodable() {
  ItemProbe item = photograph();
  item.can_be_recoded = item.is_indexed = true;
  item.recoded_bytes = 190'000;
  return item;
}

TEST(CacheEstimate, CoefficientsTakeAThirdOfThePixelsAndSaveLessOfEach) {
  const std::uint64_t all = std::uint64_t{1} << 40;
  const CacheEstimate pixels =
      estimate(cache_of(Form::kDecoded, Where::kRam, all), 1000, recodable());
  const CacheEstimate coefficients =
      estimate(cache_of(Form::kCoefficients, Where::kRam, all), 1000, recodable());
  EXPECT_TRUE(coefficients.used);
  EXPECT_NEAR(coefficients.item_bytes / pixels.item_bytes, 0.34, 0.01);
  EXPECT_EQ(coefficients.without_ns, pixels.without_ns);
  EXPECT_GT(coefficients.hit_ns, pixels.hit_ns);
  EXPECT_LT(coefficients.hit_ns, 0.6 * coefficients.without_ns);
}

TEST(CacheEstimate, SaysWhichOtherFormWouldSaveMoreAtItsSize) {
  const std::uint64_t few = std::uint64_t{64} << 20;
  const auto decoded = cache_of(Form::kDecoded, Where::kRam, few);
  const CacheEstimate holds_a_third = estimate(decoded, 340, recodable());
  EXPECT_EQ(holds_a_third.better_form, Form::kCoefficients);
  EXPECT_GT(holds_a_third.better_saved_ns, holds_a_third.saved_ns());
  EXPECT_THAT(cache_text(decoded, holds_a_third),
              HasSubstr("\n         'form: coefficients' would save "));
  const CacheEstimate holds_all = estimate(decoded, 100, recodable());
  EXPECT_EQ(holds_all.better_form, std::nullopt);
  const auto coefficients = cache_of(Form::kCoefficients, Where::kRam, few);
  EXPECT_EQ(estimate(coefficients, 100, recodable()).better_form, Form::kDecoded);
  EXPECT_EQ(estimate(coefficients, 340, recodable()).better_form, std::nullopt);
}

TEST(CacheEstimate, SaysWhichFormOfAnImageWouldSaveMoreThanItsFile) {
  const std::uint64_t few = std::uint64_t{64} << 20;
  const auto encoded = cache_of(Form::kEncoded, Where::kRam, few);
  EXPECT_EQ(estimate(encoded, 100, recodable()).better_form, Form::kDecoded);
  EXPECT_EQ(estimate(encoded, 340, recodable()).better_form, Form::kCoefficients);
  ItemProbe text;
  text.encoded_bytes = 110'000;
  EXPECT_EQ(estimate(encoded, 100, text).better_form, std::nullopt);
}

TEST(CacheEstimate, SavesMoreOfFilesThatHaveNoSeekIndex) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, std::uint64_t{1} << 40);
  ItemProbe unindexed = recodable();
  unindexed.is_indexed = false;
  EXPECT_GT(estimate(cache, 1000, unindexed).without_ns,
            1.3 * estimate(cache, 1000, recodable()).without_ns);
}

TEST(CacheEstimate, KnowsThatARowWhichFillsTakesMoreThanOneWithout) {
  const std::uint64_t all = std::uint64_t{1} << 40;
  const auto share = [&](Form form, const ItemProbe& item) {
    return estimate(cache_of(form, Where::kRam, all), 1000, item).saved_share();
  };
  EXPECT_LT(share(Form::kDecoded, recodable()), 0.5);
  EXPECT_LT(share(Form::kCoefficients, recodable()), share(Form::kDecoded, recodable()));
  EXPECT_GT(share(Form::kDecoded, photograph()), share(Form::kDecoded, recodable()));
  EXPECT_EQ(CacheEstimate().saved_share(), 1);  // nothing is known
}

TEST(CacheEstimate, LeavesCoefficientsAloneWhereImagesHaveNone) {
  ItemProbe png = photograph();
  png.jpeg = false;
  const CacheEstimate seen =
      estimate(cache_of(Form::kCoefficients, Where::kDisk, std::uint64_t{1} << 40), 1000, png);
  EXPECT_FALSE(seen.used);
  EXPECT_THAT(seen.why_not, HasSubstr("costs more than making it again"));
  EXPECT_EQ(seen.better_form, Form::kDecoded);
}

TEST(CacheEstimate, UsesACacheOfWhichNothingIsKnown) {
  const auto cache = cache_of(Form::kDecoded, Where::kRam, 1 << 20);
  const CacheEstimate seen = estimate_cache(cache, 3, 100, {}, std::nullopt);
  EXPECT_TRUE(seen.used);
  EXPECT_THAT(cache_text(cache, seen), HasSubstr("no item could be looked at"));
}

TEST(ItemProbes, TellSizesAndWhatACropNeeds) {
  std::vector<KeptSource::Bytes> items;
  for (int i = 0; i < 160; ++i)
    items.push_back(media::test::make_jpeg({.width = 100 + i, .height = 80}));
  KeptSource source(items);
  const auto plan =
      testing::compile("  - fetch\n  - decode_image\n  - center_crop: {size: [40, 60]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const std::vector<ItemProbe> probes = probe_items(**plan, source, true);
  ASSERT_EQ(probes.size(), 64U);
  EXPECT_EQ(probes[0].size, (Size{100, 80}));
  EXPECT_EQ(probes[63].size, (Size{257, 80}));
  EXPECT_EQ(probes[0].region, (Rect{20, 20, 60, 40}));
  EXPECT_EQ(probes[0].encoded_bytes, items[0].size());
  EXPECT_TRUE(probes[0].jpeg);
  for (const ItemProbe& probe : probes) {
    EXPECT_TRUE(probe.can_be_recoded);
    EXPECT_GT(probe.recoded_bytes, probe.encoded_bytes);
    EXPECT_LT(probe.recoded_bytes, 5 * probe.encoded_bytes);
  }
}

TEST(ItemProbes, TellWhichImagesHaveNoCoefficients) {
  KeptSource source(std::vector<KeptSource::Bytes>{
      media::test::make_jpeg({.width = 100, .height = 80, .progressive = true}),
      media::test::make_jpeg({.width = 100, .height = 80})});
  const auto plan =
      testing::compile("  - fetch\n  - decode_image\n  - center_crop: {size: [40, 60]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const std::vector<ItemProbe> probes = probe_items(**plan, source, true);
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_FALSE(probes[0].can_be_recoded);
  EXPECT_EQ(probes[0].recoded_bytes, 0U);
  EXPECT_TRUE(probes[1].can_be_recoded);
}

TEST(ItemProbes, LeaveOutWhatCannotBeReadOrDecoded) {
  std::vector<KeptSource::Bytes> items(4, media::test::make_jpeg({.width = 100, .height = 80}));
  items[1] = KeptSource::Bytes(100, std::byte{'x'});
  KeptSource source(items);
  source.fail(2, Status(Code::kNotFound, "gone"));
  const auto plan = testing::compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(probe_items(**plan, source, true).size(), 2U);
}

}  // namespace
}  // namespace spdld::engine
