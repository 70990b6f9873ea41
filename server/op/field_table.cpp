// SPDX-License-Identifier: Apache-2.0
#include "op/field_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace spdld {
namespace {

// The refusal of an op on what a call has given back. `fitting`: arrays that it works on.
Status not_array(const std::string& op, const Field& field, const std::string& fitting) {
  const TensorSpec& tensor = field.tensor;
  const std::string is = tensor.kind == FieldKind::kBytes
                             ? std::string(tensor.text ? "text" : "bytes")
                             : std::string(dtype_name(tensor.dtype)) + shape_text(tensor.shape);
  return {Code::kInvalidArgument,
          "the field '" + field.name + "' comes back from 'python' as " + is + ", and '" + op +
              (fitting.empty() ? "' works on no such arrays: " : "' works on " + fitting) +
              "put it before that, or do the same in the function"};
}
// "comes back as float32[4], and 'resize' works on …"
constexpr const char* kPictureArrays =
    "uint8 or uint16 of [height, width, channels] with 1 to 4 channels: declare it so, ";
constexpr const char* kSoundArrays =
    "sound, which is declared as {type: 'float32[-1]', sample_rate: 16000}: declare it so, ";

constexpr const char* kListArrays =
    "float64 or int64 of [-1], or [-1, 4] of boxes: declare it so, ";

bool is_list(const TensorSpec& tensor) {
  const std::size_t rank = tensor.shape.size();
  return (tensor.dtype == DType::kInt64 || tensor.dtype == DType::kFloat64) &&
         tensor.kind != FieldKind::kBytes && (rank == 1 || (rank == 2 && tensor.shape[1] == 4));
}

// The decoded fields of `names`, or all, whose chain fits. `wants` and `wants_any` go on after
// "works on decoded": what a field that does not fit would have to be, and what there is none of.
Result<std::vector<Field*>> chosen(FieldTable& table, const std::vector<std::string>& names,
                                   const std::string& op, bool (*fits)(const FieldChain&),
                                   std::string (*wants)(const Field&), const char* wants_any,
                                   const char* fitting) {
  std::vector<Field*> found;
  for (const std::string& name : names) {
    Field* const field = table.find(name);
    if (field == nullptr)
      return error(Code::kInvalidArgument,
                   "'" + op + "': there is no field '" + name + "'; there are " + table.names());
    if (field->kind == Field::Kind::kArray)
      return tl::unexpected<Status>(not_array(op, *field, fitting));
    if (field->chain == nullptr || !fits(*field->chain))
      return error(Code::kInvalidArgument, "'" + op + "' works on decoded " + wants(*field) +
                                               ": {field: " + name +
                                               "}' before it, or leave the field out");
    if (std::find(found.begin(), found.end(), field) != found.end())
      return error(Code::kInvalidArgument,
                   "'" + op + "' names the field '" + name + "' twice: name it once");
    found.push_back(field);
  }
  if (names.empty()) {
    for (Field& field : table.fields()) {
      if (field.chain != nullptr && fits(*field.chain)) found.push_back(&field);
    }
  }
  if (!found.empty()) return found;
  for (const Field& field : table.fields()) {
    if (field.kind == Field::Kind::kArray && !field.tensor.shape.empty())
      return tl::unexpected<Status>(not_array(op, field, fitting));
  }
  return error(Code::kInvalidArgument, "'" + op + "' works on decoded " + wants_any + " before it");
}

// The refusal of an op on images that is to work on a field of sound.
Status not_sound(const std::string& op, const std::string& field) {
  return {Code::kInvalidArgument,
          "'" + op + "' works on images, and the field '" + field +
              "' is sound: " + (op == "normalize" ? "write 'normalize_audio'" : "leave it out")};
}

// Whether the field is clips of video that no stage has decoded.
bool is_encoded_video(const Field& field) {
  return field.kind == Field::Kind::kPart && field.clip &&
         field.clip->kind == StreamInfo::Kind::kVideo;
}

// The op that decodes this field of clips, with the field's name where that is not its default.
std::string decoder_of(const Field& field) {
  const std::string kind = field.clip->kind == StreamInfo::Kind::kVideo ? "video" : "audio";
  return "decode_" + kind + (field.name == kind ? "" : ": {field: " + field.name + "}");
}

bool is_sound(const Field& field) { return field.chain != nullptr && field.chain->has_sound(); }

}  // namespace

Status FieldChain::append(const GeometryOp&, const StageKey& key) {
  return {Code::kInvalidArgument,
          "'" + key.name + "' works on images, masks and boxes, not on " + std::string(noun())};
}

Status FieldChain::append(const PixelOp&, const StageKey& key, std::string&) {
  return {Code::kInvalidArgument,
          "'" + key.name + "' works on images, not on " + std::string(noun())};
}

Status FieldChain::append(const AudioOp&, const StageKey& key) {
  return {Code::kInvalidArgument,
          "'" + key.name + "' works on sound, not on " + std::string(noun())};
}

FieldTable::FieldTable(std::vector<Field> fields, MakeImageChain make_image,
                       MakeVideoChain make_video, MakeArrayChain make_array)
    : fields_(std::make_move_iterator(fields.begin()), std::make_move_iterator(fields.end())),
      make_image_(std::move(make_image)),
      make_video_(std::move(make_video)),
      make_array_(std::move(make_array)) {
  for (const Field& field : fields_) {
    if (field.kind == Field::Kind::kValue)
      first_made_value_ = std::max(first_made_value_, field.index + 1);
  }
}

Field* FieldTable::find(const std::string& name) {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const Field& field) { return field.name == name; });
  return found == fields_.end() ? nullptr : &*found;
}

std::string FieldTable::names() const {
  std::string names;
  for (const Field& field : fields_) names += (names.empty() ? "'" : ", '") + field.name + "'";
  return names;
}

Result<Field*> FieldTable::encoded(const std::string& name, const std::string& op) {
  Field* const field = find(name);
  if (field == nullptr)
    return error(Code::kInvalidArgument, "'" + op + "' decodes the field '" + name +
                                             "', and the source gives " + names() + ": write '" +
                                             op + ": {field: NAME}'");
  const bool is_record = op == "decode_json" || op == "decode_video";
  const bool is_bytes = field->tensor.kind == FieldKind::kBytes && !field->tensor.text;
  if (field->kind == Field::Kind::kArray && (!is_bytes || is_record))
    return tl::unexpected<Status>(not_array(op, *field, is_record ? "" : "bytes: declare it so, "));
  if (field->kind == Field::Kind::kDecoded)
    return error(Code::kInvalidArgument,
                 "the field '" + name + "' is decoded already by an earlier stage");
  if (field->kind == Field::Kind::kValue)
    return error(Code::kInvalidArgument, "'" + op + "' decodes bytes, and the field '" + name +
                                             "' is " + std::string(value_type_name(field->type)));
  if (field->clip) {
    const bool is_video = field->clip->kind == StreamInfo::Kind::kVideo;
    if (op != (is_video ? "decode_video" : "decode_audio"))
      return error(Code::kInvalidArgument, "'" + op + "' decodes no such field: '" + name +
                                               "' is clips of " + (is_video ? "video" : "sound") +
                                               ", so use '" + decoder_of(*field) + "'");
  }
  field->ops.push_back(op);
  return field;
}

std::size_t FieldTable::request(Field& part) {
  if (part.kind == Field::Kind::kArray) {
    part.request = SampleInput::kFirstArray + part.index;
    return *part.request;
  }
  SPDLD_CHECK(part.kind == Field::Kind::kPart);
  const auto found = std::find(requested_.begin(), requested_.end(), part.index);
  part.request = static_cast<std::size_t>(found - requested_.begin());
  if (found == requested_.end()) requested_.push_back(part.index);
  return *part.request;
}

Result<Field*> FieldTable::insert(Field field, const Field& behind, const std::string& op) {
  if (find(field.name) != nullptr)
    return error(Code::kInvalidArgument, "'" + op + "': there is a field '" + field.name +
                                             "' already: call the new one something else");
  const auto at = std::find_if(fields_.begin(), fields_.end(),
                               [&](const Field& other) { return &other == &behind; });
  SPDLD_CHECK(at != fields_.end());
  return &*fields_.insert(std::next(at), std::move(field));
}

Result<Field*> FieldTable::make_value(const std::string& name, ValueType type, const Field& behind,
                                      const std::string& op) {
  SPDLD_ASSIGN(Field* const made, insert({.name = name,
                                          .kind = Field::Kind::kValue,
                                          .type = type,
                                          .optional = behind.optional,
                                          .request = behind.request},
                                         behind, op));
  made->index = first_made_value_ + made_values_.size();
  made_values_.push_back(type);
  return made;
}

Result<Field*> FieldTable::make_decoded(const std::string& name, const Field& behind,
                                        const std::string& op) {
  return insert({.name = name, .kind = Field::Kind::kDecoded}, behind, op);
}

Result<std::vector<Field>> FieldTable::take(const std::vector<CallField>& in) {
  std::vector<Field> taken;
  for (const CallField& wanted : in) {
    const auto found = std::find_if(fields_.begin(), fields_.end(),
                                    [&](const Field& field) { return field.name == wanted.name; });
    if (found == fields_.end())
      return error(Code::kInvalidArgument,
                   "'python': in: there is no field '" + wanted.name + "'; there are " + names());
    const bool is_mask = found->chain != nullptr ? found->chain->is_index() : found->index_numbers;
    if (is_mask) masks_.insert(found->name);
    taken.push_back(std::move(*found));
    fields_.erase(found);
  }
  return taken;
}

Status FieldTable::give(const TensorSpec& tensor, std::size_t array, int sample_rate) {
  if (find(tensor.name) != nullptr)
    return {Code::kInvalidArgument,
            "'python': out: there is a field '" + tensor.name +
                "' already: name it under 'in', too, or call the new one something else"};
  fields_.push_back({.name = tensor.name,
                     .kind = Field::Kind::kArray,
                     .index = array,
                     .tensor = tensor,
                     .index_numbers = masks_.contains(tensor.name),
                     .sample_rate = sample_rate,
                     .ops = {"python"}});
  return {};
}

Result<Field*> FieldTable::numbers(const std::string& name, const std::string& op) {
  Field* const field = find(name);
  if (field == nullptr)
    return error(Code::kInvalidArgument,
                 "'" + op + "': there is no field '" + name + "'; there are " + names());
  if (field->kind == Field::Kind::kArray) {
    if (!is_list(field->tensor)) return tl::unexpected<Status>(not_array(op, *field, kListArrays));
    field->type =
        field->tensor.dtype == DType::kInt64 ? ValueType::kInt64List : ValueType::kFloat64List;
    array_values_.push_back(
        {.array = field->index, .value = first_made_value_ + made_values_.size()});
    field->kind = Field::Kind::kValue;
    field->index = array_values_.back().value;
    field->ops.clear();
    made_values_.push_back(field->type);
  }
  if (field->kind == Field::Kind::kDecoded)
    return error(Code::kInvalidArgument,
                 "the field '" + name + "' is decoded already by an earlier stage");
  const std::string takes = "'" + op + "' takes a list of numbers, and the field '" + name + "' ";
  if (field->kind == Field::Kind::kPart)
    return error(Code::kInvalidArgument, takes +
                                             "is bytes; numbers in JSON are taken out of it by "
                                             "'decode_json'");
  if (field->type != ValueType::kInt64List && field->type != ValueType::kFloat64List)
    return error(Code::kInvalidArgument, takes + "is " + std::string(value_type_name(field->type)));
  field->ops.push_back(op);
  return field;
}

Result<std::vector<Field*>> FieldTable::movable(const std::vector<std::string>& names,
                                                const std::string& op) {
  const auto fits = [](const FieldChain& chain) { return chain.has_geometry(); };
  take_up(names, fits);
  bool moves_any = false;
  const Field* sound = nullptr;
  const Field* video = nullptr;
  for (const Field& field : fields_) {
    moves_any = moves_any || (field.chain != nullptr && field.chain->has_geometry());
    const bool is_named = std::find(names.begin(), names.end(), field.name) != names.end();
    if (video == nullptr && is_encoded_video(field)) video = &field;
    if (!is_sound(field)) continue;
    if (is_named) return tl::unexpected<Status>(not_sound(op, field.name));
    if (sound == nullptr) sound = &field;
  }
  if (names.empty() && !moves_any && video != nullptr)
    return error(Code::kInvalidArgument,
                 "'" + op + "' works on decoded clips: put '" + decoder_of(*video) + "' before it");
  if (names.empty() && !moves_any && sound != nullptr)
    return tl::unexpected<Status>(not_sound(op, sound->name));
  return chosen(
      *this, names, op, fits,
      [](const Field& field) {
        if (is_encoded_video(field)) return std::string("clips: put 'decode_video");
        return std::string("images, masks and boxes: put '") +
               (field.kind == Field::Kind::kPart ? "decode_image" : "bounding_boxes");
      },
      "images: put 'decode_image'", kPictureArrays);
}

void FieldTable::take_up(const std::vector<std::string>& names, bool (*fits)(const FieldChain&)) {
  if (!make_array_) return;
  for (Field& field : fields_) {
    const bool is_meant =
        names.empty() || std::find(names.begin(), names.end(), field.name) != names.end();
    if (field.kind != Field::Kind::kArray || !is_meant) continue;
    std::unique_ptr<FieldChain> chain = make_array_(field);
    if (chain == nullptr || !fits(*chain)) continue;
    field.kind = Field::Kind::kDecoded;
    field.chain = std::move(chain);
    field.ops.clear();
  }
}

Result<std::vector<Field*>> FieldTable::with_geometry(const std::vector<std::string>& names,
                                                      const std::string& op) {
  SPDLD_ASSIGN(std::vector<Field*> found, movable(names, op));
  for (Field* const field : found) field->ops.push_back(op);
  return found;
}

Result<std::vector<Field*>> FieldTable::images(const std::vector<std::string>& names,
                                               const std::string& op) {
  SPDLD_ASSIGN(std::vector<Field*> found, movable(names, op));
  if (names.empty())
    std::erase_if(found, [](const Field* field) { return !field->chain->has_pixels(); });
  if (found.empty())
    return error(Code::kInvalidArgument,
                 "'" + op + "' works on decoded images: put 'decode_image' before it");
  const auto is_image = [](const Field* field) { return !field->chain->is_index(); };
  // Masks keep their numbers beside images; where there are none, they are meant.
  if (names.empty() && std::any_of(found.begin(), found.end(), is_image)) {
    const auto masks = std::stable_partition(found.begin(), found.end(), is_image);
    std::for_each(masks, found.end(), [](Field* mask) {
      if (!mask->ops.empty()) return;
      mask->kind = Field::Kind::kArray;  // no op works on it yet
      mask->chain.reset();
    });
    found.erase(masks, found.end());
  }
  for (Field* const field : found) field->ops.push_back(op);
  return found;
}

Result<std::vector<Field*>> FieldTable::sounds(const std::vector<std::string>& names,
                                               const std::string& op) {
  const auto fits = [](const FieldChain& chain) { return chain.has_sound(); };
  take_up(names, fits);
  SPDLD_ASSIGN(std::vector<Field*> found,
               chosen(
                   *this, names, op, fits,
                   [](const Field&) { return std::string("sound: put 'decode_audio"); },
                   "sound: put 'decode_audio'", kSoundArrays));
  for (Field* const field : found) field->ops.push_back(op);
  return found;
}

}  // namespace spdld
