// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/planned_call.h"

#include <algorithm>
#include <string>

namespace spdld::engine {
namespace {

using ArgumentKind = CallField::Kind;

DType dtype_of(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::kInt64: return DType::kInt64;
    case ArgumentKind::kFloat64: return DType::kFloat64;
    default: return DType::kBool;
  }
}

ArgumentKind kind_of(ValueType type) {
  switch (type) {
    case ValueType::kInt64: return ArgumentKind::kInt64;
    case ValueType::kFloat64: return ArgumentKind::kFloat64;
    case ValueType::kBool: return ArgumentKind::kBool;
    case ValueType::kText: return ArgumentKind::kText;
    case ValueType::kInt64List:
    case ValueType::kFloat64List: break;
  }
  return ArgumentKind::kArray;
}

}  // namespace

TensorSpec tensor_of_answer(const CallField& field) {
  TensorSpec tensor{.name = field.name};
  switch (field.kind) {
    case ArgumentKind::kArray: {
      const bool differs =
          std::find(field.shape.begin(), field.shape.end(), -1) != field.shape.end();
      tensor.kind = differs ? FieldKind::kRagged : FieldKind::kDense;
      tensor.dtype = field.dtype;
      tensor.shape = field.shape;
      break;
    }
    case ArgumentKind::kBytes:
    case ArgumentKind::kText:
      tensor.kind = FieldKind::kBytes;
      tensor.text = field.kind == ArgumentKind::kText;
      break;
    default: tensor.dtype = dtype_of(field.kind); break;
  }
  return tensor;
}

Result<CallField> argument_of(const Field& field) {
  if (field.kind == Field::Kind::kPart && field.clip)
    return error(Code::kInvalidArgument,
                 "'python': in: '" + field.name + "' is clips of encoded " +
                     (field.clip->kind == StreamInfo::Kind::kVideo ? "video: put 'decode_video'"
                                                                   : "sound: put 'decode_audio'") +
                     " before it");
  CallField argument{.name = field.name, .optional = field.optional};
  if (field.kind == Field::Kind::kPart) {
    argument.kind = field.text ? ArgumentKind::kText : ArgumentKind::kBytes;
    return argument;
  }
  argument.kind = kind_of(field.type);
  if (argument.kind == ArgumentKind::kArray) {
    argument.dtype = field.type == ValueType::kInt64List ? DType::kInt64 : DType::kFloat64;
    argument.shape = {-1};
  }
  return argument;
}

CallField argument_of(const TensorSpec& array) {
  CallField argument{.name = array.name, .dtype = array.dtype, .shape = array.shape};
  if (array.kind == FieldKind::kDense && array.shape.empty()) {
    if (array.dtype == DType::kInt64) argument.kind = ArgumentKind::kInt64;
    if (array.dtype == DType::kFloat64) argument.kind = ArgumentKind::kFloat64;
    if (array.dtype == DType::kBool) argument.kind = ArgumentKind::kBool;
  }
  if (array.kind == FieldKind::kBytes)
    argument.kind = array.text ? ArgumentKind::kText : ArgumentKind::kBytes;
  return argument;
}

}  // namespace spdld::engine
