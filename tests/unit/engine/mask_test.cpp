// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "tests/support/pipelines.h"
#include "tests/unit/media/format/png_maker.h"

namespace spdld::engine {
namespace {

using media::test::make_png;
using media::test::PngRecipe;
using testing::compile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr const char* kDecodeBoth =
    "  - fetch\n  - decode_image\n  - decode_image: {field: mask, mode: index}\n";

const std::vector<source::SourceField>& image_and_mask() {
  static const std::vector<source::SourceField> fields{{.name = "image"},
                                                       {.name = "mask", .index = 1}};
  return fields;
}

// As image_and_mask(), the mask first.
const std::vector<source::SourceField>& mask_and_image() {
  static const std::vector<source::SourceField> fields{{.name = "mask"},
                                                       {.name = "image", .index = 1}};
  return fields;
}

std::shared_ptr<const Plan> plan_of(
    const std::string& stages, const std::vector<source::SourceField>& fields = image_and_mask(),
    const std::string& layout = "NCHW") {
  auto plan = compile(kDecodeBoth + stages, "batch: {size: 2, layout: " + layout + "}\n", fields);
  EXPECT_TRUE(plan) << plan.error().message();
  return plan ? *plan : nullptr;
}

std::string error_of(const std::string& stages) {
  const auto plan = compile(kDecodeBoth + stages, "", image_and_mask());
  EXPECT_FALSE(plan);
  return plan ? "" : plan.error().message();
}

PngRecipe mask_recipe(int width, int height) {
  return {.width = width, .height = height, .color_type = 0, .bit_depth = 4, .seed = 5};
}

// A sample of parts that the test brings.
class Parts final : public SampleInput {
 public:
  Parts(const Plan& plan, std::vector<Bytes> parts) : plan_(plan), parts_(std::move(parts)) {
    key = 77;
  }
  std::span<const std::byte> part(std::size_t request) const override {
    return parts_[plan_.requests[request].part];
  }
  Value value(std::size_t) const override { return std::int64_t{0}; }
  void set_value(std::size_t, const Value&) override {}

 private:
  const Plan& plan_;
  std::vector<Bytes> parts_;
};

struct Made {
  Status status;
  std::vector<Bytes> rows;  // of each tensor

  const Bytes& row(const Plan& plan, const std::string& tensor) const {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i].name == tensor) return rows[i];
    }
    ADD_FAILURE() << "no tensor " << tensor;
    return rows.front();
  }
};

// A row, by the plan's tasks one after the other.
Made make(const Plan& plan, std::vector<Bytes> parts) {
  Parts sample(plan, std::move(parts));
  Made made;
  for (const TensorSpec& tensor : plan.tensors) {
    std::uint64_t bytes = wire::dtype_bytes(tensor.dtype);
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
    made.rows.emplace_back(bytes);
  }
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    const std::size_t tensor = plan.task_tensors[i];
    RowOutput out(plan.tensors[tensor], made.rows[tensor].data());
    const auto wants = plan.tasks[i]->make_worker()->run(sample, {&out, 1}, 1 << 26);
    if (!wants) {
      made.status = wants.error();
      return made;
    }
    EXPECT_EQ(*wants, 0U);
  }
  return made;
}

Bytes image(int width, int height) { return make_png({.width = width, .height = height}); }

TEST(Mask, IsResizedByNearestWhateverTheOpNames) {
  for (const std::string op : {"resize", "random_resized_crop"}) {
    const std::vector<Bytes> parts{image(60, 45), make_png(mask_recipe(60, 45))};
    const std::string resize = "  - " + op + ": {size: [23, 31], interpolation: ";
    const auto smooth = plan_of(resize + "bicubic}\n");
    const auto nearest = plan_of(resize + "nearest}\n");
    const Made by_smooth = make(*smooth, parts);
    const Made by_nearest = make(*nearest, parts);
    ASSERT_TRUE(by_smooth.status.ok()) << by_smooth.status.message();
    EXPECT_EQ(by_smooth.row(*smooth, "mask"), by_nearest.row(*nearest, "mask")) << op;
    EXPECT_NE(by_smooth.row(*smooth, "image"), by_nearest.row(*nearest, "image")) << op;
  }
}

TEST(Mask, HoldsNumbersOfTheFileAlone) {
  // A resize after a flip, which nearest does not commute with, and a second resize.
  const auto plan = plan_of(
      "  - random_horizontal_flip: {p: 1.0}\n  - resize: {size: [30, 41]}\n"
      "  - random_resized_crop: {size: [17, 19]}\n");
  const PngRecipe recipe = mask_recipe(60, 45);
  const Made made = make(*plan, {image(60, 45), make_png(recipe)});
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  for (const std::byte number : made.row(*plan, "mask")) EXPECT_LT(number, std::byte{16});
  // Nine pixels in ten of such noise would be others if neighbours were mixed.
  const auto& spec = plan->tensors[1];
  EXPECT_THAT(spec.shape, ElementsAre(1, 17, 19));
}

TEST(Mask, ShowsWhatItsImageShows) {
  // The image is its own mask: gray of one channel, in both modes the same bytes.
  for (const auto* fields : {&image_and_mask(), &mask_and_image()}) {
    const auto plan = compile(
        "  - fetch\n  - decode_image: {mode: gray}\n  - decode_image: {field: mask, mode: index}\n"
        "  - random_horizontal_flip\n"
        "  - random_resized_crop: {size: [17, 19], interpolation: nearest}\n",
        "", *fields);
    ASSERT_TRUE(plan) << plan.error().message();
    const Bytes file = make_png({.width = 60, .height = 45, .color_type = 0, .seed = 3});
    const Made made = make(**plan, {file, file});
    ASSERT_TRUE(made.status.ok()) << made.status.message();
    EXPECT_EQ(made.row(**plan, "mask"), made.row(**plan, "image"));
  }
}

TEST(Mask, OfAnotherSizeThanItsImageIsAnErrorThatNamesBoth) {
  for (const bool mask_first : {false, true}) {
    const auto plan = plan_of("  - random_resized_crop: {size: [17, 19]}\n",
                              mask_first ? mask_and_image() : image_and_mask());
    std::vector<Bytes> parts{image(60, 45), make_png(mask_recipe(60, 44))};
    if (mask_first) std::swap(parts[0], parts[1]);
    const Made made = make(*plan, parts);
    EXPECT_EQ(made.status.code(), Code::kDataLoss);
    EXPECT_EQ(made.status.message(),
              "its field 'mask' has 60x44 pixels, and the image that it belongs to 60x45: what "
              "shares crops and flips must be of one size");
  }
}

TEST(Mask, OfAnotherSizeIsFineWhereNoDrawIsShared) {
  const auto plan = plan_of(
      "  - resize: {size: [20, 30], fields: image}\n  - resize: {size: [10, 15], fields: mask}\n");
  const Made made = make(*plan, {image(60, 45), make_png(mask_recipe(20, 15))});
  EXPECT_TRUE(made.status.ok()) << made.status.message();
}

TEST(Mask, KeepsItsNumbersBesideAnImageThatIsNormalised) {
  const auto plan = plan_of("  - resize: {size: [20, 30]}\n  - normalize: {mean: 0.5, std: 0.5}\n");
  EXPECT_EQ(plan->tensors[0].dtype, DType::kFloat32);
  EXPECT_EQ(plan->tensors[1].dtype, DType::kUInt8);
}

TEST(Mask, IsNotNormalisedEvenIfNamed) {
  const std::string message = error_of(
      "  - resize: {size: [20, 30]}\n  - normalize: {mean: 0.5, std: 0.5, fields: [image, "
      "mask]}\n");
  EXPECT_EQ(message,
            "test.yaml:9:5: 'normalize' would make other numbers of those of classes, which "
            "'decode_image' gives with 'mode: index': remove it, or name other fields");
}

TEST(Mask, ThatIsTheFirstFieldLeavesTheCacheToTheImage) {
  const auto plan = plan_of("  - resize: {size: [20, 30]}\n", mask_and_image());
  ASSERT_NE(plan->image, nullptr);
  EXPECT_EQ(plan->image->tensors().front().name, "image");
  EXPECT_THAT(plan->tensors[0].name, "mask");  // in the source's order all the same
}

TEST(Mask, AloneIsACanvasOfItsOwn) {
  const auto plan = compile(
      "  - fetch\n  - decode_image: {mode: index}\n"
      "  - random_resized_crop: {size: [17, 19]}\n"
      "  - to_dtype: {dtype: float32}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->tensors[0].dtype, DType::kFloat32);
  EXPECT_TRUE((*plan)->image->is_canvas);
}

TEST(Mask, OfSixteenBitsIsAnErrorOfTheItem) {
  const auto plan = plan_of("  - resize: {size: [20, 30]}\n");
  const Made made = make(
      *plan,
      {image(60, 45), make_png({.width = 60, .height = 45, .color_type = 0, .bit_depth = 16})});
  EXPECT_EQ(made.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(
      made.status.message(),
      HasSubstr("'mode: index' reads numbers of up to 8 bits, and with 'dtype: uint16' of up "
                "to 16, and this image is gray, 16"));
}

}  // namespace
}  // namespace spdld::engine
