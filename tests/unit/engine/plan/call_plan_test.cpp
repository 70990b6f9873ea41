// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/explain.h"
#include "engine/plan/plan.h"
#include "op/call_op.h"
#include "tests/support/pipelines.h"

// Stages that call a function of the user's own, as they are planned.
namespace spdld::engine {
namespace {

using From = PlannedCall::Argument::From;

Result<std::shared_ptr<const Plan>> compile_call(
    const std::string& stages, const std::string& rest = "batch: {size: 4, max_bytes: 1MiB}\n",
    const std::vector<source::SourceField>& fields = testing::labelled_images()) {
  return testing::compile("  - fetch\n" + stages, rest, fields);
}

std::string refusal(const std::string& stages) {
  const auto plan = compile_call(stages);
  return plan ? "none" : plan.error().message();
}

TEST(CallPlan, GivesBytesAndValuesAndTakesFieldsInTheirPlace) {
  const auto plan = compile_call(
      "  - python: {call: 'my.mod:f', in: [image, label], out: {pixels: 'uint8[2,3]', n: "
      "int64}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const PlannedCall& call = (*plan)->calls.at(0);
  EXPECT_EQ(call.spec.call, "my.mod:f");
  ASSERT_EQ(call.arguments.size(), 2U);
  EXPECT_EQ(call.arguments[0].from, From::kPart);
  EXPECT_EQ(call.spec.in[0].kind, CallField::Kind::kBytes);
  EXPECT_EQ(call.arguments[1].from, From::kValue);
  EXPECT_EQ(call.spec.in[1].kind, CallField::Kind::kInt64);
  ASSERT_EQ((*plan)->tensors.size(), 2U) << "what the function was given is delivered no more";
  EXPECT_EQ((*plan)->tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ((*plan)->tensors[1].name, "n") << "in the order of the text, as of its tuples";
  EXPECT_FALSE((*plan)->packs());
}

TEST(CallPlan, GivesPixelsWithChannelsLastWhateverTheBatchSays) {
  const auto plan = compile_call(
      "  - decode_image\n  - center_crop: [8, 16]\n"
      "  - python: {call: 'm:f', in: [image], out: {image: 'uint8[8,16,3]'}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->arrays.at(0).shape, (std::vector<std::int64_t>{8, 16, 3}));
  EXPECT_EQ((*plan)->calls.at(0).spec.in.at(0).shape, (std::vector<std::int64_t>{8, 16, 3}));
  ASSERT_EQ((*plan)->tasks.size(), 1U);
  EXPECT_EQ((*plan)->task_arrays.at(0), 0U);
}

TEST(CallPlan, BoundsWhatDiffersFromRowToRow) {
  const std::string stage =
      "  - python: {call: 'm:f', in: [image], out: {boxes: 'float32[-1,4]'}}\n";
  const auto plan = compile_call(stage, "batch: {size: 4, collate: {boxes: {max_bytes: 1KiB}}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->calls.at(0).spec.out.at(0).max_bytes, 1024U);
  const auto unbound = compile_call(stage, "batch: {size: 4}\n");
  ASSERT_FALSE(unbound);
  EXPECT_NE(unbound.error().message().find("the batch needs a bound"), std::string::npos);
}

TEST(CallPlan, KeepsTheArgumentsOfAFunctionAsJson) {
  const auto plan = compile_call(
      "  - python: {call: 'm:f', in: [image], out: {n: int64}, "
      "args: {holes: 3, p: 0.5, names: [a, '7'], deep: {on: true, none: null}}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->calls.at(0).spec.args,
            R"({"deep":{"none":null,"on":true},"holes":3,"names":["a","7"],"p":0.5})");
}

TEST(CallPlan, MarksArgumentsThatRowsNeedNotHave) {
  auto fields = testing::labelled_images();
  fields[0].optional = true;
  for (const std::string decode : {"", "  - decode_image\n  - center_crop: 8\n"}) {
    const auto plan =
        compile_call(decode + "  - python: {call: 'm:f', in: [image, label], out: {n: int64}}\n",
                     "batch: {size: 4, max_bytes: 1MiB}\n", fields);
    ASSERT_TRUE(plan) << plan.error().message();
    const PlannedCall& call = (*plan)->calls.at(0);
    EXPECT_TRUE(call.spec.in[0].optional && !call.spec.in[1].optional);
    EXPECT_TRUE(call.arguments[0].request && !call.arguments[1].request);
    EXPECT_EQ((*plan)->requests.size(), 1U);
  }
}

TEST(CallPlan, BoundsTheMemoryOfAProcess) {
  const auto max_rss = [](const std::string& more) {
    const auto plan =
        compile_call("  - python: {call: 'm:f', in: [image], out: {n: int64}" + more + "}\n");
    EXPECT_TRUE(plan) << plan.error().message();
    return (*plan)->calls.at(0).spec.max_rss;
  };
  EXPECT_EQ(max_rss(", max_rss: 2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(max_rss(", max_rss: 0"), 0U);
  EXPECT_EQ(max_rss(", max_rss: null"), 0U);
  EXPECT_EQ(max_rss(""), 0U);
}

TEST(CallPlan, LooksForAFileBesideTheText) {
  const auto plan = compile_call("  - python: {call: 'aug.py:f', in: [image], out: {n: int64}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->calls.at(0).spec.call, "/aug.py:f");
}

TEST(CallPlan, RefusesWhatCannotBeCalled) {
  const std::string in_out = "in: [image], out: {n: int64}";
  EXPECT_NE(refusal("  - python: {call: noname, " + in_out + "}\n")
                .find("expected MODULE:FUNCTION or FILE.py:FUNCTION"),
            std::string::npos);
  EXPECT_NE(refusal("  - python: {call: 'm:f', in: [picture], out: {n: int64}}\n")
                .find("test.yaml:6:5: 'python': in: there is no field 'picture'; there are "
                      "'image', 'label'"),
            std::string::npos)
      << refusal("  - python: {call: 'm:f', in: [picture], out: {n: int64}}\n");
  EXPECT_NE(refusal("  - python: {call: 'm:f', in: [image], out: {label: int64}}\n")
                .find("there is a field 'label' already"),
            std::string::npos);
  EXPECT_NE(refusal("  - python: {call: 'm:f', in: [image, image], out: {n: int64}}\n")
                .find("'image' stands twice"),
            std::string::npos);
  EXPECT_NE(refusal("  - python: {call: 'm:f', " + in_out + ", timeout: soon}\n")
                .find("expected a time from 1ms to 1440min, such as 60s, got 'soon'"),
            std::string::npos);
  EXPECT_NE(refusal("  - python: {call: 'm:f', " + in_out + ", max_rss: 2 gigs}\n")
                .find("max_rss: expected a size such as 64MiB, got '2 gigs'"),
            std::string::npos)
      << refusal("  - python: {call: 'm:f', " + in_out + ", max_rss: 2 gigs}\n");
  for (const char* const type :
       {"uint9[2]", "uint8[2", "uint8[0]", "uint8[-2]", "uint8[2,]", "list"})
    EXPECT_NE(
        refusal("  - python: {call: 'm:f', in: [image], out: {n: '" + std::string(type) + "'}}\n")
            .find("out.n: expected a type such as"),
        std::string::npos)
        << type;
}

TEST(CallPlan, RefusesToDecodeWhatComesBackAndIsNoBytes) {
  for (const char* const type : {"text", "uint8[-1]"}) {
    const std::string why = refusal("  - python: {call: 'm:f', in: [image], out: {image: '" +
                                    std::string(type) + "'}}\n  - decode_image\n");
    EXPECT_NE(why.find("and 'decode_image' works on bytes: declare it so"), std::string::npos)
        << why;
  }
}

TEST(CallPlan, LeavesWhatNoOpTakesUpAsItIsDeclared) {
  const auto plan = compile_call(
      "  - python: {call: 'm:f', in: [image], out: {image: 'uint8[8,6,3]', depth: 'float32[8,6]', "
      "mask: 'uint8[8,6,1]'}}\n  - center_crop: {size: 4, fields: [image]}\n"
      "  - normalize: {mean: 0.5, std: 0.5, fields: [image]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const Plan& made = **plan;
  ASSERT_EQ(made.tensors.size(), 4U);
  EXPECT_EQ(made.tensors[1].shape, (std::vector<std::int64_t>{3, 4, 4})) << "as the batch lies";
  EXPECT_EQ(made.tensors[1].dtype, DType::kFloat32);
  EXPECT_EQ(made.tensors[2].shape, (std::vector<std::int64_t>{8, 6}));
  EXPECT_EQ(made.tensors[3].shape, (std::vector<std::int64_t>{8, 6, 1}));
  ASSERT_EQ(made.tasks.size(), 1U);
  EXPECT_EQ(made.task_ops.at(0), "center_crop + normalize");
  EXPECT_EQ(made.tasks_end(0), 0U);
  EXPECT_EQ(made.tasks_end(1), 1U);
  EXPECT_EQ(made.image, nullptr) << "no cache keeps what a function made";
}

TEST(CallPlan, TellsWhichOpsAreDoneBehindACall) {
  const auto plan = compile_call(
      "  - decode_image\n"
      "  - python: {call: 'm:f', in: [image], out: {image: 'uint8[-1,-1,3]'}, concurrency: 2}\n"
      "  - random_resized_crop: 8\n  - normalize: {mean: 0.5, std: 0.5}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ExplainContext context;
  context.items = 8;
  const std::string text = explain(**plan, context);
  EXPECT_NE(text.find("  call    m:f(image) gives image uint8[-1,-1,3]   [2 processes]\n"
                      "    image    random_resized_crop + normalize\n"),
            std::string::npos)
      << text;
}

TEST(CallPlan, DrawsBehindACallAsItDoesWithoutOne) {
  const std::string flips = "  - random_horizontal_flip\n";
  const std::string call =
      "  - python: {call: 'm:f', in: [image], out: {image: 'uint8[-1,-1,3]'}}\n";
  const std::string crop = "  - center_crop: 8\n";
  const auto without = compile_call("  - decode_image\n" + flips + flips + crop);
  const auto with = compile_call("  - decode_image\n" + flips + call + flips + crop);
  ASSERT_TRUE(without) << without.error().message();
  ASSERT_TRUE(with) << with.error().message();
  ASSERT_EQ((*with)->tasks.size(), 2U);
  EXPECT_EQ((*with)->tasks[0]->steps()[0].draw_key, (*without)->tasks[0]->steps()[0].draw_key);
  EXPECT_EQ((*with)->tasks[1]->steps()[0].draw_key, (*without)->tasks[0]->steps()[1].draw_key);
}

TEST(CallPlan, RefusesOpsOnArraysOfAnotherForm) {
  const auto why = [](const std::string& type, const std::string& stage) {
    return refusal("  - python: {call: 'm:f', in: [image], out: {image: '" + type + "'}}\n  - " +
                   stage + "\n");
  };
  EXPECT_EQ(why("float32[8,8,3]", "resize: [4, 4]"),
            "test.yaml:7:5: the field 'image' comes back from 'python' as float32[8, 8, 3], and "
            "'resize' works on uint8 or uint16 of [height, width, channels] with 1 to 4 channels: "
            "declare it so, put it before that, or do the same in the function");
  for (const char* const type : {"uint8[3,8,8]", "uint8[8,8]", "uint8[2,8,8,3]", "int64[8,8,3]"})
    EXPECT_NE(why(type, "center_crop: {size: 4, fields: image}").find("works on uint8 or uint16"),
              std::string::npos)
        << type;
  EXPECT_NE(why("float32[8,8,3]", "normalize: {mean: 0.5, std: 0.5}").find("works on uint8"),
            std::string::npos);
  EXPECT_NE(why("text", "resize: {size: [4, 4], fields: image}").find("as text, and 'resize'"),
            std::string::npos);
}

TEST(CallPlan, RefusesOpsOnSamplesWithoutARate) {
  const auto why = [](const std::string& declared) {
    return refusal("  - python: {call: 'm:f', in: [image], out: {audio: " + declared +
                   "}}\n  - resample: {sample_rate: 8000}\n");
  };
  EXPECT_EQ(why("'float32[-1]'"),
            "test.yaml:7:5: the field 'audio' comes back from 'python' as float32[-1], and "
            "'resample' works on sound, which is declared as {type: 'float32[-1]', sample_rate: "
            "16000}: declare it so, put it before that, or do the same in the function");
  EXPECT_EQ(why("{type: 'float32[-1,2]', sample_rate: 16000}"),
            "test.yaml:6:5: stages[1].python: out.audio: sample_rate is of sound, which is "
            "float32[-1] or, of "
            "two channels, float32[2,-1], and this is float32[-1,2]");
  EXPECT_NE(why("{type: 'float32[-1]', sample_rate: 10}").find("1000 to 768000"), std::string::npos)
      << why("{type: 'float32[-1]', sample_rate: 10}");
}

TEST(CallPlan, RefusesAMaskThatWasMovedWithTheImageThatAFunctionWasGiven) {
  const std::string why = [] {
    const auto plan = compile_call(
        "  - decode_image\n  - decode_image: {field: mask, mode: index}\n"
        "  - random_resized_crop: 8\n"
        "  - python: {call: 'm:f', in: [image], out: {image: 'uint8[8,8,3]'}}\n"
        "  - random_horizontal_flip\n",
        "batch: {size: 4}\n", {{.name = "image"}, {.name = "mask", .index = 1}});
    return plan ? std::string("none") : plan.error().message();
  }();
  EXPECT_EQ(why,
            "test.yaml:9:5: one stage moves 'mask' and 'image', which 'python' gives back, and a "
            "stage before that has moved 'mask' already: give 'mask' to the function, too, or put "
            "these stages on one side of it");
}

// Of a dataset whose listing has a column.
Result<std::shared_ptr<const Plan>> compile_dataset(const std::string& source,
                                                    const std::string& rest) {
  spec::ParseOptions options;
  options.directory = "/texts";
  SPDLD_ASSIGN(spec::PipelineSpec spec,
               spec::parse_pipeline("pipeline: test\nsource:\n  " + source + "\n" + rest,
                                    "test.yaml", testing::ops(), options));
  using Kind = source::SourceField::Kind;
  return compile(std::move(spec), testing::ops(),
                 {{.name = "index", .kind = Kind::kValue, .index = 0},
                  {.name = "items", .kind = Kind::kValue, .index = 1},
                  {.name = "length", .kind = Kind::kValue, .index = 2}});
}

std::string dataset_refusal(const std::string& source, const std::string& rest) {
  const auto plan = compile_dataset(source, rest);
  return plan ? "none" : plan.error().message();
}

TEST(DatasetPlan, AsksForItemsByTheirIndexAndDeliversTheDeclaredFieldsAlone) {
  const auto plan = compile_dataset(
      "python: {call: 'data.py:Pets', args: {n: 3}, version: 2, concurrency: 5, "
      "fields: {picture: bytes, count: int64}}",
      "stages: [fetch, {decode_image: {field: picture}}, {resize: [8, 8]}]\nbatch: {size: 4}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const CallSpec& spec = (*plan)->calls.at(0).spec;
  EXPECT_TRUE(spec.is_dataset);
  EXPECT_EQ(spec.call, "/texts/data.py:Pets");
  EXPECT_EQ(spec.args, R"({"n":3})");
  EXPECT_EQ(spec.version, 2);
  EXPECT_EQ(spec.concurrency, 5);
  ASSERT_EQ((*plan)->calls[0].arguments.size(), 2U);
  EXPECT_EQ((*plan)->calls[0].arguments[0].from, From::kValue);
  EXPECT_TRUE((*plan)->requests.empty());
  EXPECT_EQ((*plan)->image, nullptr) << "a cache keeps what the daemon has fetched";
  EXPECT_EQ((*plan)->task_calls, (std::vector<std::size_t>{1}));
  ASSERT_EQ((*plan)->tensors.size(), 2U);
  EXPECT_EQ((*plan)->tensors[0].name, "picture");
  EXPECT_EQ((*plan)->tensors[1].name, "count");
}

TEST(DatasetPlan, TheProcessesAreThoseThatSaidHowManyItemsThereAre) {
  const auto plan = compile_dataset("python: {call: 'm:D', fields: {text: text, n: int64}}",
                                    "stages: [fetch]\nbatch: {size: 4, max_bytes: 1KiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->calls.at(0).spec, std::get<DatasetSpec>((*plan)->spec.source.items).call);
}

TEST(DatasetPlan, RefusesWhatIsForFilesAlone) {
  const std::string source = "python: {call: 'm:D', fields: {image: bytes}}";
  const std::string rest = "stages: [fetch]\nbatch: {size: 4, max_bytes: 1KiB}\n";
  EXPECT_NE(dataset_refusal(source, rest + "cache: {form: encoded, size: 1MiB}\n")
                .find("cache: nothing is read here"),
            std::string::npos)
      << dataset_refusal(source, rest + "cache: {form: encoded, size: 1MiB}\n");
  EXPECT_NE(dataset_refusal(source + "\n  windows: {seconds: 1}", rest)
                .find("source.windows: the items of a dataset of your own are no files"),
            std::string::npos)
      << dataset_refusal(source + "\n  windows: {seconds: 1}", rest);
  EXPECT_NE(dataset_refusal("python: {call: 'm:D', fields: {}}", rest)
                .find("test.yaml:3:11: source.python: fields: names at least one field"),
            std::string::npos)
      << dataset_refusal("python: {call: 'm:D', fields: {}}", rest);
  EXPECT_NE(dataset_refusal("python: {call: D, fields: {image: bytes}}", rest)
                .find("expected MODULE:FUNCTION or FILE.py:FUNCTION"),
            std::string::npos);
}

TEST(DatasetPlan, JsonThatComesBackIsRefused) {
  EXPECT_NE(dataset_refusal("python: {call: 'm:D', fields: {json: bytes}}",
                            "stages: [fetch, {decode_json: {values: {n: /n}}}]\n"
                            "batch: {size: 4, max_bytes: 1KiB}\n")
                .find("'decode_json' works on no such arrays"),
            std::string::npos);
}

TEST(CallPlan, DeclaresATypeAsItWasWritten) {
  for (const char* const type : {"uint8[224,224,3]", "float32[-1,4]", "int32[]", "int64", "text"}) {
    const auto field = parse_call_field("out.x", "x", type);
    ASSERT_TRUE(field) << field.error().message();
    EXPECT_EQ(declared_as(*field), type);
  }
}

}  // namespace
}  // namespace spdld::engine
