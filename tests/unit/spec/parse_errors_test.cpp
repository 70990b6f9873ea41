// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The minimal pipeline with `line` after it: on line 5.
std::string error_with(const std::string& line) { return parse_error(kMinimal + line); }

// With another line in place of one that begins with the same key.
std::string error_instead(const std::string& line) {
  std::string text = kMinimal;
  const std::string key = line.substr(0, line.find(':') + 1);
  const std::size_t begin = text.find(key);
  text.replace(begin, text.find('\n', begin) - begin, line);
  return parse_error(text);
}

TEST(ParseErrors, NameTheNearestKey) {
  EXPECT_EQ(error_with("shufle: global"),
            "p.yaml:5:1: unknown key 'shufle'; did you mean 'shuffle'?");
  EXPECT_EQ(error_with("delivery: {prefech: 4}"),
            "p.yaml:5:12: unknown key 'prefech' in 'delivery'; did you mean 'prefetch'?");
  EXPECT_EQ(error_with("on_error: {budget: {frac: 1}}"),
            "p.yaml:5:21: unknown key 'frac' in 'on_error.budget'; there are: fraction, min");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: 4, antialiasing: true}]"),
            "p.yaml:3:35: unknown key 'antialiasing' in 'stages[1].resize'; did you mean "
            "'antialias'?");
}

TEST(ParseErrors, NameBatchesThatHoldAllRowsOfTheirItems) {
  EXPECT_EQ(error_with("repeat: {rows: 3}"),
            "p.yaml:5:9: repeat: the 3 rows of an item lie in one batch, and batches of 8 rows "
            "would part some: take a multiple of 3, such as 6, or write 'adjacent: false'");
  EXPECT_THAT(error_with("repeat: {rows: 16}"), HasSubstr("a multiple of 16, such as 16, or"));
}

TEST(ParseErrors, BoundTheRowsOfAnItem) {
  EXPECT_EQ(error_with("repeat: {rows: 0}"), "p.yaml:5:16: repeat.rows: must be 1 to 1024, got 0");
  EXPECT_EQ(error_with("repeat: {rows: 1025, adjacent: false}"),
            "p.yaml:5:16: repeat.rows: must be 1 to 1024, got 1025");
  EXPECT_THAT(error_with("repeat: {adjacent: false}"), HasSubstr("repeat.rows"));
}

TEST(ParseErrors, KnowALineThatIsIndentedTooFar) {
  EXPECT_EQ(error_instead("stages:\n  - fetch\n   - decode_image"),
            "p.yaml:4:5: stages[0]: unknown op 'fetch - decode_image'; is the line below it "
            "indented deeper than its own '-'?");
}

TEST(ParseErrors, SayWhatToWriteForOtherToolsKeys) {
  EXPECT_EQ(
      error_with("drop_last: true"),
      "p.yaml:5:1: unknown key 'drop_last': write 'batch: {size: N, last: drop}'; last may be "
      "pad or keep, too");
  EXPECT_EQ(error_instead("batch: {size: 8, drop_last: true}"),
            "p.yaml:4:18: unknown key 'drop_last' in 'batch': write 'last: drop', which is the "
            "default, 'pad' or 'keep'");
  EXPECT_THAT(error_with("num_workers: 8"), HasSubstr("leave it out"));
  EXPECT_THAT(error_with("dataloader: 8"), HasSubstr("cache, extends, vars"));
}

TEST(ParseErrors, KnowTheTransformsOfOtherLibraries) {
  const auto stage = [](const std::string& text) {
    return error_instead("stages: [fetch, " + text + "]");
  };
  EXPECT_EQ(stage("Resize: {size: 4}"),
            "p.yaml:3:17: stages[1]: unknown op 'Resize'; did you mean 'resize'?");
  EXPECT_EQ(stage("v2.Resize(224)"),
            "p.yaml:3:17: stages[1]: unknown op 'v2.Resize(224)'; did you mean 'resize: 224'?");
  EXPECT_EQ(stage("\"Resize((2, 3))\""),
            "p.yaml:3:17: stages[1]: unknown op 'Resize((2, 3))'; did you mean 'resize: [2, 3]'?");
  EXPECT_EQ(stage("\"T.Resize((2, 3), InterpolationMode.BILINEAR, antialias=True)\""),
            "p.yaml:3:17: stages[1]: unknown op 'T.Resize((2, 3), InterpolationMode.BILINEAR, "
            "antialias=True)'; did you mean 'resize: {size: [2, 3], interpolation: bilinear, "
            "antialias: true}'?");
  for (const char* const call : {"Resize(0)", "'Resize(2, 2)'", "'Resize(2, nothing=3)'",
                                 "Resize(f(2))", "'Resize(1, 2, 3, 4, 5, 6, 7)'"})
    EXPECT_THAT(stage(call), HasSubstr("; did you mean 'resize'?")) << call;
  EXPECT_THAT(stage("Scale(2)"), HasSubstr("; did you mean 'scale'?"));
  EXPECT_THAT(stage("Scale(p=0.25)"), HasSubstr("; did you mean 'scale: {p: 0.25}'?"));
  EXPECT_EQ(stage("ToTensor"),
            "p.yaml:3:17: stages[1]: unknown op 'ToTensor': leave it out: images come as tensors, "
            "channels first");
  EXPECT_THAT(stage("ColorJitter: {hue: 0.1}"), HasSubstr("'ColorJitter': there is no such op"));
}

TEST(ParseErrors, OfAnOpsSizeAloneAreThoseOfItsKey) {
  EXPECT_EQ(error_instead("stages: [fetch, resize: big]"),
            "p.yaml:3:25: stages[1].resize.size: expected an integer, got 'big'");
  EXPECT_EQ(error_instead("stages: [fetch, resize: [4, 5, 6]]"),
            "p.yaml:3:25: stages[1].resize.size: must hold 1 to 2 values, got 3");
  EXPECT_EQ(error_instead("stages: [fetch, scale: 2]"),
            "p.yaml:3:24: stages[1].scale: expected a map, got the integer 2");
}

TEST(ParseErrors, SayWhatToWriteForOtherLibrariesArguments) {
  EXPECT_EQ(error_instead("stages: [fetch, resize: {height: 4, width: 4}]"),
            "p.yaml:3:26: unknown key 'height' in 'stages[1].resize': write 'size: [HEIGHT, "
            "WIDTH]', or one number");
  EXPECT_EQ(error_instead("stages: [fetch, scale: {inplace: true}]"),
            "p.yaml:3:25: unknown key 'inplace' in 'stages[1].scale': leave it out: ops work in "
            "place");
  EXPECT_EQ(error_instead("batch: {size: 8, num_workers: 8}"),
            "p.yaml:4:18: unknown key 'num_workers' in 'batch': leave it out: the daemon has the "
            "threads, for all pipelines together (executor.cpu_threads in its configuration)");
  EXPECT_EQ(error_instead("source: {files: {root: /d, extensions: [jpg]}}"),
            "p.yaml:2:28: unknown key 'extensions' in 'source.files': write 'pattern: "
            "\"**/*.{jpg,png}\"', where ** stands for folders");
  for (const char* const source :
       {"{files: {root: /d}, split: 'train[:80%]'}", "{split: train, files: {root: /d}}",
        "{files: {root: /d, split: train}}"})
    EXPECT_THAT(error_instead(std::string("source: ") + source),
                HasSubstr("': write 'select: {split: {part: train, val: 0.2}}' below 'source'"));
  EXPECT_EQ(error_instead("source: {imagefolder: {root: /d}}"),
            "p.yaml:2:10: unknown key 'imagefolder' in 'source': write 'files: {root: DIRECTORY, "
            "label: parent_dir}'");
  EXPECT_EQ(error_with("delivery: {pin_memory: true}"),
            "p.yaml:5:12: unknown key 'pin_memory' in 'delivery': leave it out: batches lie in "
            "shared memory");
  EXPECT_THAT(error_with("shuffle: {buffer_size: 1000}"), HasSubstr("': write 'shuffle: global'"));
}

TEST(ParseErrors, SayWhatToWriteForOtherLibrariesValues) {
  const auto interpolation = [](const std::string& value) {
    return error_instead("stages: [fetch, resize: {size: 4, interpolation: " + value + "}]");
  };
  for (const char* const value : {"BILINEAR", "InterpolationMode.BILINEAR", "PIL.Image.Bilinear"})
    EXPECT_THAT(interpolation(value), HasSubstr("; did you mean 'bilinear'?"));
  EXPECT_THAT(interpolation("2"), HasSubstr("2 is not one of nearest, bilinear: write its name: "));
  EXPECT_THAT(interpolation("cv2.INTER_LINEAR"), HasSubstr(": write 'bilinear'"));
  EXPECT_THAT(error_with("shuffle: true"),
              HasSubstr("'true' is not one of none, global: write 'global'"));
  EXPECT_THAT(error_with("shuffle: 1000"), HasSubstr("needs no buffer"));
  EXPECT_EQ(error_instead("source: {files: {root: /d}, select: {split: 'train[:80%]'}}"),
            "p.yaml:2:45: source.select.split: expected a map such as {part: train, val: 0.2}, "
            "got the string 'train[:80%]'");
  EXPECT_THAT(error_instead("source: {files: {root: /d}, select: {split: {part: validation}}}"),
              HasSubstr(": write 'val'"));
}

TEST(ParseErrors, SayWhichKeyAValueAloneIs) {
  EXPECT_EQ(error_instead("batch: 32"),
            "p.yaml:4:8: batch: expected a map, got the integer 32; write {size: 32}");
  EXPECT_EQ(error_instead("stages: [fetch, scale: 0.5]"),
            "p.yaml:3:24: stages[1].scale: expected a map, got the number 0.5; write {p: 0.5}");
  EXPECT_EQ(error_with("delivery: cuda"),
            "p.yaml:5:11: delivery: expected a map, got 'cuda'; write {device: cuda}");
  for (const std::string text : {"\"cuda\"", "[cuda]", "cpu cuda"})
    EXPECT_THAT(error_with("delivery: " + text), Not(HasSubstr("write"))) << text;
  EXPECT_EQ(error_with("delivery: cudda"), "p.yaml:5:11: delivery: expected a map, got 'cudda'");
}

TEST(ParseErrors, TellATupleOfPythonFromAList) {
  const auto size = [](const std::string& text) {
    return error_instead("stages: [fetch, resize: {size: " + text + "}]");
  };
  EXPECT_EQ(size("(4, 4)"),
            "p.yaml:3:32: stages[1].resize.size: a list has square brackets, such as [1, 2], got "
            "'(4'");
  EXPECT_THAT(size("'(4, 4)'"), HasSubstr("such as [1, 2], got the string '(4, 4)'"));
}

TEST(ParseErrors, SayWhatOtherTablesAre) {
  const auto format = [](const std::string& name) {
    return error_instead("source: {table: {file: t, uri: u, format: " + name + "}}");
  };
  EXPECT_THAT(format("parquet"),
              HasSubstr("'parquet' is not one of csv, tsv, jsonl: it is Parquet, "
                        "which holds rows and is not read: convert it"));
  EXPECT_THAT(format("json"), HasSubstr("one object a line: write 'jsonl'"));
  EXPECT_THAT(format("csb"), HasSubstr("did you mean 'csv'?"));
}

TEST(ParseErrors, NameTheNearestOpAndSource) {
  EXPECT_EQ(error_instead("stages: [fetch, resise: {size: 4}]"),
            "p.yaml:3:17: stages[1]: unknown op 'resise'; did you mean 'resize'?");
  EXPECT_EQ(
      error_instead("stages: [fetch, blur]"),
      "p.yaml:3:17: stages[1]: unknown op 'blur'; there are: fetch, resize, scale; for what is "
      "not built in there is Loader(..., map=), see 'A function on each batch' in "
      "docs/python.md");
  EXPECT_EQ(error_instead("source: {s3: {bucket: x}}"),
            "p.yaml:2:10: source: unknown source 's3'; there are: files, table, coco, webdataset, "
            "python");
  EXPECT_EQ(error_instead("source: {webdatset: {shards: x.tar}}"),
            "p.yaml:2:10: source: unknown source 'webdatset'; did you mean 'webdataset'?");
}

TEST(ParseErrors, SuggestNoOpThatDoesSomethingElse) {
  EXPECT_THAT(error_instead("stages: [fetch, rescale]"), Not(HasSubstr("did you mean 'scale'")))
      << "two letters more may be another op";
}

TEST(ParseErrors, TellAnAddressFromADirectory) {
  EXPECT_EQ(error_instead("source: {files: {root: 's3://bucket/x'}}"),
            "p.yaml:2:24: source.files.root: 's3://bucket/x' is an address, and this version reads "
            "directories alone: copy it to this machine, or mount it there");
}

TEST(ParseErrors, TellACommandFromAShard) {
  EXPECT_EQ(error_instead("source: {webdataset: {shards: 'pipe:cat x.tar', fields: {image: jpg}}}"),
            "p.yaml:2:31: source.webdataset.shards: 'pipe:cat x.tar' is a command, and none is "
            "run: shards are files of this machine; copy them here, or mount where they lie");
}

TEST(ParseErrors, KnowTheKeysOfTheWebdatasetPackage) {
  const auto told = [](const std::string& more) {
    return error_instead("source: {webdataset: {fields: {image: jpg}, " + more + "}}");
  };
  EXPECT_THAT(told("urls: a.tar"), HasSubstr("write 'shards: "));
  EXPECT_THAT(told("shards: a.tar, cache_dir: /tmp/x"),
              HasSubstr("write 'cache: {size: SIZE}' beside 'source'"));
}

TEST(ParseErrors, NameWhatIsMissing) {
  EXPECT_EQ(parse_error("seed: 1"),
            "p.yaml:1:1: 'pipeline' is missing: the name by which training processes ask for it");
  EXPECT_EQ(parse_error("pipeline: p\nsource: {files: {root: /d}}\nbatch: {size: 1}\n"),
            "p.yaml:1:1: 'stages' is missing: what is done to an item, in order; [fetch] alone "
            "delivers encoded bytes");
  EXPECT_EQ(error_instead("batch: {last: pad}"),
            "p.yaml:4:8: 'batch.size' is missing: rows of one batch of one shard");
  EXPECT_EQ(error_instead("batch:"),
            "p.yaml:4:1: 'batch.size' is missing: rows of one batch of one shard");
  EXPECT_EQ(error_instead("source: {files: }"),
            "p.yaml:2:17: 'source.files.root' is missing: the directory that holds the items, or a "
            "list of directories, one behind the other");
  EXPECT_EQ(error_instead("stages: [fetch, resize]"),
            "p.yaml:3:17: 'stages[1].resize.size' is missing: height and width");
}

TEST(ParseErrors, RefuseNamesOfNewFieldsThatNoBatchCanHave) {
  for (const std::string name : {"'a b'", "5", "a.b", "\u00e9", "''", "_a"}) {
    EXPECT_THAT(error_instead("stages: [fetch, resize: {size: 8, sizes: " + name + "}]"),
                HasSubstr("stages[1].resize.sizes: "))
        << name;
  }
  const std::string error =
      error_instead("stages: [fetch, resize: {size: 8, sizes: " + std::string(70'000, 'a') + "}]");
  EXPECT_THAT(error, HasSubstr("aaa...' is no name of a field"));
  EXPECT_LT(error.size(), 300u);
}

TEST(ParseErrors, NameTheTypeThatWasExpected) {
  EXPECT_EQ(error_instead("batch: {size: [8]}"),
            "p.yaml:4:15: batch.size: expected an integer, got a list");
  EXPECT_EQ(error_instead("batch: {size: 8.5}"),
            "p.yaml:4:15: batch.size: expected an integer, got the number 8.5");
  EXPECT_EQ(error_instead("batch: {size: 010}"),
            "p.yaml:4:15: batch.size: expected an integer, got '010'");
  EXPECT_EQ(error_instead("batch: {size: '8'}"),
            "p.yaml:4:15: batch.size: expected an integer, got the string '8'; leave out the "
            "quotes");
  EXPECT_EQ(error_instead("batch: [8]"), "p.yaml:4:8: batch: expected a map, got a list");
  EXPECT_EQ(error_instead("batch: {size: 8, max_bytes: 64M}"),
            "p.yaml:4:29: batch.max_bytes: expected a size such as 64MiB, got '64M'");
  EXPECT_EQ(error_instead("source: /data"),
            "p.yaml:2:9: source: expected a map of one source, got '/data'");
  EXPECT_EQ(
      error_instead("source: {files: {root: {a: b}}}"),
      "p.yaml:2:24: source.files.root: expected a directory, or a list of directories, got a map");
  EXPECT_EQ(error_instead("source: {files: {root: /d, field: \"a b\"}}"),
            "p.yaml:2:35: source.files.field: 'a b' is no name of a field: it has letters, digits "
            "and _, at most 47 of them, and begins with a letter");
  EXPECT_EQ(error_instead("source: {files: {root: /d, label: parent_dir, field: label}}"),
            "p.yaml:2:54: source.files.field: 'label' is what label: parent_dir gives");
  EXPECT_EQ(error_instead("source: {files: {root: /d, follow_symlinks: yes}}"),
            "p.yaml:2:45: source.files.follow_symlinks: expected true or false, got 'yes'");
  EXPECT_EQ(error_instead("stages: fetch"),
            "p.yaml:3:9: stages: expected a list of stages, got 'fetch'");
  EXPECT_EQ(error_instead("stages: [fetch, [resize]]"),
            "p.yaml:3:17: stages[1]: expected an op's name or a map of an op's name to its "
            "parameters, got a list");
  EXPECT_EQ(error_instead("stages: [fetch, {}]"),
            "p.yaml:3:17: stages[1]: expected an op's name or a map of an op's name to its "
            "parameters, got an empty map");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: big}]"),
            "p.yaml:3:32: stages[1].resize.size: expected an integer, got 'big'");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: 8, sizes: ../x}]"),
            "p.yaml:3:42: stages[1].resize.sizes: '../x' is no name of a field: it has letters, "
            "digits and _, at most 47 of them, and begins with a letter");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: {h: 1}}]"),
            "p.yaml:3:32: stages[1].resize.size: expected an integer or a list of integers, got a "
            "map");
  EXPECT_EQ(error_instead("stages: [fetch, scale: {range: 1}]"),
            "p.yaml:3:32: stages[1].scale.range: expected a list of numbers, got the integer 1");
  EXPECT_EQ(error_instead("stages: [fetch, scale: {p: null}]"),
            "p.yaml:3:28: stages[1].scale.p: expected a number, got nothing (null)");
  EXPECT_EQ(error_with("shuffle: {}"),
            "p.yaml:5:10: 'shuffle.block' is missing: items that stay together on the medium and "
            "are read as one");
  EXPECT_EQ(error_with("shuffle: [global]"),
            "p.yaml:5:10: shuffle: expected none, global, {block: ITEMS} or {global: {bucket: {by: "
            "FIELD}}}, got a list");
  EXPECT_EQ(error_instead("pipeline: my pipeline"),
            "p.yaml:1:11: pipeline: expected a name (1 to 128 of A-Z a-z 0-9 . _ -, which begins "
            "with none of . and -), got 'my "
            "pipeline'");
}

TEST(ParseErrors, NameTheBounds) {
  EXPECT_EQ(error_instead("batch: {size: 0}"),
            "p.yaml:4:15: batch.size: must be 1 to 65536, got 0");
  EXPECT_EQ(error_instead("batch: {size: 65537}"),
            "p.yaml:4:15: batch.size: must be 1 to 65536, got 65537");
  EXPECT_EQ(error_instead("batch: {size: 8, max_bytes: 0}"),
            "p.yaml:4:29: batch.max_bytes: must be more than 0");
  EXPECT_EQ(error_with("seed: -1"), "p.yaml:5:7: seed: must be at least 0, got -1");
  EXPECT_EQ(error_with("delivery: {prefetch: 1}"),
            "p.yaml:5:22: delivery.prefetch: must be 2 to 64, got 1");
  EXPECT_EQ(error_with("delivery: {absent_replica: leave}"),
            "p.yaml:5:28: delivery.absent_replica: 'leave' is not one of wait, go_on");
  EXPECT_EQ(error_with("on_error: {budget: {fraction: 1.5}}"),
            "p.yaml:5:31: on_error.budget.fraction: must be 0 to 1, got 1.5");
  EXPECT_EQ(error_with("on_error: {io: {retry: 101}}"),
            "p.yaml:5:24: on_error.io.retry: must be 0 to 100, got 101");
  EXPECT_EQ(error_instead("stages: [fetch: {concurrency: 0}]"),
            "p.yaml:3:31: stages[0].fetch.concurrency: must be 1 to 4096, got 0");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: [4, 5000]}]"),
            "p.yaml:3:36: stages[1].resize.size[1]: must be 1 to 4096, got 5000");
  EXPECT_EQ(error_instead("stages: [fetch, resize: {size: []}]"),
            "p.yaml:3:32: stages[1].resize.size: must hold 1 to 2 values, got 0");
  EXPECT_EQ(error_instead("stages: [fetch, scale: {range: [1, 2, 3]}]"),
            "p.yaml:3:32: stages[1].scale.range: must hold 2 values, got 3");
  EXPECT_EQ(error_instead("stages: []"), "p.yaml:3:9: stages: must hold 1 to 256 values, got 0");
  EXPECT_EQ(error_instead("source: {files: {root: ''}}"),
            "p.yaml:2:24: source.files.root: must not be empty");
}

TEST(ParseErrors, NameWhatAnOrderByLengthCannotBe) {
  const auto bucket_error = [](const std::string& bucket) {
    return error_with("shuffle: {global: {bucket: " + bucket + "}}");
  };
  EXPECT_EQ(error_with("shuffle: {global: }"),
            "p.yaml:5:19: 'shuffle.global.bucket' is missing: items of like length stand next to "
            "each other, so that batches need little padding");
  EXPECT_EQ(bucket_error("{}"),
            "p.yaml:5:28: 'shuffle.global.bucket.by' is missing: the field that holds the items' "
            "lengths, a number that the source knows of each");
  EXPECT_EQ(
      bucket_error("duration"),
      "p.yaml:5:28: shuffle.global.bucket: expected a map, got 'duration'; write {by: duration}");
  EXPECT_EQ(bucket_error("{by: d, windows: 9}"),
            "p.yaml:5:36: unknown key 'windows' in 'shuffle.global.bucket'; did you mean "
            "'window'?");
  EXPECT_EQ(bucket_error("{by: d, window: 1}"),
            "p.yaml:5:44: shuffle.global.bucket.window: must be 2 to 1048576, got 1");
  EXPECT_EQ(bucket_error("{by: d, run: 0}"),
            "p.yaml:5:41: shuffle.global.bucket.run: must be 1 to 1048576, got 0");
  EXPECT_EQ(bucket_error("{by: d, window: 64, run: 64}"),
            "p.yaml:5:44: shuffle.global.bucket.window: 64 rows are not more than one run of 64, "
            "so that none would go by its length: make the window larger, or set 'run: ROWS' to "
            "less");
  EXPECT_EQ(bucket_error("{by: d, window: 32}"),
            "p.yaml:5:44: shuffle.global.bucket.window: 32 rows are not more than one run of 32, 4 "
            "times batch.size, so that none would go by its length: make the window larger, or set "
            "'run: ROWS' to less");
  EXPECT_EQ(bucket_error("{by: d, run: 8192}").substr(0, 60),
            "p.yaml:5:28: shuffle.global.bucket.window: 8192 rows are not");
}

TEST(ParseErrors, TellTheOrdersApartByTheirKeys) {
  EXPECT_EQ(error_with("shuffle: {bucket: {by: d}}"),
            "p.yaml:5:11: unknown key 'bucket' in 'shuffle': write 'global: {bucket: {by: "
            "FIELD}}'");
  EXPECT_EQ(error_with("shuffle: {globl: {}}"),
            "p.yaml:5:11: unknown key 'globl' in 'shuffle'; did you mean 'global'?");
  EXPECT_EQ(error_with("shuffle: {blok: 4}"),
            "p.yaml:5:11: unknown key 'blok' in 'shuffle'; did you mean 'block'?");
  EXPECT_EQ(error_with("shuffle: {global: {bucket: {by: d}}, interleave: 4}").substr(0, 36),
            "p.yaml:5:11: unknown key 'global' in");
}

TEST(ParseErrors, NameWhatACacheCannotBe) {
  EXPECT_EQ(error_with("cache: {form: decoded}"),
            "p.yaml:5:8: 'cache.size' is missing: what it may take; once it is full, what came "
            "first stays");
  EXPECT_EQ(error_with("cache: {size: 0}"), "p.yaml:5:15: cache.size: must be more than 0");
  EXPECT_EQ(error_with("cache: {size: 5%}"),
            "p.yaml:5:15: cache.size: expected a size such as 64MiB, got '5%'");
  EXPECT_EQ(error_with("cache: {size: 1GiB, where: tape}"),
            "p.yaml:5:28: cache.where: 'tape' is not one of ram, disk");
  EXPECT_EQ(error_with("cache: {size: 1GiB, form: resized}"),
            "p.yaml:5:27: cache.form: 'resized' is not one of encoded, decoded, coefficients");
  EXPECT_EQ(error_with("cache: true"), "p.yaml:5:8: cache: expected a map, got 'true'");
}

TEST(ParseErrors, NameTheChoices) {
  EXPECT_EQ(error_instead("batch: {size: 8, last: dorp}"),
            "p.yaml:4:24: batch.last: 'dorp' is not one of drop, pad, keep; did you mean 'drop'?");
  EXPECT_EQ(error_with("shuffle: everything"),
            "p.yaml:5:10: shuffle: 'everything' is not one of none, global");
  EXPECT_EQ(error_with("delivery: {device: gpu}"),
            "p.yaml:5:20: delivery.device: 'gpu' is not one of cpu, cuda");
}

TEST(ParseErrors, NameTheIndentationThatMakesTwoOpsOfOne) {
  EXPECT_EQ(error_instead("stages:\n  - fetch\n  - resize:\n    size: 4"),
            "p.yaml:6:5: stages[1]: one op only, got 'resize' and 'size'; is the text below "
            "'resize' indented deeper than its name?");
}

TEST(ParseErrors, WantFetchFirstAndOnce) {
  EXPECT_EQ(error_instead("stages: [scale, fetch]"),
            "p.yaml:3:10: stages[0].scale: the first stage must be 'fetch', which brings an item's "
            "bytes");
  EXPECT_EQ(error_instead("stages: [fetch, fetch: {}]"),
            "p.yaml:3:17: stages[1].fetch: an item is fetched once, by the first stage");
}

TEST(ParseErrors, PlaceWhatTheOpItselfRefuses) {
  EXPECT_EQ(error_instead("stages:\n  - fetch\n  - scale: {range: [2, 1]}"),
            "p.yaml:5:5: stages[1].scale: range: least is over most");
}

TEST(ParseErrors, RefuseClassesThatMeanNothing) {
  EXPECT_EQ(error_instead("source: {files: {root: /d, classes: [a]}}"),
            "p.yaml:2:37: source.files.classes: items have no label; add 'label: parent_dir'");
  EXPECT_EQ(error_instead("source: {files: {root: /d, label: parent_dir, classes: [a, b, a]}}"),
            "p.yaml:2:63: source.files.classes: the class 'a' is there twice");
  EXPECT_EQ(error_instead("source: {files: {root: /d, label: parent_dir, classes: []}}"),
            "p.yaml:2:56: source.files.classes: must hold at least 1 value, got 0");
}

TEST(ParseErrors, RefusePathsThatLeadNowhere) {
  EXPECT_EQ(error_instead("source: {files: {root: ~/data}}"),
            "p.yaml:2:24: source.files.root: '~' is not a home directory here; write the path out "
            "or use ${env:HOME}");
  const Result<PipelineSpec> spec = parse_pipeline(
      "pipeline: p\nsource: {files: {root: data}}\nstages: [fetch]\nbatch: {size: 1}\n", "p.yaml",
      fake_registry(), {});
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().message(),
            "p.yaml:2:24: source.files.root: the path 'data' is relative, and this text comes "
            "without a directory; write an absolute one");
}

TEST(ParseErrors, RefuseWhatIsNoPipeline) {
  EXPECT_EQ(parse_error("[1, 2]"), "p.yaml:1:1: expected a pipeline, a map of keys, got a list");
  EXPECT_EQ(parse_error("hello"), "p.yaml:1:1: expected a pipeline, a map of keys, got 'hello'");
  EXPECT_EQ(parse_error(""), "p.yaml: the file is empty");
  EXPECT_EQ(parse_error(std::string(kMaxFileBytes + 1, '#')),
            "p.yaml: larger than 1048576 bytes; is this a pipeline?");
}

TEST(ParseErrors, CarryTheInvalidArgumentCode) {
  const Result<PipelineSpec> spec = parse("seed: x");
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spdld::spec
