// SPDX-License-Identifier: Apache-2.0
#include "source/order/lengths.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <utility>
#include <variant>

#include "base/text/near_names.h"
#include "source/bytes/digest_text.h"

namespace spdld::source {
namespace {

bool is_number(const SourceField& field) {
  return field.kind == SourceField::Kind::kValue &&
         (field.type == ValueType::kInt64 || field.type == ValueType::kFloat64);
}

// Where the duration of files comes from that no listing tells.
std::string media_hint(const std::string& name) {
  return name == "duration"
             ? "; 'windows: {sampling: whole}' beside the source gives that of files of sound"
             : "";
}

Result<const SourceField*> number_named(const Source& source, const std::string& name) {
  std::vector<std::string> numbers;
  const SourceField* other = nullptr;
  for (const SourceField& field : source.fields()) {
    if (is_number(field)) {
      if (field.name == name) return &field;
      numbers.push_back(field.name);
    } else if (field.name == name) {
      other = &field;
    }
  }
  std::string what = "'" + name + "' is no field of the source";
  if (other != nullptr)
    what = "'" + name + "' is " +
           (other->kind == SourceField::Kind::kPart
                ? std::string("brought by fetch, and a length must be known beforehand")
                : std::string(value_type_name(other->type)) + ", and a length is a number");
  if (numbers.empty())
    return error(Code::kInvalidArgument,
                 what +
                     "; the source knows no number of its items: have it read one, such as "
                     "'values' of a table or 'index' of a webdataset, or write 'windows: "
                     "{sampling: whole}' beside it, which gives the 'duration' of files of sound");
  if (other != nullptr)
    return error(Code::kInvalidArgument, what + "; numbers are: " + listed_names(numbers));
  return error(Code::kInvalidArgument, what + hint(name, numbers) + media_hint(name));
}

std::string shown(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  char text[32];
  std::snprintf(text, sizeof text, "%g", std::get<double>(value));
  return text;
}

}  // namespace

Lengths::Lengths(std::vector<float> lengths, ListingMemory::SharePtr memory)
    : memory_(std::move(memory)), lengths_(std::move(lengths)) {
  const auto* const bytes = reinterpret_cast<const char*>(lengths_.data());
  digest_ = short_digest_text({bytes, lengths_.size() * sizeof(float)});
}

Result<std::shared_ptr<const Lengths>> Lengths::read(const Source& source, const std::string& name,
                                                     ListingMemory::SharePtr memory) {
  SPDLD_ASSIGN(const SourceField* const field, number_named(source, name));
  SPDLD_TRY(memory->resize(source.size() * sizeof(float))
                .with_context("the lengths of " + std::to_string(source.size()) + " items"));
  std::vector<float> lengths;
  try {
    lengths.resize(source.size());
  } catch (const std::bad_alloc&) {
    return error(Code::kResourceExhausted, "there is no memory for the lengths of " +
                                               std::to_string(source.size()) + " items");
  }
  for (std::uint64_t item = 0; item < source.size(); ++item) {
    const Value value = source.value(item, field->index);
    const auto* const integer = std::get_if<std::int64_t>(&value);
    const double length =
        integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
    if (!(length >= 0 && length <= std::numeric_limits<float>::max()))
      return error(Code::kInvalidArgument,
                   "item " + std::to_string(item) + ", " + source.read_uri(item) +
                       ", has the length " + shown(value) +
                       ", and an order by length needs one of every item, finite and not negative: "
                       "mend it, or leave such items out, 'select: {where: \"" +
                       name + " >= 0 and " + name + " < 1e30\"}' beside the source");
    lengths[item] = static_cast<float>(std::abs(length));  // of -0, which sorts behind all else
  }
  return std::make_shared<const Lengths>(std::move(lengths), std::move(memory));
}

}  // namespace spdld::source
