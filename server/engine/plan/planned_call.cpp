// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/planned_call.h"

#include <algorithm>
#include <string>

namespace spdld::engine {
namespace {

using Kind = CallField::Kind;

DType dtype_of(Kind kind) {
  switch (kind) {
    case Kind::kInt64: return DType::kInt64;
    case Kind::kFloat64: return DType::kFloat64;
    default: return DType::kBool;
  }
}

Kind kind_of(ValueType type) {
  switch (type) {
    case ValueType::kInt64: return Kind::kInt64;
    case ValueType::kFloat64: return Kind::kFloat64;
    case ValueType::kBool: return Kind::kBool;
    case ValueType::kText: return Kind::kText;
    case ValueType::kInt64List:
    case ValueType::kFloat64List: break;
  }
  return Kind::kArray;
}

}  // namespace

TensorSpec tensor_of_answer(const CallField& field) {
  TensorSpec tensor{.name = field.name};
  switch (field.kind) {
    case Kind::kArray: {
      const bool differs =
          std::find(field.shape.begin(), field.shape.end(), -1) != field.shape.end();
      tensor.kind = differs ? FieldKind::kRagged : FieldKind::kDense;
      tensor.dtype = field.dtype;
      tensor.shape = field.shape;
      break;
    }
    case Kind::kBytes:
    case Kind::kText:
      tensor.kind = FieldKind::kBytes;
      tensor.text = field.kind == Kind::kText;
      break;
    default: tensor.dtype = dtype_of(field.kind); break;
  }
  return tensor;
}

Result<CallField> argument_of(const Field& field) {
  if (field.optional)
    return error(Code::kInvalidArgument, "'python': in: rows need not have '" + field.name +
                                             "', and a function is given what all rows have: "
                                             "leave out items without it (source.select)");
  if (field.kind == Field::Kind::kPart && field.clip)
    return error(Code::kInvalidArgument,
                 "'python': in: '" + field.name + "' is clips of encoded " +
                     (field.clip->kind == StreamInfo::Kind::kVideo ? "video: put 'decode_video'"
                                                                   : "sound: put 'decode_audio'") +
                     " before it");
  CallField argument{.name = field.name};
  if (field.kind == Field::Kind::kPart) {
    argument.kind = field.text ? Kind::kText : Kind::kBytes;
    return argument;
  }
  argument.kind = kind_of(field.type);
  if (argument.kind == Kind::kArray) {
    argument.dtype = field.type == ValueType::kInt64List ? DType::kInt64 : DType::kFloat64;
    argument.shape = {-1};
  }
  return argument;
}

CallField argument_of(const TensorSpec& array) {
  CallField argument{.name = array.name, .dtype = array.dtype, .shape = array.shape};
  if (array.kind == FieldKind::kDense && array.shape.empty()) {
    if (array.dtype == DType::kInt64) argument.kind = Kind::kInt64;
    if (array.dtype == DType::kFloat64) argument.kind = Kind::kFloat64;
    if (array.dtype == DType::kBool) argument.kind = Kind::kBool;
  }
  if (array.kind == FieldKind::kBytes) argument.kind = array.text ? Kind::kText : Kind::kBytes;
  return argument;
}

}  // namespace spdld::engine
