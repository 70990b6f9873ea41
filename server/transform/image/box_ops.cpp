// SPDX-License-Identifier: Apache-2.0
#include "transform/image/box_ops.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/op.h"
#include "transform/image/box_task.h"

namespace spdld::transform {
namespace {

TensorSpec list_tensor(const Field& field) {
  return {.name = field.name,
          .kind = FieldKind::kRagged,
          .dtype = field.type == ValueType::kInt64List ? DType::kInt64 : DType::kFloat64,
          .shape = {-1},
          .max_row_bytes = field.max_bytes.value_or(0)};
}

class BoundingBoxes final : public Op {
 public:
  struct Options {
    BoxFormat format = BoxFormat::kXyxy;
    bool normalized = false;
    double min_size = 1;
    double min_area = 1;
  };

  BoundingBoxes(std::string field, Options options, std::vector<std::string> with)
      : Op({std::move(field)}), options_(options), with_(std::move(with)) {}

  Status plan(FieldTable& table, const StageKey& key, std::string&) const override {
    for (const Field& field : table.fields()) {
      if (field.chain == nullptr || !field.chain->has_geometry() || field.chain->moved_by().empty())
        continue;
      return {Code::kInvalidArgument,
              "'" + key.name + "' must come before '" + std::string(field.chain->moved_by()) +
                  "', which moves the boxes with the pixels of '" + field.name + "'"};
    }
    auto boxes = table.numbers(fields().front(), key.name);
    if (!boxes) return std::move(boxes).error();
    Field& field = **boxes;
    auto task = std::make_unique<BoxTask>();
    task->name = field.name;
    task->value = field.index;
    task->format = options_.format;
    task->normalized = options_.normalized;
    task->min_size = options_.min_size;
    task->min_area = options_.min_area;
    // Edges take half of what the numbers do.
    task->add_tensor({.name = field.name,
                      .kind = FieldKind::kRagged,
                      .dtype = DType::kFloat32,
                      .shape = {-1, 4},
                      .max_row_bytes = field.max_bytes.value_or(0) / 2});
    field.kind = Field::Kind::kDecoded;
    for (const std::string& name : with_) {
      auto beside = table.numbers(name, key.name);
      if (!beside) return std::move(beside).error();
      task->beside.push_back({.name = name, .value = (*beside)->index});
      task->add_tensor(list_tensor(**beside));
      (*beside)->kind = Field::Kind::kDecoded;
    }
    field.chain = std::make_unique<BoxChain>(std::move(task));
    return {};
  }

 private:
  Options options_;
  std::vector<std::string> with_;
};

Result<std::unique_ptr<Op>> make_bounding_boxes(const Params& params) {
  const auto& format = params.get<std::string>("format");
  std::vector<std::string> with;
  if (params.has("with")) with = params.get<std::vector<std::string>>("with");
  return std::make_unique<BoundingBoxes>(
      params.get<std::string>("field"),
      BoundingBoxes::Options{.format = format == "xywh"     ? BoxFormat::kXywh
                                       : format == "cxcywh" ? BoxFormat::kCxcywh
                                                            : BoxFormat::kXyxy,
                             .normalized = params.get<bool>("normalized"),
                             .min_size = params.get<double>("min_size"),
                             .min_area = params.get<double>("min_area")},
      std::move(with));
}

}  // namespace

OpInfo bounding_boxes_op() {
  return {
      .name = "bounding_boxes",
      .doc =
          "Moves boxes as their image is cropped, resized and flipped, clips them to it, and "
          "leaves out those of which too little is left.",
      .params = {{.name = "field",
                  .type = ParamType::kString,
                  .doc = "the field that holds a list of numbers, four a box",
                  .default_value = std::string("boxes")},
                 {.name = "format",
                  .type = ParamType::kString,
                  .doc = "what the four are: xyxy: left, top, right, bottom; xywh: left, top, "
                         "width, height; cxcywh: the center, width, height",
                  .default_value = std::string("xyxy"),
                  .choices = {"xyxy", "xywh", "cxcywh"}},
                 {.name = "normalized",
                  .type = ParamType::kBool,
                  .doc = "whether they are shares of the image's width and height, not pixels",
                  .default_value = false},
                 {.name = "with",
                  .type = ParamType::kStringList,
                  .doc = "fields with one number a box, of which the same are left out",
                  .min_items = 1,
                  .scalar_ok = true,
                  .nullable = true},
                 {.name = "min_size",
                  .type = ParamType::kFloat,
                  .doc = "a box of less width or height, in pixels of the batch's image and within "
                         "it, is left out",
                  .default_value = 1.0,
                  .min = 0},
                 {.name = "min_area",
                  .type = ParamType::kFloat,
                  .doc = "a box of less area, in pixels of the batch's image and within it, is "
                         "left out",
                  .default_value = 1.0,
                  .min = 0}},
      .make = make_bounding_boxes};
}

}  // namespace spdld::transform
