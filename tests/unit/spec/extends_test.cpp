// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "spec/extends.h"
#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

ParseOptions with_files(std::map<std::string, std::string> files) {
  ParseOptions options;
  options.read_file = [files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return error(Code::kNotFound, "cannot open " + path);
    return found->second;
  };
  return options;
}

TEST(Extends, MergesMapsAndReplacesTheRest) {
  const Result<PipelineSpec> spec = parse(
      "extends: base.yaml\n"
      "pipeline: derived\n"
      "vars: {size: 4}\n"
      "stages: [fetch]\n"
      "on_error: {budget: {min: 1}}\n",
      with_files({{"/conf/base.yaml",
                   "pipeline: base\n"
                   "vars: {root: /d, size: 9}\n"
                   "source: {files: {root: \"${root}\", pattern: x}}\n"
                   "stages: [fetch, scale]\n"
                   "batch: {size: \"${size}\", last: pad}\n"
                   "on_error: {decode: fail, budget: {fraction: 0.5}}\n"}}));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->name, "derived");
  EXPECT_EQ(spec->stages.size(), 1u);
  EXPECT_EQ(spec->batch.size, 4);
  EXPECT_EQ(spec->batch.last, Tail::kPad);
  EXPECT_EQ(spec->on_error.decode, ErrorPolicy::OnDecode::kFail);
  EXPECT_EQ(spec->on_error.budget_fraction, 0.5);
  EXPECT_EQ(spec->on_error.budget_min, 1);
}

TEST(Extends, GivesTheSameCanonicalTextAsTheMergedPipeline) {
  const Result<PipelineSpec> spec =
      parse("extends: a.yaml\nbatch: {size: 8}\n", with_files({{"/conf/a.yaml",
                                                                "pipeline: p\n"
                                                                "source: {files: {root: /data}}\n"
                                                                "stages: [fetch]\n"}}));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->canonical_text, parse(kMinimal)->canonical_text);
}

TEST(Extends, ReadsRelativePathsFromTheFileThatHasThem) {
  const Result<PipelineSpec> spec = parse(
      "extends: ../common/b.yaml\n",
      with_files(
          {{"/common/b.yaml", "extends: c.yaml\nbatch: {size: 1}\n"},
           {"/common/c.yaml", "pipeline: p\nsource: {files: {root: data}}\nstages: [fetch]\n"}}));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(std::get<FilesSpec>(spec->source.items).root, "/common/data");
}

TEST(Extends, NamesTheFileThatAnErrorIsIn) {
  EXPECT_EQ(parse_error("extends: b.yaml\n",
                        with_files({{"/conf/b.yaml", "pipeline: p\nbatch: {size: x}\n"}})),
            "/conf/b.yaml:2:15: batch.size: expected an integer, got a text");
  EXPECT_EQ(parse_error("extends: b.yaml\n", with_files({{"/conf/b.yaml", "a: [\n"}})),
            "/conf/b.yaml:2:1: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(parse_error("extends: b.yaml\n", with_files({{"/conf/b.yaml", "[]"}})),
            "/conf/b.yaml:1:1: expected a pipeline, a map of keys, got a list");
}

TEST(Extends, ShowsNoValueOfAFileThatIsOnlyNamed) {
  for (const std::string text :
       {"root:x:0:0:hidden:/root:/bin/bash\nhidden:x:1:1\n", "hidden", "'hidden'", "- hidden\n",
        "pipeline: [hidden]\n", "shuffle: hidden\n", "pipeline: p\nbatch: {size: hidden}\n",
        "pipeline: p\nbatch: {size: 64000000000}\n", "pipeline: p\nseed: \"${hidden\"\n",
        "pipeline: !hidden p\n", "pipeline: hidden hidden\n", "? [hidden]\n: p\n",
        "extends: [hidden]\n", "vars: hidden\n", "vars: {root: [hidden]}\n"}) {
    const std::string said = parse_error("extends: b.yaml\n", with_files({{"/conf/b.yaml", text}}));
    EXPECT_TRUE(said.starts_with("/conf/b.yaml:")) << text << ": " << said;
    EXPECT_EQ(said.find("hidden"), std::string::npos) << said;
    EXPECT_EQ(said.find("64000000000"), std::string::npos) << said;
  }
}

TEST(Extends, RefusesCircles) {
  EXPECT_EQ(parse_error("extends: b.yaml\n", with_files({{"/conf/b.yaml", "extends: c.yaml\n"},
                                                         {"/conf/c.yaml", "extends: b.yaml\n"}})),
            "/conf/c.yaml:1:10: extends goes round in a circle: /conf/b.yaml -> /conf/c.yaml -> "
            "/conf/b.yaml");
}

TEST(Extends, RefusesLongChains) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 20; ++i) {
    files["/conf/" + std::to_string(i)] = "extends: \"" + std::to_string(i + 1) + "\"\n";
  }
  EXPECT_EQ(parse_error("extends: \"0\"\n", with_files(files)),
            "/conf/14:1:10: more than 16 files extend one another");
}

TEST(Extends, RefusesWhatCannotBeRead) {
  EXPECT_EQ(parse_error("extends: gone.yaml\n", with_files({})),
            "p.yaml:1:10: extends: cannot open /conf/gone.yaml");
  EXPECT_EQ(parse(std::string("extends: gone.yaml\n"), with_files({})).error().code(),
            Code::kNotFound);
  EXPECT_EQ(parse_error("extends: b.yaml\n"),
            "p.yaml:1:10: extends: no files can be read here; submit the merged pipeline");
  EXPECT_EQ(parse_error("extends: [b.yaml]\n"),
            "p.yaml:1:10: extends: expected the path of a file, got a list");
  EXPECT_EQ(parse_error("extends: \"${env:X}\"\n"),
            "p.yaml:1:10: extends: variables have no meaning here; write the path out");
}

}  // namespace
}  // namespace spdld::spec
