// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "ctl/listing.h"

namespace spdld::ctl {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::ordered_json;

// EPOCH_MODE_MANUAL of EpochMode is "manual".
std::string enum_name(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (std::isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  prefix += '_';
  std::string name = value.name();
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// One value: of a repeated field the one at `index`, else (-1) of a single one.
ordered_json value_of(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const bool single = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return single ? reflection.GetInt32(message, &field)
                    : reflection.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return single ? reflection.GetInt64(message, &field)
                    : reflection.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return single ? reflection.GetUInt32(message, &field)
                    : reflection.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return single ? reflection.GetUInt64(message, &field)
                    : reflection.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return single ? reflection.GetDouble(message, &field)
                    : reflection.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return single ? reflection.GetFloat(message, &field)
                    : reflection.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return single ? reflection.GetBool(message, &field)
                    : reflection.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_STRING:
      return single ? reflection.GetString(message, &field)
                    : reflection.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return enum_name(single ? *reflection.GetEnum(message, &field)
                              : *reflection.GetRepeatedEnum(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(single ? reflection.GetMessage(message, &field)
                            : reflection.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

}  // namespace

ordered_json to_json(const Message& message) {
  ordered_json object = ordered_json::object();
  const auto& descriptor = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    ordered_json& member = object[field.name()];
    if (field.is_map()) {
      member = ordered_json::object();
      for (int at = 0; at < reflection.FieldSize(message, &field); ++at) {
        const Message& entry = reflection.GetRepeatedMessage(message, &field, at);
        const auto& entry_fields = *entry.GetDescriptor();
        member[entry.GetReflection()->GetString(entry, entry_fields.map_key())] =
            value_of(entry, *entry_fields.map_value(), -1);
      }
    } else if (field.is_repeated()) {
      member = ordered_json::array();
      for (int at = 0; at < reflection.FieldSize(message, &field); ++at)
        member.push_back(value_of(message, field, at));
    } else if (field.has_presence() && !reflection.HasField(message, &field)) {
      member = nullptr;
    } else {
      member = value_of(message, field, -1);
    }
  }
  return object;
}

}  // namespace spdld::ctl
