// SPDX-License-Identifier: Apache-2.0
#include "spec/parse.h"

#include <gtest/gtest.h>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

TEST(Parse, FillsInDefaults) {
  const Result<PipelineSpec> spec = parse(kMinimal);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->name, "p");
  EXPECT_EQ(spec->seed, 0u);
  const auto& files = std::get<FilesSpec>(spec->source.items);
  FilesSpec expected;
  expected.root = "/data";
  EXPECT_EQ(files, expected);
  EXPECT_EQ(spec->shuffle.kind, Shuffle::Kind::kNone);
  ASSERT_EQ(spec->stages.size(), 1u);
  EXPECT_EQ(spec->stages[0].op, "fetch");
  EXPECT_EQ(spec->stages[0].concurrency, std::nullopt);
  EXPECT_EQ(spec->stages[0].where.text(), "p.yaml:3:10");
  EXPECT_EQ(spec->batch.size, 8);
  EXPECT_EQ(spec->batch.last, Tail::kDrop);
  EXPECT_EQ(spec->batch.layout, Layout::kNCHW);
  EXPECT_EQ(spec->batch.max_bytes, 0u);
  EXPECT_EQ(spec->delivery.device, DeliverySpec::Device::kCpu);
  EXPECT_EQ(spec->delivery.prefetch, 4);
  EXPECT_EQ(spec->delivery.absent_replica, AbsentReplica::kWait);
  EXPECT_EQ(spec->on_error.decode, ErrorPolicy::OnDecode::kReplace);
  EXPECT_EQ(spec->on_error.io.retries, 5);
  EXPECT_EQ(spec->on_error.budget_fraction, 0.01);
  EXPECT_EQ(spec->on_error.budget_min, 100);
}

TEST(Parse, TakesItemsThatStandSeveralTimes) {
  const auto with = [](const std::string& repeat) { return parse(kMinimal + (repeat + "\n")); };
  const Result<PipelineSpec> together = with("repeat: {rows: 4}");
  ASSERT_TRUE(together) << together.error().message();
  EXPECT_EQ(together->shuffle.repeat, (Repeat{.rows = 4, .adjacent = true}));
  EXPECT_EQ(together->repeat_where.text(), "p.yaml:5:9");
  EXPECT_NE(together->canonical_text.find(R"("repeat":{"adjacent":true,"rows":4})"),
            std::string::npos);
  // Of batches of 8.
  const Result<PipelineSpec> apart = with("repeat: {rows: 3, adjacent: false}");
  ASSERT_TRUE(apart) << apart.error().message();
  EXPECT_EQ(apart->shuffle.repeat, (Repeat{.rows = 3, .adjacent = false}));
  EXPECT_NE(apart->canonical_text, together->canonical_text);
}

TEST(Parse, TakesOneRowOfAnItemAsNoRepeat) {
  for (const char* const adjacent : {"true", "false"}) {
    const Result<PipelineSpec> once =
        parse(kMinimal + ("repeat: {rows: 1, adjacent: " + std::string(adjacent) + "}\n"));
    ASSERT_TRUE(once) << once.error().message();
    EXPECT_EQ(once->canonical_text, parse(kMinimal)->canonical_text);
    EXPECT_EQ(once->shuffle.repeat.group(), 0u);
  }
}

TEST(Parse, TakesAnOrderByLength) {
  const Result<PipelineSpec> spec =
      parse(kMinimal + std::string("shuffle: {global: {bucket: {by: duration}}}\n"));
  ASSERT_TRUE(spec) << spec.error().message();
  Shuffle expected{.kind = Shuffle::Kind::kGlobal,
                   .bucket = Shuffle::Bucket{.by = "duration", .window = 8192, .run = 32}};
  EXPECT_EQ(spec->shuffle, expected);
  EXPECT_EQ(spec->lengths_where.text(), "p.yaml:5:33");
  EXPECT_NE(spec->canonical_text.find(R"({"by":"duration","run":32,"window":8192})"),
            std::string::npos);
  const Result<PipelineSpec> whole =
      parse(kMinimal + std::string("shuffle: {global: {bucket: {by: n, window: 100, run: 20}}}\n"));
  ASSERT_TRUE(whole) << whole.error().message();
  expected.bucket = Shuffle::Bucket{.by = "n", .window = 100, .run = 20};
  EXPECT_EQ(whole->shuffle, expected);
}

TEST(Parse, KeepsTheRunThatWasFixedBefore) {
  ParseOptions options;
  options.bucket_run = 128;
  const auto with = [&](const std::string& bucket) {
    return parse(kMinimal + ("shuffle: {global: {bucket: " + bucket + "}}\n"), options);
  };
  const auto unsaid = with("{by: duration}");
  ASSERT_TRUE(unsaid) << unsaid.error().message();
  EXPECT_EQ(unsaid->shuffle.bucket->run, 128u);
  const auto said = with("{by: duration, run: 16}");
  ASSERT_TRUE(said) << said.error().message();
  EXPECT_EQ(said->shuffle.bucket->run, 16u);
  const auto narrow = with("{by: duration, window: 128}");
  ASSERT_FALSE(narrow);
  EXPECT_EQ(narrow.error().message(),
            "p.yaml:5:51: shuffle.global.bucket.window: 128 rows are not more than one run of 128 "
            "as it was applied, so that none would go by its length: make the window larger, or "
            "set 'run: ROWS' to less");
}

TEST(Parse, TakesEveryKey) {
  const Result<PipelineSpec> spec = parse(R"(
pipeline: all.of_it-1
seed: 42
source:
  files: {root: ../data/./x/, pattern: "*.jpg", label: parent_dir, classes: [b, a, 0],
          follow_symlinks: false}
shuffle: {block: 512, interleave: 4}
stages:
  - fetch: {concurrency: 3}
  - resize: {size: 7, max_size: 9, interpolation: nearest, antialias: false}
  - scale: {range: [1, 2.5], p: 1}
  - scale
batch: {size: 64, last: keep, layout: NHWC, max_bytes: 1MiB}
delivery: {device: cpu, prefetch: 2, absent_replica: go_on}
on_error: {decode: fail, io: {retry: 0}, budget: {fraction: 1, min: 7}}
)");
  ASSERT_TRUE(spec) << spec.error().message();
  const auto& files = std::get<FilesSpec>(spec->source.items);
  EXPECT_EQ(files.root, "/data/x");
  EXPECT_EQ(files.pattern, "*.jpg");
  EXPECT_EQ(files.label, FilesSpec::Label::kParentDir);
  EXPECT_EQ(files.classes.kind, ClassesSpec::Kind::kList);
  EXPECT_EQ(files.classes.names, (std::vector<std::string>{"b", "a", "0"}));
  EXPECT_FALSE(files.follow_symlinks);
  EXPECT_EQ(spec->shuffle, (Shuffle{.kind = Shuffle::Kind::kBlock, .block = 512, .interleave = 4}));
  ASSERT_EQ(spec->stages.size(), 4u);
  EXPECT_EQ(spec->stages[0].concurrency, 3);
  const Params& resize = spec->stages[1].params;
  EXPECT_EQ(resize.get<std::vector<std::int64_t>>("size"), std::vector<std::int64_t>{7});
  EXPECT_EQ(resize.get<std::int64_t>("max_size"), 9);
  EXPECT_EQ(resize.get<std::string>("interpolation"), "nearest");
  EXPECT_FALSE(resize.get<bool>("antialias"));
  EXPECT_EQ(spec->stages[2].params.get<std::vector<double>>("range"),
            (std::vector<double>{1, 2.5}));
  EXPECT_EQ(spec->stages[2].params.get<double>("p"), 1.0);
  EXPECT_EQ(spec->stages[3].params.get<double>("p"), 0.5);
  EXPECT_EQ(spec->stages[3].where.text(), "p.yaml:12:5");
  EXPECT_EQ(spec->batch.last, Tail::kKeep);
  EXPECT_EQ(spec->batch.layout, Layout::kNHWC);
  EXPECT_EQ(spec->batch.max_bytes, 1u << 20);
  EXPECT_EQ(spec->delivery.prefetch, 2);
  EXPECT_EQ(spec->delivery.absent_replica, AbsentReplica::kGoOn);
  EXPECT_EQ(spec->on_error.decode, ErrorPolicy::OnDecode::kFail);
  EXPECT_EQ(spec->on_error.io.retries, 0);
  EXPECT_EQ(spec->on_error.budget_fraction, 1.0);
  EXPECT_EQ(spec->on_error.budget_min, 7);
}

TEST(Parse, TakesTheSizeOfAnOpAlone) {
  const auto sizes = [](const std::string& stage) {
    const Result<PipelineSpec> spec =
        parse("pipeline: p\nsource: {files: {root: /d}}\nvars: {n: 7}\nstages: [fetch, " + stage +
              "]\nbatch: {size: 8}\n");
    EXPECT_TRUE(spec) << spec.error().message();
    return spec ? spec->stages[1].params.get<std::vector<std::int64_t>>("size")
                : std::vector<std::int64_t>();
  };
  EXPECT_EQ(sizes("resize: 7"), std::vector<std::int64_t>{7});
  EXPECT_EQ(sizes("resize: [7, 8]"), (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(sizes("resize: \"${n}\""), std::vector<std::int64_t>{7});
}

TEST(Parse, TakesClassesFromAFileOrAPipeline) {
  const std::string head = "pipeline: p\nstages: [fetch]\nbatch: {size: 1}\n";
  const Result<PipelineSpec> file =
      parse(head + "source: {files: {root: /d, label: parent_dir, classes: names.txt}}\n");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(std::get<FilesSpec>(file->source.items).classes.kind, ClassesSpec::Kind::kFile);
  EXPECT_EQ(std::get<FilesSpec>(file->source.items).classes.path, "/conf/names.txt");
  const Result<PipelineSpec> other =
      parse(head + "source: {files: {root: /d, label: parent_dir, classes: {from: train}}}\n");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(std::get<FilesSpec>(other->source.items).classes.kind, ClassesSpec::Kind::kPipeline);
  EXPECT_EQ(std::get<FilesSpec>(other->source.items).classes.pipeline, "train");
}

TEST(Parse, TakesNullForANullableParameterAndForAnEmptySection) {
  const Result<PipelineSpec> spec = parse(R"(
pipeline: p
source: {files: {root: /d, classes: null}}
stages:
  - fetch:
  - resize: {size: [4, 5], max_size: null}
batch: {size: 1}
delivery:
on_error: {budget: }
)");
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_FALSE(spec->stages[1].params.has("max_size"));
  EXPECT_EQ(spec->delivery.prefetch, 4);
  EXPECT_EQ(spec->on_error.budget_min, 100);
}

TEST(ParsePipeline, ReadsWhatIsToBeKept) {
  const Result<PipelineSpec> none = parse(kMinimal);
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_FALSE(none->cache);
  const Result<PipelineSpec> terse = parse(kMinimal + std::string("cache: {size: 2GiB}\n"));
  ASSERT_TRUE(terse) << terse.error().message();
  ASSERT_TRUE(terse->cache);
  EXPECT_EQ(terse->cache->form, CacheSpec::Form::kDecoded);
  EXPECT_EQ(terse->cache->where, CacheSpec::Where::kRam);
  EXPECT_EQ(terse->cache->size_bytes, 2ull << 30);
  const Result<PipelineSpec> wordy =
      parse(kMinimal + std::string("cache: {form: encoded, size: 64MiB, where: disk}\n"));
  ASSERT_TRUE(wordy) << wordy.error().message();
  EXPECT_EQ(wordy->cache->form, CacheSpec::Form::kEncoded);
  EXPECT_EQ(wordy->cache->where, CacheSpec::Where::kDisk);
  EXPECT_NE(wordy->canonical_text, terse->canonical_text);
}

TEST(CanonicalText, IsTheSameForReorderedKeysAndDefaultsWrittenOut) {
  const Result<PipelineSpec> terse = parse(
      "pipeline: p\n"
      "source: {files: {root: /data}}\n"
      "stages: [fetch, resize: {size: 8}, scale]\n"
      "batch: {size: 8}\n");
  const Result<PipelineSpec> wordy = parse(R"(
vars: {unused: 1}
batch: {max_bytes: null, layout: "NCHW", size: +8, last: drop}
on_error: {budget: {min: 100, fraction: 1e-2}, io: {retry: 5}, decode: replace}
delivery: {prefetch: 4, device: cpu}
shuffle: none
stages:
  - fetch: {concurrency: null}
  - resize: {antialias: True, max_size: null, interpolation: 'bilinear', size: [8]}
  - scale: {p: .5, range: [0.50, 1]}
source: {files: {follow_symlinks: true, label: none, pattern: "**/*", root: /x/../data/}}
seed: 0
pipeline: p
)");
  ASSERT_TRUE(terse) << terse.error().message();
  ASSERT_TRUE(wordy) << wordy.error().message();
  EXPECT_EQ(terse->canonical_text, wordy->canonical_text);
}

TEST(CanonicalText, IsPinned) {
  const Result<PipelineSpec> spec = parse(kMinimal);
  ASSERT_TRUE(spec);
  // Another text is another content digest: every pipeline would look changed after an upgrade.
  EXPECT_EQ(spec->canonical_text,
            R"({"batch":{"last":"drop","layout":"NCHW","size":8},)"
            R"("delivery":{"absent_replica":"wait","device":"cpu","prefetch":4},)"
            R"("on_error":{"budget":{"fraction":0.01,"min":100},"decode":"replace",)"
            R"("io":{"retry":5}},)"
            R"("pipeline":"p","seed":0,"shuffle":"none",)"
            R"("source":{"files":{"follow_symlinks":true,"label":"none","pattern":"**/*",)"
            R"("root":"/data"}},"stages":[{"fetch":{}}]})");
}

TEST(CanonicalText, TellsEveryDifferenceApart) {
  const Result<PipelineSpec> base = parse(kMinimal);
  ASSERT_TRUE(base);
  std::string bigger = kMinimal;
  bigger.replace(bigger.find("size: 8"), 7, "size: 9");
  for (const std::string& other :
       {bigger, kMinimal + std::string("seed: 1\n"), kMinimal + std::string("shuffle: global\n"),
        kMinimal + std::string("delivery: {prefetch: 5}\n"),
        kMinimal + std::string("on_error: {decode: fail}\n")}) {
    const Result<PipelineSpec> spec = parse(other);
    ASSERT_TRUE(spec) << spec.error().message();
    EXPECT_NE(spec->canonical_text, base->canonical_text) << other;
  }
}

}  // namespace
}  // namespace spdld::spec
