// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  EXPECT_EQ((*plan)->tensors[0].name, "n");
  EXPECT_EQ((*plan)->tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
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
  for (const char* const type :
       {"uint9[2]", "uint8[2", "uint8[0]", "uint8[-2]", "uint8[2,]", "list"})
    EXPECT_NE(
        refusal("  - python: {call: 'm:f', in: [image], out: {n: '" + std::string(type) + "'}}\n")
            .find("out.n: expected a type such as"),
        std::string::npos)
        << type;
  EXPECT_NE(refusal("  - python: {call: 'm:f', in: [image], out: {image: 'uint8[8,8,3]'}}\n"
                    "  - center_crop: 4\n")
                .find("works on"),
            std::string::npos);
}

TEST(CallPlan, RefusesToDecodeWhatAFunctionGaveBack) {
  const std::string why =
      refusal("  - python: {call: 'm:f', in: [image], out: {image: bytes}}\n  - decode_image\n");
  EXPECT_NE(why.find("the field 'image' comes back from 'python', and 'decode_image' works on no "
                     "such arrays"),
            std::string::npos)
      << why;
}

TEST(CallPlan, DeclaresATypeAsItWasWritten) {
  for (const char* const type : {"uint8[224,224,3]", "float32[-1,4]", "int32[]", "int64", "text"}) {
    const auto field = parse_call_field("x", type);
    ASSERT_TRUE(field) << field.error().message();
    EXPECT_EQ(declared_as(*field), type);
  }
}

}  // namespace
}  // namespace spdld::engine
