// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/explain.h"
#include "tests/support/pipelines.h"

namespace spdld::engine {
namespace {

using ::testing::AllOf;
using testing::compile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Plan, FusesDecodeCropFlipAndNormaliseIntoOneTask) {
  const auto plan = compile(
      "  - fetch\n  - decode_image\n  - random_resized_crop: {size: 32}\n"
      "  - random_horizontal_flip\n"
      "  - normalize: {mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->process.name,
            "decode_image + random_resized_crop + random_horizontal_flip + normalize");
  ASSERT_TRUE((*plan)->image);
  EXPECT_EQ((*plan)->image->geometry.size(), 2U);
  const TensorSpec& image = (*plan)->tensors[0];
  EXPECT_EQ(image.dtype, DType::kFloat32);
  EXPECT_THAT(image.shape, ElementsAre(3, 32, 32));
}

TEST(Plan, LaysImagesOutAsTheBatchSays) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 16]}\n",
                            "batch: {size: 2, layout: NHWC}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT((*plan)->tensors[0].shape, ElementsAre(8, 16, 3));
}

TEST(Plan, DeliversEncodedBytesWithoutADecodeStage) {
  const auto plan = compile("  - fetch\n", "batch: {size: 2, max_bytes: 1MiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_FALSE((*plan)->image);
  EXPECT_EQ((*plan)->tensors[0].kind, FieldKind::kBytes);
}

TEST(Plan, GivesOpsOfOneNameDrawsOfTheirOwn) {
  const auto plan = compile(
      "  - fetch\n  - decode_image\n  - random_horizontal_flip\n  - random_horizontal_flip\n"
      "  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const auto& steps = (*plan)->image->geometry;
  EXPECT_NE(steps[0].draw_key, steps[1].draw_key);
}

TEST(Plan, LeavesTheDrawsOfOthersAloneWhenAStageIsAdded) {
  const auto without = compile("  - fetch\n  - decode_image\n  - random_resized_crop: {size: 8}\n");
  const auto with = compile(
      "  - fetch\n  - decode_image\n  - random_horizontal_flip\n"
      "  - random_resized_crop: {size: 8}\n");
  ASSERT_TRUE(without && with);
  EXPECT_EQ((*without)->image->geometry[0].draw_key, (*with)->image->geometry[1].draw_key);
}

// Of a row in 8 bits and three channels.
constexpr std::uint64_t rgb(std::uint64_t width, std::uint64_t height) {
  return 3 * width * height;
}

TEST(Plan, KnowsTheMemoryOfARowWhoseSizesTheTextGives) {
  const auto known = [](const std::string& stages) {
    const auto plan = compile("  - fetch\n  - decode_image\n" + stages);
    EXPECT_TRUE(plan) << plan.error().message();
    return (*plan)->known_row();
  };
  EXPECT_EQ(known("  - resize: {size: [40, 30]}\n").bytes, rgb(40, 30));
  EXPECT_EQ(known("  - resize: {size: [60000, 50000]}\n").bytes, rgb(60000, 50000));
  // Of what is made on the way the largest pair counts, and the row.
  const Plan::KnownRow row = known(
      "  - resize: {size: [900, 800]}\n  - resize: {size: [70, 60]}\n"
      "  - resize: {size: [500, 400]}\n  - random_resized_crop: {size: [50, 40]}\n");
  EXPECT_EQ(row.bytes, rgb(900, 800) + rgb(70, 60) + rgb(50, 40));
  EXPECT_EQ(row.field, "image");
  EXPECT_EQ(row.ops, "decode_image + resize + resize + resize + random_resized_crop");
  // A crop of what is resized is part of the same pass.
  EXPECT_EQ(known("  - resize: {size: [900, 800]}\n  - center_crop: {size: [50, 40]}\n").bytes,
            rgb(50, 40));
  // What a crop makes of images of any size is not known.
  EXPECT_EQ(known("  - center_crop: {size: 9000}\n  - resize: {size: [50, 40]}\n").bytes,
            rgb(50, 40));
}

TEST(Plan, RefusesImagesThatMayDifferInSizeAndSaysWhatToAdd) {
  const auto plan = compile("  - fetch\n  - decode_image\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("may differ in size, and a batch needs one: add"));
  EXPECT_THAT(plan.error().message(), HasSubstr("center_crop"));
}

// With images of which some have shown these sizes; counts how often that is asked.
Result<std::shared_ptr<const Plan>> compile_of(const PictureSizes& sizes, const std::string& stages,
                                               int& asked,
                                               const std::string& batch = "batch: {size: 4}\n") {
  SPDLD_ASSIGN(spec::PipelineSpec spec,
               testing::parse("  - fetch\n  - decode_image\n" + stages, batch));
  return engine::compile(std::move(spec), testing::ops(), testing::labelled_images(),
                         [&](const std::string& field, std::size_t part, const DecodeImageOp& op) {
                           ++asked;
                           EXPECT_EQ(field, "image");
                           EXPECT_EQ(part, 0U);
                           EXPECT_EQ(op.channels(), 3);
                           return sizes;
                         });
}

TEST(Plan, StacksImagesThatHaveShownOneSize) {
  const PictureSizes one{.one = Size{40, 30}};
  int asked = 0;
  const auto plain = compile_of(one, "", asked);
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ((*plain)->tensors[0].kind, FieldKind::kDense);
  EXPECT_THAT((*plain)->tensors[0].shape, ElementsAre(3, 30, 40));
  const auto scaled =
      compile_of(one, "  - resize: {size: 60}\n  - random_horizontal_flip\n", asked);
  ASSERT_TRUE(scaled) << scaled.error().message();
  EXPECT_THAT((*scaled)->tensors[0].shape, ElementsAre(3, 60, 80));
  const auto stack =
      compile_of(one, "", asked, "batch: {size: 4, layout: NHWC, collate: {image: stack}}\n");
  ASSERT_TRUE(stack) << stack.error().message();
  EXPECT_THAT((*stack)->tensors[0].shape, ElementsAre(30, 40, 3));
  EXPECT_EQ(asked, 3);
}

TEST(Plan, AsksForNoSizesThatItDoesNotNeed) {
  int asked = 0;
  EXPECT_TRUE(compile_of({}, "  - resize: {size: [20, 20]}\n", asked));
  for (const std::string collate :
       {"{kind: ragged, max_bytes: 1MiB}", "{pad: 0, max_bytes: 1MiB}", "{max_bytes: 1MiB}"}) {
    const auto plan =
        compile_of({}, "", asked, "batch: {size: 4, collate: {image: " + collate + "}}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ((*plan)->tensors[0].kind, FieldKind::kRagged);
  }
  EXPECT_EQ(asked, 0);
}

TEST(Plan, NamesImagesThatDifferInSize) {
  int asked = 0;
  const auto plan = compile_of({.differing = "a has 4x3 pixels, b 3x4"}, "", asked);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr("the images that come out of 'decode_image' differ in size (a has 4x3 "
                        "pixels, b 3x4), and a batch needs one: add a resize"));
}

TEST(Plan, RefusesATransformOfWhatIsNotDecoded) {
  const auto plan = compile("  - fetch\n  - resize: {size: [8, 8]}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("test.yaml:6:"));
  EXPECT_THAT(plan.error().message(), HasSubstr("put 'decode_image' before it"));
}

TEST(Plan, RefusesToMovePixelsAfterTheyWereConverted) {
  const auto plan = compile(
      "  - fetch\n  - decode_image\n  - normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n"
      "  - resize: {size: [8, 8]}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("must come before 'normalize'"));
}

std::vector<std::string> doubts_of(const std::string& pixels) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n" + pixels);
  EXPECT_TRUE(plan) << plan.error().message();
  return plan ? (*plan)->doubts : std::vector<std::string>();
}

TEST(Plan, DoubtsMeansOfPixelsOf0To255WherePixelsAre0To1) {
  EXPECT_THAT(
      doubts_of("  - normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}\n"),
      ElementsAre("test.yaml:8:5: normalize: mean [123.7, 116.3, 103.5] and std [58.4, 57.12, "
                  "57.38] look like values for pixels of 0 to 255, and pixels are divided by 255 "
                  "before: for those, the same is mean [0.485, 0.456, 0.406] and std [0.229, "
                  "0.224, 0.225]"));
  EXPECT_THAT(doubts_of("  - to_dtype: {dtype: float32, scale: true}\n"
                        "  - normalize: {mean: [0, 0, 0], std: [255, 255, 255]}\n"),
              ElementsAre(HasSubstr("the same is mean [0, 0, 0] and std [1, 1, 1]")));
}

TEST(Plan, DoubtsNoMeansThatFitTheirPixels) {
  EXPECT_THAT(
      doubts_of("  - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n"),
      IsEmpty());
  EXPECT_THAT(doubts_of("  - normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n"), IsEmpty());
  EXPECT_THAT(doubts_of("  - to_dtype: {dtype: float32, scale: false}\n"
                        "  - normalize: {mean: [123.675, 116.28, 103.53], std: [58, 57, 57]}\n"),
              IsEmpty());
}

TEST(Plan, GivesTensorsTheChannelsAndDtypeOfTheMode) {
  const auto tensor_of = [](const std::string& decode, const std::string& pixels = "") {
    const auto plan = compile("  - fetch\n  - decode_image: " + decode +
                              "\n  - center_crop: {size: [8, 9]}\n" + pixels);
    EXPECT_TRUE(plan) << plan.error().message();
    return plan ? (*plan)->tensors[0] : TensorSpec();
  };
  EXPECT_EQ(tensor_of("{mode: gray16}").dtype, DType::kUInt16);
  EXPECT_THAT(tensor_of("{mode: gray16}").shape, ElementsAre(1, 8, 9));
  EXPECT_EQ(tensor_of("{mode: index}").dtype, DType::kUInt8);
  EXPECT_THAT(tensor_of("{mode: rgba}").shape, ElementsAre(4, 8, 9));
  const std::string unchanged = "{mode: unchanged, channels: 2, dtype: uint16}";
  EXPECT_THAT(tensor_of(unchanged).shape, ElementsAre(2, 8, 9));
  EXPECT_EQ(tensor_of(unchanged).dtype, DType::kUInt16);
  EXPECT_EQ(tensor_of(unchanged, "  - to_dtype: {dtype: uint16}\n").dtype, DType::kUInt16);
  EXPECT_EQ(tensor_of(unchanged, "  - to_dtype: {dtype: float32}\n").dtype, DType::kFloat32);
}

TEST(Plan, LeavesNumbersOfClassesAsTheyAre) {
  const std::string stages =
      "  - fetch\n  - decode_image: {mode: index}\n  - center_crop: {size: [8, 8]}\n";
  for (const std::string op :
       {"normalize: {mean: 0.5, std: 0.5}", "to_dtype: {dtype: float32, scale: true}"}) {
    const auto changed = compile(stages + "  - " + op + "\n");
    ASSERT_FALSE(changed);
    EXPECT_EQ(changed.error().message(),
              "test.yaml:8:5: '" + op.substr(0, op.find(':')) +
                  "' would make other numbers of those of classes, which 'decode_image' gives with "
                  "'mode: index': remove it, or name other fields");
  }
  const auto cast = compile(stages + "  - to_dtype: {dtype: float32}\n");
  ASSERT_TRUE(cast) << cast.error().message();
  EXPECT_EQ((*cast)->tensors[0].dtype, DType::kFloat32);
}

TEST(Plan, RefusesAModeWithoutWhatItNeeds) {
  const auto plan = compile("  - fetch\n  - decode_image: {mode: unchanged}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("test.yaml:6:5: "));
  EXPECT_THAT(plan.error().message(), HasSubstr("'mode: unchanged' needs channels and dtype"));
}

TEST(Plan, RefusesToDecodeAFieldThatIsNoImage) {
  const std::vector<source::SourceField> audio{{.name = "audio"}};
  const auto plan = testing::compile("  - fetch\n  - decode_image\n", "batch: {size: 2}\n", audio);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr("'decode_image' decodes the field 'image', and the source gives 'audio': "
                        "write 'decode_image: {field: NAME}'"));
}

std::vector<source::SourceField> boxed_images() {
  using Kind = source::SourceField::Kind;
  return {{.name = "image"},
          {.name = "other", .index = 1},
          {.name = "labels", .kind = Kind::kValue, .type = ValueType::kInt64List, .max_bytes = 80},
          {.name = "boxes",
           .kind = Kind::kValue,
           .index = 1,
           .type = ValueType::kFloat64List,
           .max_bytes = 320}};
}

Result<std::shared_ptr<const Plan>> boxed(const std::string& stages) {
  return compile("  - fetch\n  - decode_image\n" + stages, "batch: {size: 2, max_bytes: 1MiB}\n",
                 boxed_images());
}

TEST(Plan, MovesBoxesAfterTheirImageWithItsDraws) {
  const auto plan =
      boxed("  - bounding_boxes: {with: labels}\n  - random_resized_crop: {size: 8}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_EQ((*plan)->tasks.size(), 2U);
  const FieldTask& image = *(*plan)->tasks[0];
  const FieldTask& boxes = *(*plan)->tasks[1];
  EXPECT_TRUE(boxes.needs_canvas() && !image.needs_canvas());
  ASSERT_EQ(boxes.steps().size(), 1U);
  EXPECT_EQ(boxes.steps()[0].draw_key, image.steps()[0].draw_key);
  std::vector<std::string> names;
  for (const TensorSpec& tensor : (*plan)->tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("image", "other", "boxes", "labels"));
  EXPECT_EQ((*plan)->tensors[2].max_row_bytes, 160U);
  EXPECT_EQ((*plan)->tensors[3].max_row_bytes, 80U);
  EXPECT_THAT((*plan)->doubts, IsEmpty());
}

TEST(Plan, RefusesBoxesThatAreMovedWithoutTheirImage) {
  const auto plan = boxed(
      "  - decode_image: {field: other}\n  - bounding_boxes\n  - resize: {size: [8, 8]}\n"
      "  - random_horizontal_flip: {fields: [other, boxes]}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("'boxes' lies in the pixels of an image, 'image', "
                                                "and one of its stages does not move that"));
}

TEST(Plan, DoubtsBoxesThatStayWhereTheirImageIsMoved) {
  const auto plan = boxed("  - bounding_boxes\n  - resize: {size: [8, 8], fields: image}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT((*plan)->doubts, ElementsAre(HasSubstr("leave it where it was")));
}

TEST(Plan, NumbersValuesOfJsonBehindTheSources) {
  const auto plan = compile(
      "  - fetch\n  - decode_json: {field: image, values: {a: /a, b: {pointer: /b, type: bool}}}\n",
      "batch: {size: 2, max_bytes: 1MiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->first_made_value, 1U);
  EXPECT_EQ((*plan)->made_values.size(), 2U);
  ASSERT_EQ((*plan)->tensors.size(), 3U);
  EXPECT_EQ((*plan)->tensors[0].name, "a");
  EXPECT_TRUE((*plan)->tensors[0].text);
  EXPECT_EQ((*plan)->tensors[1].dtype, DType::kBool);
  EXPECT_EQ((*plan)->sources[1].index, 2U);
  EXPECT_EQ((*plan)->tensors[2].name, "label");
}

TEST(Plan, AsksForABoundOfArraysThatDiffer) {
  const auto plan =
      compile("  - fetch\n  - decode_npy: {field: image, dtype: float32, shape: [-1, -1]}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr("so the batch needs a bound: write 'batch: "
                        "{collate: {image: {max_bytes: 4KiB}}}' with what one may take"));
}

TEST(Plan, ExplainsWhatIsFusedAndWhetherItFits) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan);
  const std::string text = explain(**plan, {.items = 100,
                                            .classes = 2,
                                            .num_shards = 2,
                                            .credits = 4,
                                            .cpu_threads = 3,
                                            .arena_bytes = 1000,
                                            .arena_used = 500,
                                            .arena_budget = 1000,
                                            .arena_kind = "memfd"});
  EXPECT_THAT(text, HasSubstr("decode_image + resize"));
  EXPECT_THAT(text, HasSubstr("DOES NOT FIT: 1.5 KiB more are needed"));
}

TEST(Plan, ExplainsForHowManyRowsAtOnceThereAreThreads) {
  const auto plan = compile(
      "  - fetch: {concurrency: 300}\n  - decode_image: {concurrency: 4}\n"
      "  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ExplainContext context{.items = 4, .cpu_threads = 3, .io_threads = 64, .arena_kind = "memfd"};
  EXPECT_THAT(explain(**plan, context),
              AllOf(HasSubstr("at most 300 at once, 60 on one device: executor.io_threads]"),
                    HasSubstr("at most 4 at once, 3: executor.cpu_threads]")));
  const PlanFacts facts = plan_facts(**plan, context);
  EXPECT_EQ(facts.tasks[0].effective, 60U);
  EXPECT_EQ(facts.tasks[1].effective, 3U);
  context.io_threads = 1024;
  EXPECT_THAT(explain(**plan, context), HasSubstr("at most 300 at once]"));
}

TEST(Plan, DoubtsListsNamedBoxesThatNoStageTakes) {
  const auto left = boxed("  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(left) << left.error().message();
  ASSERT_EQ((*left)->doubts.size(), 1U);
  EXPECT_THAT((*left)->doubts[0], HasSubstr("add 'bounding_boxes: {field: boxes}' behind"));
}

TEST(Plan, ExplainsHowEachFieldIsMade) {
  const auto plan = boxed(
      "  - bounding_boxes: {with: labels}\n  - random_resized_crop: {size: 8}\n"
      "  - normalize: {mean: 0.5, std: 0.2}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT(explain(**plan, {.items = 4, .cpu_threads = 1, .arena_kind = "memfd"}),
              HasSubstr("\n    image    decode_image + random_resized_crop + normalize\n"
                        "    boxes    bounding_boxes + random_resized_crop\n"));
}

TEST(Plan, ExplainsWhatLiesOnAGpu) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan);
  ExplainContext context{.items = 4,
                         .cpu_threads = 1,
                         .arena_kind = "memfd",
                         .on_gpu = PlanFacts::OnGpu{.slots = 5,
                                                    .slot_bytes = 2'000'000,
                                                    .host_bytes = 640,
                                                    .fields = {"image", "mask"},
                                                    .budget_bytes = 10'485'760}};
  EXPECT_THAT(
      explain(**plan, context),
      HasSubstr(
          "gpu      10.0 MiB for each consumer, on its GPU: 5 slots of 1.9 MiB, credits and one on "
          "its way; cuda.budget 10.0 MiB\n"
          "         there: image, mask; in main memory beside it: the rest, 640 B a slot; a loader "
          "without one is refused\n"
          "         the daemon's context takes about 0.5 GiB of each GPU that is delivered to\n"));
  EXPECT_TRUE(plan_facts(**plan, context).on_gpu->fits());
  context.on_gpu->budget_bytes = 10'485'759;
  context.on_gpu->or_host = true;
  EXPECT_THAT(explain(**plan, context),
              AllOf(HasSubstr("DOES NOT FIT: 1 B more are needed; raise cuda.budget"),
                    HasSubstr("where that cannot be, batches lie in main memory")));
  context.on_gpu->fields.clear();
  EXPECT_THAT(explain(**plan, context), HasSubstr("gpu      nothing: no field is larger than"));
}

TEST(Plan, TellsProgramsWhatItTellsPeople) {
  const auto plan = compile(
      "  - fetch: {concurrency: 5}\n  - decode_image\n  - resize: {size: [16, 16]}\n"
      "  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ExplainContext context{.items = 101,
                         .classes = 2,
                         .num_shards = 2,
                         .credits = 4,
                         .cpu_threads = 3,
                         .arena_bytes = 1000,
                         .arena_used = 500,
                         .arena_budget = 1000,
                         .arena_kind = "memfd"};
  const PlanFacts facts = plan_facts(**plan, context);
  EXPECT_EQ(facts.pipeline, "test");
  EXPECT_EQ(facts.items, 101u);
  ASSERT_EQ(facts.tasks.size(), 2u);
  EXPECT_EQ(facts.tasks[0].stages, "fetch");
  EXPECT_EQ(facts.tasks[0].pool, PlanFacts::Task::Pool::kIo);
  EXPECT_EQ(facts.tasks[0].concurrency, 5u);
  EXPECT_EQ(facts.tasks[1].stages, "decode_image + resize + resize");
  EXPECT_EQ(facts.tasks[1].concurrency, 3u) << "as many as there are workers";
  ASSERT_TRUE(facts.image);
  EXPECT_EQ(facts.image->resamples, 2u);
  EXPECT_EQ(facts.batch_rows, 4u);
  EXPECT_EQ(facts.slot_bytes, (*plan)->layout.slot_bytes());
  EXPECT_EQ(facts.tensors, (*plan)->tensors);
  EXPECT_EQ(facts.steps_per_epoch, 12u);
  EXPECT_EQ(facts.needed_bytes, 2000u);
  EXPECT_EQ(facts.missing_bytes, 1500u);
  EXPECT_FALSE(facts.cache);
  context.arena_budget = 2500;
  EXPECT_EQ(plan_facts(**plan, context).missing_bytes, 0u);
}

TEST(Plan, TellsProgramsWhatACacheWouldSave) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n",
                            "batch: {size: 4}\ncache: {size: 1MiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  CacheEstimate estimate;
  ExplainContext context{.items = 100, .cpu_threads = 3, .arena_kind = "memfd", .cache = estimate};
  const auto unknown = plan_facts(**plan, context).cache;
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->form, "decoded");
  EXPECT_EQ(unknown->limit_bytes, 1u << 20);
  EXPECT_EQ(unknown->probed_items, 0u);
  EXPECT_FALSE(unknown->payback_epochs);
  estimate.items = 100;
  estimate.probed = 16;
  estimate.item_bytes = 2000;
  estimate.held = 50;
  estimate.without_ns = 10'000;
  estimate.hit_ns = 2'000;
  estimate.fill_ns = 16'000;
  context.cache = estimate;
  const auto known = plan_facts(**plan, context).cache;
  ASSERT_TRUE(known);
  EXPECT_EQ(known->held_items, 50u);
  EXPECT_DOUBLE_EQ(known->spared_us, 10);
  EXPECT_DOUBLE_EQ(known->hit_us, 2);
  EXPECT_DOUBLE_EQ(known->saved_us, 4);
  EXPECT_DOUBLE_EQ(known->payback_epochs.value_or(0), 2);
  EXPECT_TRUE(known->used);
}

TEST(Plan, ExplainsWhatACacheWouldHoldAndWhyItIsNotUsed) {
  const auto plan = compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n",
                            "batch: {size: 4}\ncache: {size: 1MiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ExplainContext context{.items = 100, .cpu_threads = 3, .arena_kind = "memfd"};
  EXPECT_THAT(explain(**plan, context), Not(HasSubstr("cache    ")));
  CacheEstimate estimate;
  estimate.items = 100;
  estimate.probed = 16;
  estimate.item_bytes = 2 << 20;
  estimate.used = false;
  estimate.why_not = "raise cache.size";
  context.cache = estimate;
  EXPECT_THAT(
      explain(**plan, context),
      HasSubstr("cache    decoded, ram, 1.0 MiB: about 2.0 MiB an item, holds 0 of 100 items "
                "(0.0 %)\n         NOT USED: raise cache.size\n"));
}

TEST(Plan, RefusesToKeepPixelsWhereNothingIsDecoded) {
  const auto plan =
      compile("  - fetch\n", "batch: {size: 2, max_bytes: 1MiB}\ncache: {size: 1MiB}\n");
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message(),
            "test.yaml:7:8: cache: nothing is decoded here: write 'form: encoded', or add a "
            "'decode_image' stage");
}

TEST(Plan, SaysThatDecodedSoundIsNotKept) {
  const auto plan = compile("  - fetch\n  - decode_audio: {field: image, sample_rate: 16000}\n",
                            "batch: {size: 2, max_bytes: 1MiB}\ncache: {size: 1MiB}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr("cache: decoded images can be kept, and 'image' is sound: write 'form: "
                        "encoded', which keeps the bytes as they were fetched"));
}

TEST(Plan, NamesTheOpOnSoundWhereOneOnImagesStands) {
  for (const char* const fields : {"", ", fields: image"}) {
    const auto plan = compile(std::string("  - fetch\n  - decode_audio: {field: image}\n"
                                          "  - normalize: {mean: 0, std: 1") +
                              fields + "}\n");
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message(),
                HasSubstr("'normalize' works on images, and the field 'image' is sound: write "
                          "'normalize_audio'"));
  }
  const auto moved =
      compile("  - fetch\n  - decode_audio: {field: image}\n  - center_crop: {size: 8}\n");
  ASSERT_FALSE(moved);
  EXPECT_THAT(moved.error().message(), HasSubstr("the field 'image' is sound: leave it out"));
}

TEST(Plan, SuggestsABoundThatSoundFitsInto) {
  const auto plan = compile("  - fetch\n  - decode_audio: {field: image}\n");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("{collate: {image: {max_bytes: 16MiB}}}"));
}

TEST(Plan, NamesTheLimitOfSoundThatMakesItsBatchesTooLarge) {
  const std::vector<source::SourceField> audio{{.name = "audio"}};
  const std::string batch = "batch: {size: 8, collate: {audio: {pad: 0}}}\n";
  const auto plan =
      compile("  - fetch\n  - decode_audio: {sample_rate: 16000, channels: 1}\n", batch, audio);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr(": lower decode_audio.max_seconds, which that follows from, or set "
                        "batch.max_bytes"));
  EXPECT_TRUE(
      compile("  - fetch\n  - decode_audio: {sample_rate: 16000, channels: 1, max_seconds: 60}\n",
              batch, audio));
}

TEST(Plan, KeepsThePaddingWhereItSuggestsABound) {
  const std::vector<source::SourceField> audio{{.name = "audio"}};
  const auto told = [&](const std::string& collate) {
    const auto plan = compile("  - fetch\n  - decode_audio\n",
                              "batch: {size: 2, collate: {audio: " + collate + "}}\n", audio);
    EXPECT_FALSE(plan);
    return plan ? "" : plan.error().message();
  };
  EXPECT_THAT(told("{pad: 0}"), HasSubstr("{collate: {audio: {pad: 0, max_bytes: 16MiB}}}"));
  EXPECT_THAT(told("{pad: -0.5, multiple_of: 8}"),
              HasSubstr("{audio: {pad: -0.5, multiple_of: 8, max_bytes: 16MiB}}"));
  EXPECT_THAT(told("ragged"), HasSubstr("{audio: {kind: ragged, max_bytes: 16MiB}}"));
}

// A field of this name that is clips of this kind.
std::vector<source::SourceField> clips(const std::string& name, StreamInfo::Kind kind) {
  return {{.name = name, .clip = ClipShape{.kind = kind, .frames = 4}}};
}

std::string refusal(const std::string& stages, const std::vector<source::SourceField>& fields) {
  const auto plan = compile(stages, "batch: {size: 2, max_bytes: 1MiB}\n", fields);
  EXPECT_FALSE(plan);
  return plan ? "" : plan.error().message();
}

TEST(Plan, AsksForADecoderOfClips) {
  using Kind = StreamInfo::Kind;
  EXPECT_EQ(refusal("  - fetch\n", clips("video", Kind::kVideo)),
            "pipeline 'test': the field 'video' is clips of encoded video: put 'decode_video' "
            "after 'fetch'");
  EXPECT_THAT(refusal("  - fetch\n", clips("film", Kind::kVideo)),
              HasSubstr("put 'decode_video: {field: film}' after 'fetch'"));
  EXPECT_THAT(refusal("  - fetch\n", clips("audio", Kind::kAudio)),
              HasSubstr("is clips of encoded sound: put 'decode_audio' after 'fetch'"));
  EXPECT_THAT(refusal("  - fetch\n", clips("sound", Kind::kAudio)),
              HasSubstr("put 'decode_audio: {field: sound}' after 'fetch'"));
}

TEST(Plan, RefusesADecoderThatDoesNotFitItsClips) {
  using Kind = StreamInfo::Kind;
  EXPECT_THAT(refusal("  - fetch\n  - decode_image: {field: v}\n", clips("v", Kind::kVideo)),
              HasSubstr("'v' is clips of video, so use 'decode_video: {field: v}'"));
  EXPECT_THAT(refusal("  - fetch\n  - decode_video: {field: a}\n", clips("a", Kind::kAudio)),
              HasSubstr("'a' is clips of sound, so use 'decode_audio: {field: a}'"));
}

TEST(Plan, AsksForDecodedClipsBeforeTheyAreResized) {
  for (const std::string fields : {"", ", fields: video"}) {
    EXPECT_THAT(refusal("  - fetch\n  - resize: {size: [8, 8]" + fields + "}\n  - decode_video\n",
                        clips("video", StreamInfo::Kind::kVideo)),
                HasSubstr("'resize' works on decoded clips: put 'decode_video"));
  }
}

TEST(Plan, TellsRowsOfAnItemApartByTheirPart) {
  const auto plan =
      compile("  - fetch\n", "repeat: {rows: 2}\nbatch: {size: 4, max_bytes: 1KiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_EQ((*plan)->tensors.size(), 3U);
  EXPECT_EQ((*plan)->tensors[2].name, "part");
  EXPECT_EQ((*plan)->tensors[2].dtype, DType::kInt64);
  EXPECT_EQ((*plan)->repetition_value, (*plan)->sources[2].index);
  const ExplainContext context{.items = 5, .cpu_threads = 1, .arena_kind = "memfd"};
  EXPECT_THAT(explain(**plan, context),
              AllOf(HasSubstr("source   5 items of 2 rows each; order: as listed; the rows of an "
                              "item lie in one batch\n"),
                    HasSubstr("epoch    2 steps on 1 shard; 2 rows left out\n")));
  EXPECT_THAT(no_step_text(**plan, 1, 1),
              HasSubstr("the 1 item of 2 rows each do not fill a step of 4 rows on 1 shard"));
  EXPECT_EQ(no_step_text(**plan, 2, 1), "");
  const auto apart = compile(
      "  - fetch\n", "repeat: {rows: 3, adjacent: false}\nbatch: {size: 4, max_bytes: 1KiB}\n");
  ASSERT_TRUE(apart) << apart.error().message();
  EXPECT_THAT(explain(**apart, context), HasSubstr("as listed; all rows shuffled alike\n"));
}

TEST(Plan, RefusesAFieldOfTheSourceThatIsNamedPart) {
  const std::vector<source::SourceField> fields{
      {.name = "image"}, {.name = "part", .kind = source::SourceField::Kind::kValue}};
  const std::string batch = "batch: {size: 4, max_bytes: 1KiB}\n";
  EXPECT_TRUE(compile("  - fetch\n", batch, fields));
  const auto plan = compile("  - fetch\n", "repeat: {rows: 2}\n" + batch, fields);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(),
              HasSubstr("test.yaml:6:9: repeat: the source has a field 'part' already"));
}

TEST(Plan, TellsOfItemsThatFillNoStep) {
  const auto plan = compile("  - fetch\n", "batch: {size: 8, max_bytes: 1MiB}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(no_step_text(**plan, 7, 1),
            "the 7 items do not fill a step of 8 rows on 1 shard: lower batch.size, or set 'batch: "
            "{last: pad}'");
  EXPECT_EQ(no_step_text(**plan, 8, 1), "");
}

TEST(Plan, SpellsOutWhatTheDecodedPixelsDependOn) {
  const auto plan = compile(
      "  - fetch\n  - decode_image: {concurrency: 2}\n  - resize: {size: 8}\n"
      "  - center_crop: {size: 8}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->image->decode_key,
            "decode_image exif=true max_pixels=178956970 max_scans=100 mode=rgb");
}

}  // namespace
}  // namespace spdld::engine
