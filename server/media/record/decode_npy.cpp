// SPDX-License-Identifier: Apache-2.0
#include "media/record/decode_npy.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "media/record/npy_task.h"
#include "op/op.h"

namespace spdld::media {
namespace {

// What numpy and tensors both have.
std::vector<std::string> dtypes() {
  std::vector<std::string> names = {"bool",  "uint8", "uint16",  "int8",    "int16",
                                    "int32", "int64", "float16", "float32", "float64"};
  std::erase_if(names, [](const std::string& name) { return !parse_dtype(name); });
  return names;
}

class DecodeNpy final : public Op {
 public:
  DecodeNpy(std::string field, std::string array, DType dtype, std::vector<std::int64_t> shape)
      : Op({std::move(field)}), array_(std::move(array)), dtype_(dtype), shape_(std::move(shape)) {}

  Status plan(FieldTable& table, const StageKey& key, std::string&) const override {
    auto encoded = table.encoded(fields().front(), key.name);
    if (!encoded) return std::move(encoded).error();
    Field& part = **encoded;
    auto task = std::make_unique<NpyTask>();
    task->name = part.name;
    task->request = table.request(part);
    task->array = array_;
    task->dtype = dtype_;
    task->shape = shape_;
    const bool varies = std::count(shape_.begin(), shape_.end(), -1) > 0;
    // An .npy holds the values as they are.
    const bool known = varies && array_.empty();
    task->add_tensor({.name = part.name,
                      .kind = varies ? FieldKind::kRagged : FieldKind::kDense,
                      .dtype = dtype_,
                      .shape = shape_,
                      .max_row_bytes = known ? part.max_bytes.value_or(0) : 0,
                      .is_loose = true});
    part.kind = Field::Kind::kDecoded;
    part.chain = std::make_unique<NpyChain>(std::move(task));
    return {};
  }

 private:
  std::string array_;
  DType dtype_;
  std::vector<std::int64_t> shape_;
};

Result<std::unique_ptr<Op>> make_decode_npy(const Params& params) {
  SPDLD_ASSIGN(const DType dtype, parse_dtype(params.get<std::string>("dtype")));
  const auto& shape = params.get<std::vector<std::int64_t>>("shape");
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return error(Code::kInvalidArgument, "shape is " + shape_text(shape) +
                                             ", and an extent is 1 or more, or -1 where it "
                                             "differs from row to row");
  return std::make_unique<DecodeNpy>(
      params.get<std::string>("field"),
      params.has("array") ? params.get<std::string>("array") : std::string(), dtype, shape);
}

}  // namespace

OpInfo decode_npy_op() {
  return {.name = "decode_npy",
          .doc = "Makes an array of a field that is an .npy file, or of one array of an .npz.",
          .params = {{.name = "field",
                      .type = ParamType::kString,
                      .doc = "the field whose bytes are the file",
                      .default_value = std::string("npy")},
                     {.name = "array",
                      .type = ParamType::kString,
                      .doc = "which array of an .npz; not given: the file is an .npy",
                      .nullable = true},
                     {.name = "dtype",
                      .type = ParamType::kString,
                      .doc = "of the values; an array of another one is an error of the item",
                      .choices = dtypes()},
                     {.name = "shape",
                      .type = ParamType::kIntList,
                      .doc = "of each array, with -1 where it differs from row to row; an array of "
                             "another one is an error of the item",
                      .default_value = std::vector<std::int64_t>{-1},
                      .min = -1,
                      .max = 1e12,
                      .max_items = static_cast<std::size_t>(wire::kMaxRank),
                      .scalar_ok = true}},
          .make = make_decode_npy};
}

}  // namespace spdld::media
