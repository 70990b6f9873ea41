// SPDX-License-Identifier: Apache-2.0
#include "source/order/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "source/selected_source.h"

namespace spdld::source {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Items without bytes that have a duration and a number of samples.
class ListedSource final : public Source {
 public:
  explicit ListedSource(std::vector<double> seconds) : seconds_(std::move(seconds)) {}

  std::uint64_t size() const override { return seconds_.size(); }
  const std::string& listing_digest() const override { return digest_; }
  const std::vector<SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string uri(std::uint64_t item) const override { return "clip-" + std::to_string(item); }
  Value value(std::uint64_t item, std::size_t value) const override {
    if (value == 0) return seconds_[item];
    return static_cast<std::int64_t>(seconds_[item] * 16000);
  }
  Result<FetchState> fetch(std::uint64_t, std::span<const PartRequest>, FetchedItem&, FetchSink&,
                           std::uint64_t) override {
    return error(Code::kUnimplemented, "it has no bytes");
  }

  void keep_only(std::size_t fields) { fields_.resize(fields); }
  void rename(std::size_t field, const std::string& name) { fields_[field].name = name; }

 private:
  const std::vector<double> seconds_;
  const std::string digest_ = "0123456789abcdef";
  const std::vector<std::string> classes_ = {};
  std::vector<SourceField> fields_{
      {.name = "audio"},
      {.name = "caption", .kind = SourceField::Kind::kValue, .index = 2, .type = ValueType::kText},
      {.name = "duration", .kind = SourceField::Kind::kValue, .type = ValueType::kFloat64},
      {.name = "samples", .kind = SourceField::Kind::kValue, .index = 1}};
};

ListingMemory::SharePtr unbounded() {
  return std::make_shared<ListingMemory>(std::uint64_t{1} << 40, TrustedUsers())->share(0);
}

std::string error_of(const ListedSource& source, const std::string& field) {
  const auto lengths = Lengths::read(source, field, unbounded());
  if (lengths) return "";
  EXPECT_EQ(lengths.error().code(), Code::kInvalidArgument);
  return lengths.error().message();
}

// As windows of one sparse file may be: none of them is looked at.
class ManyItems final : public Source {
 public:
  std::uint64_t size() const override { return std::uint64_t{1} << 31; }
  const std::string& listing_digest() const override { return digest_; }
  const std::vector<SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string uri(std::uint64_t) const override { return "window"; }
  Value value(std::uint64_t, std::size_t) const override {
    ADD_FAILURE() << "it is asked for its values";
    return 0.0;
  }
  Result<FetchState> fetch(std::uint64_t, std::span<const PartRequest>, FetchedItem&, FetchSink&,
                           std::uint64_t) override {
    return error(Code::kUnimplemented, "it has no bytes");
  }

 private:
  const std::string digest_ = "0123456789abcdef";
  const std::vector<std::string> classes_ = {};
  const std::vector<SourceField> fields_{
      {.name = "audio"},
      {.name = "start", .kind = SourceField::Kind::kValue, .type = ValueType::kFloat64}};
};

TEST(Lengths, AreRefusedBeforeTheyAreReadWhereTheirUserHasNoRoom) {
  constexpr uid_t kUser = 100002;
  const auto memory = std::make_shared<ListingMemory>(std::uint64_t{1} << 30, TrustedUsers());
  const auto lengths = Lengths::read(ManyItems(), "start", memory->share(kUser));
  ASSERT_FALSE(lengths);
  EXPECT_EQ(lengths.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(
      lengths.error().message(),
      HasSubstr("the lengths of 2147483648 items: its items would take 8192.0 MiB of memory "
                "or more, the other datasets of user 100002 take 0.0 MiB, and "
                "limits.listing_memory allows 1024.0 MiB: "));
  const auto selected =
      select_from(std::make_unique<ManyItems>(), {.where = "start > 3"}, {}, memory->share(kUser));
  ASSERT_FALSE(selected);
  EXPECT_EQ(selected.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(selected.error().message(), HasSubstr("source.select: its items would take"));
}

TEST(Lengths, CountForAsLongAsAnyoneHasThem) {
  constexpr uid_t kUser = 100002;
  const auto memory = std::make_shared<ListingMemory>(std::uint64_t{1} << 30, TrustedUsers());
  auto lengths = Lengths::read(ListedSource({1.5, 0, 35}), "duration", memory->share(kUser));
  ASSERT_TRUE(lengths);
  EXPECT_EQ(memory->used()[kUser], 3 * sizeof(float));
  lengths->reset();
  EXPECT_TRUE(memory->used().empty());
}

TEST(Lengths, AreTheValuesOfAField) {
  const ListedSource source({1.5, 0, 35});
  const auto seconds = Lengths::read(source, "duration", unbounded());
  ASSERT_TRUE(seconds) << seconds.error().message();
  EXPECT_EQ((*seconds)->size(), 3u);
  EXPECT_EQ((**seconds)[0], 1.5F);
  EXPECT_EQ((**seconds)[1], 0.0F);
  EXPECT_EQ((**seconds)[2], 35.0F);
  const auto samples = Lengths::read(source, "samples", unbounded());
  ASSERT_TRUE(samples) << samples.error().message();
  EXPECT_EQ((**samples)[2], 560000.0F);
}

TEST(Lengths, ADigestTellsThemApart) {
  const std::string digest = Lengths({1, 2, 3}).digest();
  EXPECT_EQ(digest, Lengths({1, 2, 3}).digest());
  EXPECT_NE(digest, Lengths({1, 3, 2}).digest());
  EXPECT_NE(digest, Lengths({1, 2}).digest());
}

TEST(Lengths, NegativeZeroIsZero) {
  const auto lengths = Lengths::read(ListedSource({-0.0}), "duration", unbounded());
  ASSERT_TRUE(lengths) << lengths.error().message();
  EXPECT_FALSE(std::signbit((**lengths)[0]));
}

TEST(Lengths, NameTheItemThatHasNone) {
  for (const auto& [value, shown] : std::vector<std::pair<double, std::string>>{
           {kNan, "nan"}, {kInfinity, "inf"}, {-1, "-1"}, {1e300, "1e+300"}}) {
    EXPECT_EQ(error_of(ListedSource({1, value}), "duration"),
              "item 1, clip-1, has the length " + shown +
                  ", and an order by length needs one of every item, finite and not negative: mend "
                  "it, or leave such items out, 'select: {where: \"duration >= 0 and duration < "
                  "1e30\"}' beside the source");
  }
  EXPECT_THAT(error_of(ListedSource({-2}), "samples"), HasSubstr("has the length -32000,"));
}

TEST(Lengths, NameTheNumbersThatThereAre) {
  const ListedSource source({1});
  EXPECT_EQ(error_of(source, "duratoin"),
            "'duratoin' is no field of the source; did you mean 'duration'?");
  EXPECT_EQ(error_of(source, "xyz"),
            "'xyz' is no field of the source; there are: duration, samples");
  EXPECT_EQ(error_of(source, "audio"),
            "'audio' is brought by fetch, and a length must be known beforehand; numbers are: "
            "duration, samples");
  EXPECT_EQ(error_of(source, "caption"),
            "'caption' is text, and a length is a number; numbers are: duration, samples");
}

TEST(Lengths, SayWhereTheDurationOfSoundComesFrom) {
  ListedSource source({1});
  source.rename(2, "words");
  EXPECT_EQ(error_of(source, "duration"),
            "'duration' is no field of the source; there are: words, samples; 'windows: {sampling: "
            "whole}' beside the source gives that of files of sound");
}

TEST(Lengths, SayWhereNumbersComeFromIfThereAreNone) {
  ListedSource source({1});
  source.keep_only(1);
  EXPECT_EQ(error_of(source, "duration"),
            "'duration' is no field of the source; the source knows no number of its items: have "
            "it read one, such as 'values' of a table or 'index' of a webdataset, or write "
            "'windows: {sampling: whole}' beside it, which gives the 'duration' of files of sound");
}

}  // namespace
}  // namespace spdld::source
