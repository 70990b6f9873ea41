// SPDX-License-Identifier: Apache-2.0
#include "transform/image/box_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/unit/transform/made_op.h"

namespace spdld::transform {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Values = std::map<std::string, ParamValue>;

// An image that stages have been done to, as the table sees it.
class FakeImage final : public FieldChain {
 public:
  std::string_view noun() const override { return "images"; }
  bool has_geometry() const override { return true; }
  bool is_index() const override { return false; }
  std::string_view moved_by() const override { return moved_by_; }
  using FieldChain::append;
  Status append(const GeometryOp&, const StageKey& key) override {
    moved_by_ = key.name;
    return {};
  }
  Result<std::unique_ptr<FieldTask>> finish(const std::string&) override {
    return error(Code::kInternal, "never run");
  }

 private:
  std::string moved_by_;
};

class Sample final : public SampleInput {
 public:
  std::span<const std::byte> part(std::size_t) const override { return {}; }
  Value value(std::size_t i) const override {
    if (i == 0) return std::span<const double>(boxes);
    if (i == 1) return std::span<const std::int64_t>(labels);
    return std::span<const double>(areas);
  }

  void set_value(std::size_t, const Value&) override {}

  std::vector<double> boxes;
  std::vector<std::int64_t> labels;
  std::vector<double> areas;
};

// The table of an image with boxes, and the ops that have been planned on it.
class BoxTaskTest : public ::testing::Test {
 protected:
  BoxTaskTest() : table_(fields(), nullptr) {
    sample_.canvas = {200, 100};
    sample_.key = 7;
  }

  Status plan(const std::string& name, Values values = {}) {
    ops_.push_back(made<Op>(name, std::move(values)));
    std::string doubt;
    const StageKey key{.name = name, .text = name, .draw_key = ops_.size()};
    return ops_.back()->plan(table_, key, doubt);
  }

  // The rows of the boxes and of what stands beside them.
  Status run() {
    if (worker_ == nullptr) {
      Result<std::unique_ptr<FieldTask>> task = table_.find("boxes")->chain->finish("boxes");
      EXPECT_TRUE(task) << task.error().message();
      task_ = *std::move(task);
      worker_ = task_->make_worker();
    }
    tensors_ = task_->tensors();
    rows_ = std::vector<PackedRow>(tensors_.size());
    std::vector<RowOutput> out;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].max_row_bytes = max_row_bytes_;
      out.emplace_back(tensors_[i], rows_[i]);
    }
    const Result<std::uint64_t> done = worker_->run(sample_, out, 0);
    if (!done) return done.error();
    EXPECT_EQ(*done, 0U);
    return {};
  }

  template <typename Number>
  std::vector<Number> row(std::size_t tensor) const {
    std::vector<Number> numbers(rows_[tensor].view.size() / sizeof(Number));
    if (!numbers.empty())
      std::memcpy(numbers.data(), rows_[tensor].view.data(), rows_[tensor].view.size());
    return numbers;
  }

  static std::vector<Field> fields() {
    std::vector<Field> fields(5);
    fields[0].name = "image";
    fields[0].kind = Field::Kind::kDecoded;
    fields[0].chain = std::make_unique<FakeImage>();
    const auto value = [&](std::size_t at, std::string name, std::size_t index, ValueType type) {
      fields[at].name = std::move(name);
      fields[at].kind = Field::Kind::kValue;
      fields[at].index = index;
      fields[at].type = type;
    };
    value(1, "boxes", 0, ValueType::kFloat64List);
    fields[1].max_bytes = 640;
    value(2, "labels", 1, ValueType::kInt64List);
    value(3, "area", 2, ValueType::kFloat64List);
    value(4, "caption", 3, ValueType::kText);
    return fields;
  }

  FieldTable table_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::unique_ptr<FieldTask> task_;
  std::unique_ptr<FieldWorker> worker_;
  Sample sample_;
  std::vector<TensorSpec> tensors_;
  std::vector<PackedRow> rows_;
  std::uint64_t max_row_bytes_ = 1000;
};

using Strings = std::vector<std::string>;

TEST_F(BoxTaskTest, MakesEdgesInPixelsOfTheOutput) {
  ASSERT_TRUE(plan("bounding_boxes", {{"format", std::string("xywh")}}).ok());
  ASSERT_TRUE(plan("resize", {{"size", Ints{50, 400}}}).ok());
  sample_.boxes = {10, 20, 30, 40, 0, 0, 200, 100};
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(row<float>(0), ElementsAre(20, 10, 80, 30, 0, 0, 400, 50));
  EXPECT_THAT(std::vector(rows_[0].shape.begin(), rows_[0].shape.begin() + 2), ElementsAre(2, 4));
  EXPECT_EQ(task_->tensors().front().dtype, DType::kFloat32);
  EXPECT_EQ(task_->tensors().front().max_row_bytes, 320U);
}

TEST_F(BoxTaskTest, LeavesTheSameOutOfFieldsBeside) {
  ASSERT_TRUE(plan("bounding_boxes", {{"with", Strings{"labels", "area"}}}).ok());
  ASSERT_TRUE(plan("center_crop", {{"size", Ints{100}}}).ok());
  sample_.boxes = {0, 0, 50.5, 100, 60, 10, 80, 20, 149, 0, 200, 100, 160, 0, 170, 10};
  sample_.labels = {1, 2, 3, 4};
  sample_.areas = {0.5, 1.5, 2.5, 3.5};
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(row<float>(0), ElementsAre(10, 10, 30, 20, 99, 0, 100, 100));
  EXPECT_THAT(row<std::int64_t>(1), ElementsAre(2, 3));
  EXPECT_THAT(row<double>(2), ElementsAre(1.5, 2.5));
}

TEST_F(BoxTaskTest, LeavesOutWhatIsBelowItsBounds) {
  ASSERT_TRUE(plan("bounding_boxes", {{"min_size", 2.0}, {"min_area", 10.0}}).ok());
  sample_.boxes = {0, 0, 1, 50, 0, 0, 3, 3, 0, 0, 2, 5, 198, 0, 300, 5};
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(row<float>(0), ElementsAre(0, 0, 2, 5, 198, 0, 200, 5));
}

TEST_F(BoxTaskTest, LeavesOutNothingButBoxesWithoutAreaIfSoAsked) {
  ASSERT_TRUE(plan("bounding_boxes", {{"min_size", 0.0}, {"min_area", 0.0}}).ok());
  sample_.boxes = {5, 5, 5, 50, 0, 0, 0.1, 0.1, 300, 0, 310, 10};
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(row<float>(0), ElementsAre(0, 0, 0.1F, 0.1F));
}

TEST_F(BoxTaskTest, GivesAnEmptyRowToAnImageWithoutBoxes) {
  ASSERT_TRUE(plan("bounding_boxes", {{"with", Strings{"labels"}}}).ok());
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(row<float>(0), IsEmpty());
  EXPECT_THAT(std::vector(rows_[0].shape.begin(), rows_[0].shape.begin() + 2), ElementsAre(0, 4));
  EXPECT_THAT(row<std::int64_t>(1), IsEmpty());
}

TEST_F(BoxTaskTest, FollowsTheDrawsOfItsImage) {
  ASSERT_TRUE(plan("bounding_boxes").ok());
  ASSERT_TRUE(plan("random_resized_crop", {{"size", Ints{64}}}).ok());
  ASSERT_TRUE(plan("random_horizontal_flip").ok());
  sample_.boxes = {0, 0, 200, 100};
  for (std::uint64_t key = 1; key < 20; ++key) {
    sample_.key = key;
    ASSERT_TRUE(run().ok());
    // A box around all of the image is one around all of every crop.
    EXPECT_THAT(row<float>(0), ElementsAre(0, 0, 64, 64));
    Geometry chain = Geometry::identity(sample_.canvas);
    for (std::size_t op : {1, 2}) {
      const auto& moves = static_cast<const GeometryOp&>(*ops_[op]);
      ASSERT_TRUE(moves.append_to(chain, KeyedRng(mix64(key, op + 1))));
    }
    // One around the crop's middle half stays in the middle, and is as large as the crop says.
    const Rect crop = chain.crop;
    sample_.boxes = {crop.x + crop.width * 0.25, static_cast<double>(crop.y),
                     crop.x + crop.width * 0.5, crop.y + crop.height * 0.5};
    ASSERT_TRUE(run().ok());
    const std::vector<float> box = row<float>(0);
    ASSERT_EQ(box.size(), 4U);
    EXPECT_NEAR(box[0], chain.flip ? 32 : 16, 1e-4);
    EXPECT_NEAR(box[2], chain.flip ? 48 : 32, 1e-4);
    EXPECT_NEAR(box[3], 32, 1e-4);
    sample_.boxes = {0, 0, 200, 100};
  }
}

TEST_F(BoxTaskTest, RefusesFieldsBesideOfAnotherLength) {
  ASSERT_TRUE(plan("bounding_boxes", {{"with", Strings{"labels"}}}).ok());
  sample_.boxes = {0, 0, 10, 10};
  sample_.labels = {1, 2};
  const Status status = run();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("its field 'labels' has 2 values, and 'boxes' 1 box"));
}

TEST_F(BoxTaskTest, RefusesBoxesThatAreNoneAndGoesOn) {
  ASSERT_TRUE(plan("bounding_boxes").ok());
  sample_.boxes = {0, 0, 10, 10, 30, 0, 10, 10};
  EXPECT_THAT(run().message(), HasSubstr("boxes[1]"));
  sample_.boxes.resize(4);
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(row<float>(0).size(), 4U);
}

TEST_F(BoxTaskTest, RefusesARowBeyondItsBound) {
  ASSERT_TRUE(plan("bounding_boxes").ok());
  max_row_bytes_ = 20;
  sample_.boxes = {0, 0, 10, 10, 0, 0, 10, 10};
  const Status status = run();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("its field 'boxes' takes 32 bytes"));
}

TEST_F(BoxTaskTest, RefusesToComeAfterWhatMovesTheImage) {
  ASSERT_TRUE(plan("resize", {{"size", Ints{50, 400}}}).ok());
  EXPECT_THAT(plan("bounding_boxes").message(),
              HasSubstr("'bounding_boxes' must come before 'resize', which moves the boxes with "
                        "the pixels of 'image'"));
}

TEST_F(BoxTaskTest, RefusesFieldsThatAreNoLists) {
  EXPECT_THAT(plan("bounding_boxes", {{"field", std::string("caption")}}).message(),
              HasSubstr("takes a list of numbers, and the field 'caption' is text"));
  EXPECT_THAT(plan("bounding_boxes", {{"field", std::string("box")}}).message(),
              HasSubstr("there is no field 'box'; there are 'image', 'boxes', 'labels'"));
  EXPECT_THAT(plan("bounding_boxes", {{"with", Strings{"image"}}}).message(),
              HasSubstr("'image' is decoded already"));
}

TEST_F(BoxTaskTest, RefusesToTakeTheSameFieldTwice) {
  ASSERT_TRUE(plan("bounding_boxes").ok());
  EXPECT_THAT(plan("bounding_boxes").message(), HasSubstr("decoded already by an earlier stage"));
}

TEST_F(BoxTaskTest, RefusesOpsOnPixels) {
  ASSERT_TRUE(plan("bounding_boxes").ok());
  EXPECT_THAT(
      plan("to_dtype", {{"dtype", std::string("float32")}, {"fields", Strings{"boxes"}}}).message(),
      HasSubstr("'to_dtype' works on images, not on boxes"));
}

}  // namespace
}  // namespace spdld::transform
