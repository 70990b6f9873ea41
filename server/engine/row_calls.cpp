// SPDX-License-Identifier: Apache-2.0
#include "engine/row_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/row_sample.h"

namespace spdld::engine {
namespace {

using From = PlannedCall::Argument::From;

std::span<const std::byte> bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

// Of a text or a list.
std::span<const std::byte> bytes_of(const Value& value) {
  if (const auto* const text = std::get_if<std::string_view>(&value))
    return bytes_of(text->data(), text->size());
  if (const auto* const list = std::get_if<std::span<const std::int64_t>>(&value))
    return bytes_of(list->data(), list->size_bytes());
  const auto list = std::get<std::span<const double>>(value);
  return bytes_of(list.data(), list.size_bytes());
}

// The text or list of this type that lies there.
Value value_at(const std::byte* data, std::size_t bytes, ValueType type) {
  if (type == ValueType::kText) return std::string_view(reinterpret_cast<const char*>(data), bytes);
  if (type == ValueType::kInt64List)
    return std::span(reinterpret_cast<const std::int64_t*>(data), bytes / sizeof(std::int64_t));
  return std::span(reinterpret_cast<const double*>(data), bytes / sizeof(double));
}

// Of a number. Returns how many bytes it has.
std::size_t put_number(const Value& value, std::array<std::byte, 8>& to) {
  const auto put = [&](const auto& number) {
    std::memcpy(to.data(), &number, sizeof number);
    return sizeof number;
  };
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) return put(*integer);
  if (const auto* const real = std::get_if<double>(&value)) return put(*real);
  return put(std::get<bool>(value));
}

bool is_number(const Value& value) {
  return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value) ||
         std::holds_alternative<bool>(value);
}

}  // namespace

void RowCalls::restart() {
  back_ = 0;
  tries_ = 0;
  under_way_ = false;
  goes_on_ = false;
  status_ = {};
  tasks_ = {};
  first_absent_ = kNone;
}

RowOutput RowCalls::array(const Plan& plan, std::size_t array) {
  arrays_.resize(plan.arrays.size());
  const TensorSpec& tensor = plan.arrays[array];
  PackedRow& row = arrays_[array];
  if (tensor.kind != FieldKind::kDense) return {tensor, row};
  const std::uint64_t bytes = tensor.row_bytes();
  std::byte* const data = row.bytes.resize(bytes);
  row.view = {data, bytes};
  std::copy(tensor.shape.begin(), tensor.shape.end(), row.shape.begin());
  return {tensor, data};
}

void RowCalls::keep(const Plan& plan, const RowSample& sample) {
  std::size_t count = 0;
  for (const PlannedCall& call : plan.calls) count += call.arguments.size();
  arrays_.resize(plan.arrays.size());
  arguments_.resize(count);
  numbers_.resize(count);
  keep_made(plan, sample);
  std::size_t i = 0;
  for (const PlannedCall& call : plan.calls) {
    for (std::size_t of_call = 0; of_call < call.arguments.size(); ++of_call, ++i) {
      const PlannedCall::Argument& from = call.arguments[of_call];
      CallArgument& argument = arguments_[i];
      argument.absent = (from.request && sample.is_absent(*from.request)) ||
                        (from.presence && !std::get<bool>(sample.value(*from.presence)));
      if (argument.absent) argument.bytes = {};
      if (argument.absent || from.from == From::kArray) continue;
      if (from.from == From::kPart) {
        argument.bytes = sample.part(from.index);
        continue;
      }
      const Value value = from.index < plan.first_made_value
                              ? sample.value(from.index)  // the source's, which stays where it is
                              : made_[from.index - plan.first_made_value];
      if (is_number(value)) {
        argument.bytes = bytes_of(numbers_[i].data(), put_number(value, numbers_[i]));
        continue;
      }
      argument.bytes = bytes_of(value);
      argument.shape = {static_cast<std::int64_t>(argument.bytes.size() / sizeof(std::int64_t))};
    }
  }
}

void RowCalls::keep_made(const Plan& plan, const RowSample& sample) {
  made_.resize(plan.made_values.size());
  copies_.resize(plan.made_values.size());
  for (std::size_t i = 0; i < made_.size(); ++i) {
    made_[i] = sample.value(plan.first_made_value + i);
    if (is_number(made_[i])) continue;
    const std::span<const std::byte> bytes = bytes_of(made_[i]);
    std::byte* const copy = copies_[i].resize(bytes.size());
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    made_[i] = value_at(copy, bytes.size(), type_of(made_[i]));
  }
}

std::span<Value> RowCalls::made_values(const Plan& plan) {
  for (const auto& [array, value, calls] : plan.array_values) {
    if (calls > back_ || is_absent(array)) continue;
    const std::span<const std::byte> bytes = arrays_[array].view;
    Value& made = made_[value - plan.first_made_value];
    made = value_at(bytes.data(), bytes.size(), type_of(made));
  }
  return made_;
}

CallRow& RowCalls::prepare(const Plan& plan) {
  const PlannedCall& call = plan.calls[back_];
  std::size_t first = 0;
  for (std::size_t i = 0; i < back_; ++i) first += plan.calls[i].arguments.size();
  call_.arguments.assign(
      arguments_.begin() + static_cast<std::ptrdiff_t>(first),
      arguments_.begin() + static_cast<std::ptrdiff_t>(first + call.arguments.size()));
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (call.arguments[i].from != From::kArray || call_.arguments[i].absent) continue;
    const PackedRow& array = arrays_[call.arguments[i].index];
    call_.arguments[i] = {.bytes = array.view, .shape = array.shape};
  }
  call_.rejected = false;
  call_.answers.resize(call.spec.out.size());
  call_.into.assign(call.spec.out.size(), {});
  first_out_ = call.first_array;
  return call_;
}

void RowCalls::begin(std::chrono::nanoseconds now) {
  under_way_ = true;
  since_ = now + call_.pause;
}

std::chrono::nanoseconds RowCalls::answered(Status status, std::chrono::nanoseconds now) {
  status_ = std::move(status);
  return std::max(now - since_, std::chrono::nanoseconds(0));
}

Status RowCalls::take(bool& rejected) {
  under_way_ = false;
  ++back_;
  goes_on_ = true;
  rejected = call_.rejected;
  if (!status_.ok()) return std::exchange(status_, Status());
  tries_ = 0;
  if (rejected) return {};
  for (std::size_t i = 0; i < call_.answers.size(); ++i)
    std::swap(arrays_[first_out_ + i], call_.answers[i]);
  return {};
}

Status RowCalls::put_nothing(const Plan& plan) {
  first_absent_ = first_out_;
  for (std::size_t call = back_ - 1; call < plan.calls.size(); ++call) {
    const std::size_t first = plan.calls[call].first_array;
    for (std::size_t i = 0; i < plan.calls[call].spec.out.size(); ++i)
      SPDLD_TRY(array(plan, first + i).put_nothing());
  }
  back_ = plan.calls.size();
  return {};
}

bool RowCalls::try_again(int most) {
  if (tries_ == most) return false;
  ++tries_;
  --back_;
  return true;
}

void RowCalls::shrink(std::size_t kept_bytes) {
  for (PackedRow& row : arrays_) row.bytes.shrink(kept_bytes);
  for (PackedRow& row : call_.answers) row.bytes.shrink(kept_bytes);
  for (ByteBuffer& value : copies_) value.shrink(kept_bytes);
}

}  // namespace spdld::engine
