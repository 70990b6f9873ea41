// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_index.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "posix/unique_fd.h"
#include "source/tar/shard_scan.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/bytes/memory_file.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Missing = WebdatasetSpec::Missing;

constexpr const char* kShardPath = "/data/train-000.tar";

WebdatasetSpec image_and_caption() {
  return {.parts = {{.field = "image", .suffixes = {"jpg", "png"}},
                    {.field = "caption", .suffixes = {"txt"}}}};
}

Result<ShardIndex> scan(FileBytes& file, const WebdatasetSpec& spec,
                        const std::vector<std::string>& classes = {}) {
  const auto query = IndexQuery::make(spec, classes);
  if (!query) return tl::unexpected(query.error());
  ScanMeter meter;
  auto index = scan_shard(file, *query, {.meter = &meter, .max_samples = 1'000'000});
  if (index) {
    EXPECT_EQ(meter.samples, index->samples());
    EXPECT_EQ(meter.bytes, file.size());
    index->stamp.size_bytes = file.size();
  }
  return index;
}

Result<ShardIndex> scan(const std::string& archive, const WebdatasetSpec& spec,
                        const std::vector<std::string>& classes = {}) {
  MemoryFile file(archive);
  return scan(file, spec, classes);
}

std::string why_not(const Result<ShardIndex>& index) {
  return index ? "it was taken" : index.error().message();
}

ShardIndex scanned(const std::string& path, const std::string& archive, const WebdatasetSpec& spec,
                   const std::vector<std::string>& classes = {}) {
  auto index = scan(archive, spec, classes);
  if (!index) ADD_FAILURE() << index.error().message();
  if (!index) return {};
  index->path = path;
  return std::move(*index);
}

Result<TarIndex> make(const WebdatasetSpec& spec, std::vector<ShardIndex> shards,
                      const std::vector<std::string>& classes = {}) {
  return TarIndex::make(IndexQuery::make(spec, classes).value(), std::move(shards));
}

std::string three_samples() {
  TarWriter tar;
  tar.file("a.cls", "2").file("a.jpg", "jpeg a").file("a.txt", "caption a");
  tar.file("b.cls", "0\n").file("b.png", "png b").file("b.txt", "");
  tar.file("c.cls", "-7").file("c.jpg", "j").file("c.png", "p").file("c.txt", "caption c");
  return tar.archive();
}

std::string bytes_of(MemoryFile& file, const TarPart& part) {
  std::string bytes(part.size, '\0');
  EXPECT_EQ(file.read(part.offset, bytes).value(), part.size);
  return bytes;
}

TEST(ShardScan, FindsThePartsOfEachSample) {
  MemoryFile file(three_samples());
  const auto index = scan(file, image_and_caption());
  ASSERT_TRUE(index) << index.error().message();
  ASSERT_EQ(index->samples(), 3u);
  std::vector<std::string> found;
  for (std::uint64_t i = 0; i < 3; ++i) {
    std::vector<TarPart> parts(2);
    EXPECT_EQ(key_at(file, index->find(i, parts)).value(),
              std::string(1, static_cast<char>('a' + i)));
    for (const TarPart& part : parts) found.push_back(bytes_of(file, part));
  }
  // Of two suffixes the first named counts.
  EXPECT_THAT(found, ElementsAre("jpeg a", "caption a", "png b", "", "j", "caption c"));
  EXPECT_THAT(index->max_bytes(), ElementsAre(6, 9));
}

TEST(ShardScan, ReadsLabelsAsIntegers) {
  WebdatasetSpec spec = image_and_caption();
  spec.labels = {{.field = "label", .suffixes = {"cls"}}};
  const auto index = scan(three_samples(), spec);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->values.info(0).name, "label");
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < 3; ++i)
    labels.push_back(std::get<std::int64_t>(index->values.value(i, 0)));
  EXPECT_THAT(labels, ElementsAre(2, 0, -7));
}

TEST(ShardScan, ReadsLabelsAsClassesByNameOrNumber) {
  TarWriter tar;
  tar.file("a.cls", "dog\n").file("b.cls", "cat").file("c.cls", "1");
  const WebdatasetSpec spec{.labels = {{.field = "label", .suffixes = {"cls"}}}};
  const auto index = scan(tar.archive(), spec, {"cat", "dog"});
  ASSERT_TRUE(index) << index.error().message();
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < 3; ++i)
    labels.push_back(std::get<std::int64_t>(index->values.value(i, 0)));
  EXPECT_THAT(labels, ElementsAre(1, 0, 1));
}

TEST(ShardScan, RefusesLabelsThatAreNone) {
  const auto why = [](const std::string& text, const std::string& suffix,
                      const std::vector<std::string>& classes) {
    TarWriter tar;
    tar.file("a.jpg", "").file("a." + suffix, text);
    return why_not(
        scan(tar.archive(), {.labels = {{.field = "label", .suffixes = {suffix}}}}, classes));
  };
  EXPECT_THAT(
      why("dog", "cls", {}),
      AllOf(StartsWith(
                std::string(kShardPath) +
                ": at byte 0, sample 'a' has a wrong 'label': its cls is 'dog', which is no int64"),
            HasSubstr("source.webdataset.classes")));
  EXPECT_THAT(why("", "cls", {}), HasSubstr("is '', which is no int64"));
  EXPECT_THAT(why("1.5", "cls", {}), HasSubstr("is '1.5', which is no int64"));
  EXPECT_THAT(why("9223372036854775808", "cls", {}), HasSubstr("which is no int64"));
  EXPECT_THAT(why("mouse", "cls", {"cat", "dog"}),
              HasSubstr("is 'mouse', which is none of the 2 names"));
  EXPECT_THAT(why("2", "cls", {"cat", "dog"}), HasSubstr("is '2', which is none of the 2 names"));
  // A number is no class where a class is called by one.
  EXPECT_THAT(why("0", "cls", {"7", "8"}), HasSubstr("is '0', which is none of the 2 names"));
  EXPECT_THAT(why("dog", "id", {"cat", "dog"}), HasSubstr("is 'dog', which is no int64"));
  EXPECT_THAT(why(std::string(5000, '1'), "cls", {}),
              HasSubstr("member 'a.cls': it has 5000 bytes"));
}

TEST(ShardScan, ReadsJsonValuesAndTheirTypes) {
  TarWriter tar;
  tar.file("a.json", R"({"w": 1, "f": 2, "t": "x", "l": [1]})")
      .file("b.json", R"({"w": 3, "f": 0.5, "t": "y", "l": []})");
  const WebdatasetSpec spec{.index = {{.field = "width", .suffix = "json", .pointer = "/w"},
                                      {.field = "factor", .suffix = "json", .pointer = "/f"},
                                      {.field = "text", .suffix = "json", .pointer = "/t"},
                                      {.field = "list", .suffix = "json", .pointer = "/l"}}};
  const auto index = scan(tar.archive(), spec);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->values.info(0).type, ValueType::kInt64);
  EXPECT_EQ(index->values.info(1).type, ValueType::kFloat64);
  EXPECT_EQ(std::get<double>(index->values.value(0, 1)), 2.0);
  EXPECT_EQ(std::get<std::string_view>(index->values.value(1, 2)), "y");
  EXPECT_EQ(index->values.info(3).type, ValueType::kInt64List);
  EXPECT_THAT(index->value_keys, ElementsAre("a", "b", "a", "a"));
}

TEST(ShardScan, RefusesJsonThatIsBroken) {
  TarWriter tar;
  tar.file("a.json", R"({"w": 1})").file("b.jpg", "").file("b.json", R"({"w": )");
  const WebdatasetSpec spec{.index = {{.field = "width", .suffix = "json", .pointer = "/w"}}};
  EXPECT_THAT(
      why_not(scan(tar.archive(), spec)),
      StartsWith(std::string(kShardPath) + ": at byte 1024, sample 'b' cannot be indexed: its "
                                           "json cannot be read: this is no JSON"));
}

TEST(ShardScan, RefusesValuesOfTwoTypes) {
  TarWriter tar;
  tar.file("a.json", R"({"w": 1})").file("b.json", R"({"w": "1"})");
  const WebdatasetSpec spec{.index = {{.field = "width", .suffix = "json", .pointer = "/w"}}};
  EXPECT_THAT(why_not(scan(tar.archive(), spec)),
              HasSubstr("'width' is of type int64 in /data/train-000.tar, sample 'a', but of type "
                        "text in /data/train-000.tar, sample 'b'"));
}

TEST(ShardScan, RefusesSamplesThatLackAPart) {
  TarWriter tar;
  for (const char* key : {"a", "c"})
    tar.file(std::string(key) + ".jpg", "").file(std::string(key) + ".txt", "");
  const std::uint64_t at = tar.offset();
  tar.file("x.TXT", "").file("x.json", "{}").file("y.jpg", "").file("y.txt", "");
  const auto index = scan(tar.archive(), image_and_caption());
  EXPECT_EQ(index.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(
      why_not(index),
      AllOf(StartsWith(std::string(kShardPath) + ": at byte " + std::to_string(at) +
                       ", sample 'x' has no part for 'image', jpg or png; it has txt, json; "),
            HasSubstr("missing: skip"), Not(HasSubstr("two shards"))));
}

TEST(ShardScan, SaysThatASampleMayHaveBeenSplitOverTwoShards) {
  TarWriter first;
  first.file("a.jpg", "").file("a.txt", "").file("b.jpg", "");
  EXPECT_THAT(why_not(scan(first.archive(), image_and_caption())),
              HasSubstr("it is the last of its shard, and a sample that was split over two shards "
                        "is two samples"));
  TarWriter second;
  second.file("b.txt", "").file("c.jpg", "").file("c.txt", "");
  EXPECT_THAT(why_not(scan(second.archive(), image_and_caption())),
              HasSubstr("if it alone is, being the first of its shard, a sample that was split"));
}

TEST(ShardScan, SaysThatALinkMayBeWhatIsMissing) {
  TarWriter tar;
  tar.file("a.jpg", "")
      .file("a.txt", "")
      .member({.name = "b.jpg", .type = '1', .link = "a.jpg"}, "")
      .file("b.txt", "")
      .file("c.txt", "");
  EXPECT_THAT(why_not(scan(tar.archive(), image_and_caption())),
              HasSubstr("1 links were passed over so far: 'tar --dereference --hard-dereference'"));
}

TEST(ShardScan, LeavesOutSamplesThatLackSomethingWhenToldSo) {
  TarWriter tar;
  tar.file("a.jpg", "")
      .file("a.cls", "1")
      .file("b.cls", "x")
      .file("c.jpg", "")
      .file("d.jpg", "")
      .file("d.cls", "4");
  WebdatasetSpec spec{.parts = {{.field = "image", .suffixes = {"jpg"}}},
                      .labels = {{.field = "label", .suffixes = {"cls"}}},
                      .missing = Missing::kSkip};
  MemoryFile file(tar.archive());
  const auto index = scan(file, spec);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->samples(), 2u);
  EXPECT_EQ(index->skipped[static_cast<std::size_t>(Skipped::kSample)], 2u);
  std::vector<TarPart> parts(1);
  EXPECT_EQ(key_at(file, index->find(1, parts)).value(), "d");
  EXPECT_EQ(std::get<std::int64_t>(index->values.value(1, 0)), 4);
}

TEST(ShardScan, TellsHowToPackAnewWhereSamplesLieInPieces) {
  TarWriter by_kind;
  by_kind.file("a.jpg", "x").file("b.jpg", "y").file("a.txt", "x").file("b.txt", "y");
  EXPECT_THAT(why_not(scan(by_kind.archive(), image_and_caption())),
              AllOf(HasSubstr("at byte 0, sample 'a' has no part for 'caption', txt beside it, and "
                              "goes on at byte 2048, with other keys between"),
                    HasSubstr("pack the shard anew in the order of names: mkdir '"),
                    Not(HasSubstr("skip"))));
  // Whatever becomes of samples that lack parts.
  WebdatasetSpec spec = image_and_caption();
  spec.missing = Missing::kSkip;
  EXPECT_THAT(why_not(scan(by_kind.archive(), spec)), HasSubstr("comes again at byte"));
  spec.parts[0].optional = spec.parts[1].optional = true;
  EXPECT_THAT(why_not(scan(by_kind.archive(), spec)), HasSubstr("comes again at byte"));
}

TEST(ShardScan, TellsWhichSamplesLackAnOptionalPart) {
  TarWriter tar;
  tar.file("a.jpg", "x").file("b.json", "").file("c.txt", "y");
  WebdatasetSpec spec = image_and_caption();
  for (WebdatasetSpec::Part& part : spec.parts) part.optional = true;
  const auto index = scan(tar.archive(), spec);
  ASSERT_TRUE(index) << index.error().message();
  std::vector<std::vector<TarPart>> found(3, std::vector<TarPart>(2));
  for (std::uint64_t i = 0; i < 3; ++i) index->find(i, found[i]);
  EXPECT_TRUE(found[0][0].present);
  EXPECT_EQ(found[0][1], TarPart{});
  EXPECT_THAT(found[1], ElementsAre(TarPart{}, TarPart{}));
  EXPECT_TRUE(found[2][1].present);
  ASSERT_EQ(index->values.size(), 2u);
  EXPECT_EQ(index->values.info(0).name, "image_present");
  EXPECT_EQ(index->values.info(1).name, "caption_present");
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (std::size_t part = 0; part < 2; ++part)
      EXPECT_EQ(std::get<bool>(index->values.value(i, part)), found[i][part].present);
  }
}

TEST(ShardScan, NeedsLabelsAndValuesThatAreNotOptional) {
  TarWriter tar;
  tar.file("a.json", R"({"w": null})");
  WebdatasetSpec spec{.parts = {{.field = "image", .suffixes = {"jpg"}, .optional = true}},
                      .index = {{.field = "width", .suffix = "json", .pointer = "/w"}}};
  EXPECT_THAT(why_not(scan(tar.archive(), spec)),
              AllOf(HasSubstr("sample 'a' has nothing for 'width': its json has no value at '/w'"),
                    HasSubstr("'optional: [NAME]' keeps them")));
  spec.index = {};
  spec.labels = {{.field = "label", .suffixes = {"cls", "class"}}};
  EXPECT_THAT(why_not(scan(tar.archive(), spec)),
              HasSubstr("has no part for 'label', cls or class"));
  spec.labels[0].optional = true;
  EXPECT_TRUE(scan(tar.archive(), spec));
}

TEST(TarIndex, TakesTheTypeOfAValueFromShardsThatHaveOne) {
  const WebdatasetSpec spec{
      .parts = {{.field = "image", .suffixes = {"jpg"}}},
      .index = {{.field = "t", .suffix = "json", .pointer = "/t", .optional = true}}};
  const auto query = IndexQuery::make(spec, {});
  ASSERT_TRUE(query) << query.error().message();
  std::vector<ShardIndex> shards;
  for (const char* const json : {R"({})", R"({"t": "text"})", R"({"t": null})"}) {
    const TarWriter tar = TarWriter().file("a.jpg", "x").file("a.json", json);
    auto scanned = scan(tar.archive(), spec);
    ASSERT_TRUE(scanned) << scanned.error().message();
    shards.push_back(std::move(*scanned));
  }
  const auto index = TarIndex::make(*query, std::move(shards));
  ASSERT_TRUE(index) << index.error().message();
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::get<std::string_view>(index->values().value(i, 0)), i == 1 ? "text" : "");
    EXPECT_EQ(std::get<bool>(index->values().value(i, 1)), i == 1);
  }
}

TEST(ShardScan, ReadsWhatIsAskedAndHeadersAlone) {
  TarWriter tar;
  for (int i = 0; i < 200; ++i) {
    const std::string key = std::to_string(1000 + i);
    tar.file(key + ".cls", "1")
        .file(key + ".jpg", std::string(100'000, 'x'))
        .file(key + ".json", R"({"w": 2})");
  }
  MemoryFile file(tar.archive());
  WebdatasetSpec spec{.parts = {{.field = "image", .suffixes = {"jpg"}}},
                      .labels = {{.field = "label", .suffixes = {"cls"}}},
                      .index = {{.field = "w", .suffix = "json", .pointer = "/w"}}};
  ASSERT_TRUE(scan(file, spec));
  EXPECT_LT(file.reads, 220u);
  EXPECT_LT(file.bytes_read, 1'200'000u);
}

TEST(ShardScan, RefusesGlobalHeadersThatNameMembers) {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("path", "a.jpg"), 'g').file("x", "");
  EXPECT_THAT(why_not(scan(tar.archive(), {.parts = {{.field = "image", .suffixes = {"jpg"}}}})),
              HasSubstr("a global pax header gives all members one name"));
}

TEST(ShardScan, IsBoundedAndCanBeStopped) {
  TarWriter tar;
  for (int i = 0; i < 2000; ++i) tar.file(std::to_string(i) + ".jpg", "");
  MemoryFile file(tar.archive());
  const auto query =
      IndexQuery::make({.parts = {{.field = "image", .suffixes = {"jpg"}}}}, {}).value();
  ScanMeter meter;
  EXPECT_EQ(scan_shard(file, query, {.meter = &meter, .max_samples = 1000}).error().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(scan_shard(file, query,
                       {.meter = &meter, .max_samples = 1'000'000, .stopped = [] { return true; }})
                .error()
                .code(),
            Code::kCancelled);
}

TEST(IndexQuery, RefusesWhatNoIndexCanSay) {
  EXPECT_THAT(IndexQuery::make({.labels = {{.field = "x", .suffixes = {"cls"}}},
                                .index = {{.field = "x", .suffix = "json", .pointer = "/x"}}},
                               {})
                  .error()
                  .message(),
              HasSubstr("the field 'x' is named twice"));
  EXPECT_THAT(IndexQuery::make({.index = {{.field = "x", .suffix = "json", .pointer = "x"}}}, {})
                  .error()
                  .message(),
              HasSubstr("is no JSON pointer"));
  EXPECT_THAT(IndexQuery::make({.parts = {{.field = "x", .suffixes = {"jpg", "pkl"}}}}, {})
                  .error()
                  .message(),
              HasSubstr("'x': 'pkl' is refused"));
  EXPECT_THAT(IndexQuery::make({.classes = ClassesSpec{}}, {}).error().message(),
              HasSubstr("a tar has no directories of classes"));
  EXPECT_THAT(IndexQuery::make({.classes = ClassesSpec{.kind = ClassesSpec::Kind::kFile}}, {})
                  .error()
                  .message(),
              HasSubstr("names no class"));
  WebdatasetSpec many;
  for (int i = 0; i < 65; ++i)
    many.index.push_back({.field = std::to_string(i), .suffix = "json", .pointer = "/x"});
  EXPECT_THAT(IndexQuery::make(many, {}).error().message(),
              HasSubstr("more than 64 fields are taken from 'json'"));
}

TEST(IndexQuery, HasAKeyThatTellsItFromOthers) {
  const auto key = [](const WebdatasetSpec& spec, const std::vector<std::string>& classes = {}) {
    return IndexQuery::make(spec, classes).value().key();
  };
  const WebdatasetSpec spec = image_and_caption();
  WebdatasetSpec other = spec;
  other.shards = {"/elsewhere.tar"};
  other.parts[0].field = "picture";
  EXPECT_EQ(key(spec), key(other));
  other.parts[0].suffixes = {"png", "jpg"};
  EXPECT_NE(key(spec), key(other));
  other = spec;
  other.missing = Missing::kSkip;
  EXPECT_NE(key(spec), key(other));
  EXPECT_NE(key(spec), key(spec, {"cat"}));
  other = spec;
  other.index = {{.field = "w", .suffix = "json", .pointer = "/w"}};
  EXPECT_NE(key(spec), key(other));
}

TEST(TarIndex, PutsShardsOneAfterTheOther) {
  TarWriter more;
  more.file("d.jpg", "d").file("d.txt", "large caption");
  const WebdatasetSpec spec = image_and_caption();
  const auto index = make(spec, {scanned("/data/x/2.tar", three_samples(), spec),
                                 scanned("/data/x/empty.tar", std::string(1024, '\0'), spec),
                                 scanned("/data/y/1.tar", more.archive(), spec)});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->size(), 4u);
  EXPECT_EQ(index->parts(), 2u);
  EXPECT_THAT(index->max_bytes(), ElementsAre(6, 13));
  std::vector<std::size_t> shards;
  std::vector<TarPart> parts(2);
  for (std::uint64_t i = 0; i < 4; ++i) shards.push_back(index->find(i, parts).shard);
  EXPECT_THAT(shards, ElementsAre(0, 0, 0, 2));
  EXPECT_EQ(parts[1].size, 13u);
  EXPECT_EQ(index->shard_name(0), "x/2.tar");
  EXPECT_EQ(index->shard_name(2), "y/1.tar");
  EXPECT_EQ(tar_uri(index->shard_name(2), "d"), "y/1.tar/d");
}

TEST(TarIndex, NamesOneShardByItsBaseName) {
  const WebdatasetSpec spec = image_and_caption();
  EXPECT_EQ(make(spec, {scanned("/data/x/2.tar", three_samples(), spec)})->shard_name(0), "2.tar");
}

TEST(TarIndex, GivesValuesOfAllShardsOneType) {
  const WebdatasetSpec spec{.index = {{.field = "w", .suffix = "json", .pointer = "/w"},
                                      {.field = "l", .suffix = "json", .pointer = "/l"}}};
  const auto shard = [&](const std::string& path, const std::string& json) {
    TarWriter tar;
    tar.file("k.json", json);
    return scanned(path, tar.archive(), spec);
  };
  const auto index = make(
      spec, {shard("/1.tar", R"({"w": 1, "l": []})"), shard("/2.tar", R"({"w": 1.5, "l": [0.5]})"),
             shard("/3.tar", R"({"w": 2, "l": [7]})")});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->values().rows(), 3u);
  std::vector<double> widths;
  for (std::uint64_t i = 0; i < 3; ++i)
    widths.push_back(std::get<double>(index->values().value(i, 0)));
  EXPECT_THAT(widths, ElementsAre(1, 1.5, 2));
  EXPECT_THAT(std::get<std::span<const double>>(index->values().value(2, 1)), ElementsAre(7));
}

TEST(TarIndex, RefusesShardsWhoseValuesHaveNoTypeInCommon) {
  const WebdatasetSpec spec{.index = {{.field = "w", .suffix = "json", .pointer = "/w"}}};
  const auto shard = [&](const std::string& path, const std::string& json) {
    TarWriter tar;
    tar.file("first.json", R"({"w": 1})").file("second.json", json);
    return scanned(path, tar.archive(), spec);
  };
  TarWriter texts;
  texts.file("t.json", R"({"w": "x"})");
  const auto index = make(spec, {shard("/1.tar", R"({"w": 1})"), shard("/2.tar", R"({"w": 0.5})"),
                                 scanned("/3.tar", texts.archive(), spec)});
  ASSERT_FALSE(index);
  EXPECT_THAT(index.error().message(),
              HasSubstr("'w' is of type float64 in /2.tar, sample 'second', but of type text in "
                        "/3.tar, sample 't'"));
}

TEST(TarIndex, CountsWhatIsNoItem) {
  TarWriter tar;
  tar.directory("d/").file("d/a.jpg", "").file("d/a.txt", "").file("README", "");
  const WebdatasetSpec spec = image_and_caption();
  const auto index =
      make(spec, {scanned("/1.tar", tar.archive(), spec), scanned("/2.tar", tar.archive(), spec)});
  EXPECT_EQ(index->skipped()[static_cast<std::size_t>(Skipped::kDirectory)], 2u);
  EXPECT_EQ(index->skipped()[static_cast<std::size_t>(Skipped::kNoSuffix)], 2u);
}

TEST(TarIndex, RefusesShardsWithoutSamples) {
  TarWriter tar;
  tar.directory("d/").file("x.gif", "");
  WebdatasetSpec spec = image_and_caption();
  spec.missing = Missing::kSkip;
  const auto index = make(spec, {scanned("/1.tar", tar.archive(), spec)});
  ASSERT_FALSE(index);
  EXPECT_THAT(index.error().message(),
              HasSubstr("the 1 shards, /1.tar first, hold no sample; left out were 1 directories, "
                        "1 samples that lack something; set 'source.webdataset.missing: error'"));
}

// Saved in users' cursors: never change it.
TEST(TarIndex, HasThePinnedDigest) {
  const WebdatasetSpec spec = image_and_caption();
  const auto index = make(spec, {scanned("/data/0.tar", three_samples(), spec),
                                 scanned("/data/1.tar", three_samples(), spec)});
  EXPECT_EQ(index->digest(), "4d27263c415079fac92c30f17aad2a77");
}

TEST(TarIndex, HasADigestOfKeysAndShardNamesAlone) {
  const WebdatasetSpec spec = image_and_caption();
  const std::string digest = make(spec, {scanned("/data/0.tar", three_samples(), spec)})->digest();
  EXPECT_EQ(make(spec, {scanned("/other/place/0.tar", three_samples(), spec)})->digest(), digest);
  EXPECT_EQ(make(spec, {scanned("/other/e.tar", std::string(1024, '\0'), spec),
                        scanned("/other/place/0.tar", three_samples(), spec)})
                ->digest(),
            digest);
  EXPECT_NE(make(spec, {scanned("/data/1.tar", three_samples(), spec)})->digest(), digest);
  WebdatasetSpec labelled = spec;
  labelled.labels = {{.field = "label", .suffixes = {"cls"}}};
  EXPECT_EQ(make(labelled, {scanned("/data/0.tar", three_samples(), labelled)})->digest(), digest);
  WebdatasetSpec skipping{.parts = {{.field = "image", .suffixes = {"png"}}},
                          .missing = Missing::kSkip};
  EXPECT_NE(make(skipping, {scanned("/data/0.tar", three_samples(), skipping)})->digest(), digest);
}

TEST(TarIndex, HasADigestThatTellsWhereKeysEndAndShardsBegin) {
  const WebdatasetSpec spec{.parts = {{.field = "image", .suffixes = {"jpg"}}}};
  const auto keys = [&](const std::string& path, const std::vector<std::string>& names) {
    TarWriter tar;
    for (const std::string& name : names) tar.file(name + ".jpg", "");
    return scanned(path, tar.archive(), spec);
  };
  EXPECT_NE(make(spec, {keys("/0.tar", {"ab", "c"})})->digest(),
            make(spec, {keys("/0.tar", {"a", "bc"})})->digest());
  EXPECT_NE(make(spec, {keys("/0.tar", {"a", "b"}), keys("/1.tar", {"c"})})->digest(),
            make(spec, {keys("/0.tar", {"a"}), keys("/1.tar", {"b", "c"})})->digest());
}

TEST(TarIndex, HasAnotherDigestOfItsDataWhereSamplesLieElsewhere) {
  const auto with = [](const std::string& first, const std::string& second) {
    TarWriter tar;
    tar.file("a.jpg", "").file("a.txt", first).file("b.jpg", "").file("b.txt", second);
    std::vector<ShardIndex> shards;
    shards.push_back(scanned("/data/a.tar", tar.archive(), image_and_caption()));
    auto index = make(image_and_caption(), std::move(shards));
    EXPECT_TRUE(index) << index.error().message();
    return std::move(index).value();
  };
  const std::string longer(600, 'x');
  const TarIndex before = with(longer, "y");
  const TarIndex after = with("y", longer);  // of one size, in archives of one size
  EXPECT_EQ(before.digest(), after.digest());
  EXPECT_NE(before.data_digest(), after.data_digest());
}

TEST(TarIndex, SplitsByBaseNameAndKeyWhateverStandsBeside) {
  const auto of = [](const std::vector<std::string>& paths) {
    std::vector<ShardIndex> shards;
    for (const std::string& path : paths)
      shards.push_back(scanned(path, three_samples(), image_and_caption()));
    auto index = make(image_and_caption(), std::move(shards));
    EXPECT_TRUE(index) << index.error().message();
    return std::move(index).value();
  };
  const TarIndex alone = of({"/data/p/a.tar"});
  const TarIndex beside = of({"/data/p/a.tar", "/other/b.tar"});
  for (std::uint64_t item = 0; item < alone.size(); ++item)
    EXPECT_EQ(alone.split_hash(item), beside.split_hash(item));
  EXPECT_NE(beside.split_hash(0), beside.split_hash(1));
}

TEST(ShardScan, RefusesValuesThatTakeMoreMemoryThanAllMay) {
  TarWriter tar;
  for (const std::string key : {"a", "b"})
    tar.file(key + ".json", R"({"text": ")" + std::string(300, 'x') + R"("})")
        .file(key + ".jpg", "");
  MemoryFile file(tar.archive());
  ScanMeter meter;
  const WebdatasetSpec spec{.parts = {{.field = "image", .suffixes = {"jpg"}}},
                            .index = {{.field = "caption", .suffix = "json", .pointer = "/text"}}};
  const auto query = IndexQuery::make(spec, {});
  ASSERT_TRUE(query) << query.error().message();
  const auto index =
      scan_shard(file, *query, {.meter = &meter, .max_samples = 10, .max_value_bytes = 500});
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(index.error().message(), HasSubstr("sample 'b' takes the values of"));
}

}  // namespace
}  // namespace spdld::source
