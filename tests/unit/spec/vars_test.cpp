// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "spec/vars.h"
#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

// A pipeline whose root and size come from variables; `vars` is its first line.
std::string with_vars(const std::string& vars, const std::string& root = "${root}",
                      const std::string& size = "${size}") {
  return "vars: {" + vars + "}\npipeline: p\nsource: {files: {root: \"" + root +
         "\"}}\nstages: [fetch]\nbatch: {size: \"" + size + "\"}\n";
}

std::string root_of(const PipelineSpec& spec) {
  return std::get<FilesSpec>(spec.source.items).root;
}

ParseOptions with_env(const std::map<std::string, std::string>& values) {
  ParseOptions options;
  options.env = [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
  return options;
}

TEST(Vars, KeepTheirTypeAloneAndAreTextInsideOfText) {
  const Result<PipelineSpec> spec = parse(with_vars("root: /d, size: 16", "${root}/x${size}y"));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->batch.size, 16);
  EXPECT_EQ(root_of(*spec), "/d/x16y");
  EXPECT_EQ(spec->vars, (std::map<std::string, std::string>{{"root", "/d"}, {"size", "16"}}));
}

TEST(Vars, AreTextAtAnyLengthInsideOfText) {
  const std::string deep(300, 'd');
  const Result<PipelineSpec> spec =
      parse(with_vars("root: /" + deep + ", size: 1, none: null", "${root}/${none}/x"));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(root_of(*spec), "/" + deep + "/null/x");
}

TEST(Vars, ReferToEachOtherInAnyOrder) {
  const Result<PipelineSpec> spec =
      parse(with_vars("root: \"${base}/${size}\", base: /b, size: \"${n}\", n: 3"));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(root_of(*spec), "/b/3");
  EXPECT_EQ(spec->batch.size, 3);
}

TEST(Vars, AreOverriddenBySubmitter) {
  const Result<PipelineSpec> spec = parse(with_vars("root: /d, size: 16", "${root}/${size}"),
                                          {.vars = {{"size", "32"}, {"root", "/other"}}});
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->batch.size, 32);
  EXPECT_EQ(root_of(*spec), "/other/32");
}

TEST(Vars, ReadDollarsWithoutBracesAsTheyAre) {
  const Result<PipelineSpec> spec = parse(with_vars("size: 1", "/a$b/$$c/$${size}/d$"));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(root_of(*spec), "/a$b/$c/${size}/d$");
}

TEST(Vars, ReadTheEnvironmentOfTheSubmitter) {
  const Result<PipelineSpec> spec =
      parse(with_vars("root: \"${env:DATA}/x\"", "${root}", "${env:N}"),
            with_env({{"DATA", "/env"}, {"N", "5"}}));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(root_of(*spec), "/env/x");
  EXPECT_EQ(spec->batch.size, 5);
}

TEST(Vars, DoNotExpandWhatCameFromOutside) {
  const Result<PipelineSpec> spec =
      parse(with_vars("root: /d, size: 1", "/${env:EVIL}"), with_env({{"EVIL", "${env:SECRET}"}}));
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(root_of(*spec), "/${env:SECRET}");
}

TEST(Vars, AreTakenOutOfTheCanonicalText) {
  const Result<PipelineSpec> with = parse(with_vars("root: /data, size: 8"));
  const Result<PipelineSpec> without = parse(kMinimal);
  ASSERT_TRUE(with) << with.error().message();
  ASSERT_TRUE(without);
  EXPECT_EQ(with->canonical_text, without->canonical_text);
}

// The tree as it is once variables are put in; no pipeline needs to make sense.
std::string resolved(const std::string& text, const std::vector<std::string>& way) {
  Result<Node> root = parse_yaml(text, std::make_shared<const Document>(Document{"p.yaml", "/d"}));
  if (!root) return root.error().message();
  const auto vars = resolve_vars(*root, {}, {});
  if (!vars) return vars.error().message();
  const Node* node = &*root;
  for (const std::string& key : way) node = node->find(key);
  return node->text;
}

TEST(Vars, LeavePartsOfItemsToCompanions) {
  const std::string text =
      "vars: {masks: m, plain: \"$${stem}.txt\"}\n"
      "source: {files: {root: /d, companions: {mask: \"${masks}/${subdir}/${stem}.png\", "
      "name: \"${name}\", city: \"${stem%_left}.png\", cost: \"$${stem}$$\", text: "
      "\"${plain}\"}}}\n";
  const auto companion = [&](const std::string& field) {
    return resolved(text, {"source", "files", "companions", field});
  };
  EXPECT_EQ(companion("mask"), "m/${subdir}/${stem}.png");
  EXPECT_EQ(companion("name"), "${name}");
  EXPECT_EQ(companion("city"), "${stem%_left}.png");
  EXPECT_EQ(companion("cost"), "${stem}$");
  EXPECT_EQ(companion("text"), "${stem}.txt");
}

TEST(Vars, RefuseToGuessBetweenVariablesAndPartsOfItems) {
  EXPECT_EQ(resolved("vars: {dir: /d}\nsource: {companions: {mask: \"${dir}/x\"}}\n", {}),
            "p.yaml:2:29: ${dir} is a part of the item here, and a variable has the same name; "
            "give the variable another one");
  EXPECT_EQ(resolved("vars: {dir: /d}\nsource: {companions: {mask: \"${dir%/x}\"}}\n", {}),
            "p.yaml:2:29: ${dir} is a part of the item here, and a variable has the same name; "
            "give the variable another one");
  EXPECT_EQ(
      resolved("vars: {dir: /d}\nsource: {root: \"${dir}/x\", companions: {m: \"$${dir}\"}}\n",
               {"source", "root"}),
      "/d/x");
  EXPECT_EQ(resolved("vars: {m: \"${stem}.png\"}\nsource: {companions: {mask: \"${m}\"}}\n", {}),
            "p.yaml:1:11: unknown variable 'stem'; below 'companions' it is a part of the item, "
            "and a variable that goes there has it as $${stem}");
  EXPECT_EQ(resolved("source: {companions: {mask: \"${stm}\"}}\n", {}),
            "p.yaml:1:29: unknown variable 'stm'; there are none");
  EXPECT_EQ(resolved("source: {companions: {mask: x}, root: \"${stem}\"}\n", {}),
            "p.yaml:1:39: unknown variable 'stem'; below 'companions' it is a part of the item, "
            "and a variable that goes there has it as $${stem}");
}

TEST(Vars, RefuseNamesThatAreNotThere) {
  EXPECT_EQ(parse_error(with_vars("root: /d, size: 1", "${rot}")),
            "p.yaml:3:24: unknown variable 'rot'; did you mean 'root'?");
  EXPECT_EQ(parse_error(with_vars("")), "p.yaml:3:24: unknown variable 'root'; there are none");
  EXPECT_EQ(parse_error(with_vars("root: /d, size: 1"), {.vars = {{"szie", "2"}}}),
            "'szie' (--var, vars=) names no variable of pipeline 'p'; did you mean 'size'?");
  EXPECT_EQ(parse_error(kMinimal, {.vars = {{"size", "2"}}}),
            "'size' (--var, vars=) names no variable of pipeline 'p'; there are none");
}

TEST(Vars, CheckAnOverrideLikeAnyValue) {
  EXPECT_EQ(parse_error(with_vars("root: /d, size: 1"), {.vars = {{"size", "big"}}}),
            "p.yaml:5:15: batch.size: expected an integer, got 'big'");
  EXPECT_EQ(parse_error(with_vars("root: /d, size: 1"), {.vars = {{"size", "\xff"}}}),
            "'size' (--var, vars=): the value is not text in UTF-8");
  // A variable that its author put in quotes stays text.
  EXPECT_EQ(parse_error(with_vars("root: /d, size: '1'"), {.vars = {{"size", "2"}}}),
            "p.yaml:5:15: batch.size: expected an integer, got the string '2'; leave out the "
            "quotes");
}

TEST(Vars, RefuseAnEnvironmentThatLacksTheVariable) {
  EXPECT_EQ(parse_error(with_vars("root: /d", "${env:DATA}"), with_env({})),
            "p.yaml:3:24: the environment variable 'DATA' is not set in the shell or "
            "program that submits the pipeline");
  EXPECT_EQ(parse_error(with_vars("root: /d", "${env:DATA}")),
            "p.yaml:3:24: ${env:DATA} has no meaning here: there is no environment to take it "
            "from; use vars and --var");
  EXPECT_EQ(parse_error(with_vars("root: /d", "${env:}"), with_env({})),
            "p.yaml:3:24: '' is not the name of an environment variable");
  EXPECT_EQ(parse_error(with_vars("root: /d", "${env:DATA}"), with_env({{"DATA", "\xff"}})),
            "p.yaml:3:24: the environment variable 'DATA' is not text in UTF-8");
}

TEST(Vars, RefuseCircles) {
  EXPECT_EQ(parse_error(with_vars("a: \"${b}\", b: \"x${c}\", c: \"${a}\"")),
            "p.yaml:1:34: variables refer to each other in a circle: a -> b -> c -> a");
  EXPECT_EQ(parse_error(with_vars("a: \"${a}\"")),
            "p.yaml:1:11: variables refer to each other in a circle: a -> a");
}

TEST(Vars, RefuseChainsAndTextsWithoutEnd) {
  // Names are resolved in their order, so only one that starts at the far end is deep.
  std::string reversed = "a0: \"${a1}\"";
  for (std::size_t i = 1; i < 40; ++i) {
    reversed += ", a" + std::to_string(i) + ": \"${a" + std::to_string(i + 1) + "}\"";
  }
  const std::string deep = parse_error(with_vars(reversed + ", a40: x"));
  EXPECT_TRUE(deep.ends_with(": more than 32 variables refer to one another in a chain")) << deep;

  std::string bomb = "a0: \"" + std::string(64, 'x') + "\"";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "${a" + std::to_string(i - 1) + "}";
    bomb += ", a" + std::to_string(i) + ": \"" + before + before + before + before + "\"";
  }
  const std::string large = parse_error(with_vars(bomb));
  EXPECT_TRUE(large.ends_with(": the variables together make more than 4194304 bytes of text"))
      << large;
}

TEST(Vars, RefuseWhatIsNoVariable) {
  EXPECT_EQ(parse_error("vars: [a]\n"),
            "p.yaml:1:7: vars: expected a map of names to values, got a list");
  EXPECT_EQ(parse_error(with_vars("a: [1]")),
            "p.yaml:1:11: vars.a: expected a single value, got a list");
  EXPECT_EQ(parse_error(with_vars("a-b: 1")),
            "p.yaml:1:8: vars: 'a-b' is not a variable's name; use letters, digits and _");
  EXPECT_EQ(parse_error(with_vars("root: /d", "/x/${root")),
            "p.yaml:3:24: '${' without '}' in the string '/x/${root'; write $$ for a plain $");
}

}  // namespace
}  // namespace spdld::spec
