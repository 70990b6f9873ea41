// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/field_chain.h"
#include "op/media.h"
#include "op/row_call.h"
#include "op/tensor_spec.h"
#include "op/value.h"

namespace spdld {

class DecodeImageOp;
class DecodeVideoOp;

// A field of the sample at some point between two stages.
struct Field {
  enum class Kind {
    kPart,     // bytes as they were fetched
    kValue,    // what the listing knows, or a task takes out of a part
    kDecoded,  // `chain` makes it
    kArray,    // a call gives it back: `tensor`
  };
  std::string name;
  Kind kind = Kind::kPart;
  std::size_t index = 0;                     // of the source's part or value, or of the array
  ValueType type = ValueType::kInt64;        // of a value
  bool text = false;                         // a part that is UTF-8
  std::optional<std::uint64_t> max_bytes{};  // of a row, where the source knows that
  std::optional<ClipShape> clip{};           // of a part that is clips of media files
  bool optional = false;                     // rows need not have it
  // Of a value of the listing that is optional: the value that tells which rows have it.
  std::optional<std::size_t> presence{};
  // The number under which the bytes are requested that it is made of (SampleInput::part).
  std::optional<std::size_t> request{};
  std::unique_ptr<FieldChain> chain{};  // of what is decoded; null: another field's makes it
  TensorSpec tensor{};                  // of an array
  bool index_numbers = false;           // of an array: its numbers are those of classes
  int sample_rate = 0;                  // of an array: it is sound
  std::vector<std::string> ops{};       // that were given it, in order
};

// The fields of a sample while a pipeline's stages are read one after the other: first what the
// source gives, then what each op makes of it. One thread.
class FieldTable {
 public:
  // Makes the chain of an image, which is the engine's: it fuses decoder and transforms.
  // `decode_key` is the op with all its parameters.
  using MakeImageChain = std::function<std::unique_ptr<FieldChain>(
      const DecodeImageOp& op, std::size_t request, const std::string& decode_key)>;
  // Likewise of video.
  using MakeVideoChain = std::function<std::unique_ptr<FieldChain>(
      const DecodeVideoOp& op, std::size_t request, const ClipShape& clip)>;

  // Of an array that a call gives back, for the first op that works on it; null: no op does.
  using MakeArrayChain = std::function<std::unique_ptr<FieldChain>(const Field& array)>;

  FieldTable(std::vector<Field> fields, MakeImageChain make_image, MakeVideoChain make_video = {},
             MakeArrayChain make_array = {});

  Field* find(const std::string& name);
  std::list<Field>& fields() { return fields_; }
  const std::list<Field>& fields() const { return fields_; }
  const MakeImageChain& make_image_chain() const { return make_image_; }
  const MakeVideoChain& make_video_chain() const { return make_video_; }

  // The field that `op` is to decode, which must be a part that no stage has decoded, or bytes that
  // a call gives back; and the number under which its bytes are requested.
  Result<Field*> encoded(const std::string& name, const std::string& op);
  std::size_t request(Field& part);
  // The source's parts that are requested, in the order of the requests.
  const std::vector<std::size_t>& requested_parts() const { return requested_; }

  // A field of a new value that `op` takes out of a part, which stands behind the field `behind`,
  // and is there if that is.
  Result<Field*> make_value(const std::string& name, ValueType type, const Field& behind,
                            const std::string& op);
  // A field of a tensor that the task of another field makes, likewise.
  Result<Field*> make_decoded(const std::string& name, const Field& behind, const std::string& op);
  // The number of the first value that a task makes; those of the source come before.
  std::size_t first_made_value() const { return first_made_value_; }
  // The types of those that tasks make, or that are arrays.
  const std::vector<ValueType>& made_values() const { return made_values_; }

  // The fields of these names, which a call is given. They are no fields any more.
  Result<std::vector<Field>> take(const std::vector<CallField>& in);
  // The field of an array that a call gives back. It is a mask where it has the name of one that
  // the call was given.
  Status give(const TensorSpec& tensor, std::size_t array, int sample_rate);

  // The list of numbers that `op` takes, which must be a value that no stage has taken, or an array
  // that a call gives back, which becomes a value then.
  Result<Field*> numbers(const std::string& name, const std::string& op);
  // Values that are the numbers of an array.
  struct ArrayValue {
    std::size_t array = 0;
    std::size_t value = 0;
  };
  const std::vector<ArrayValue>& array_values() const { return array_values_; }

  // The decoded fields that an op names, or all that have geometry if it names none; for pixels,
  // all images.
  Result<std::vector<Field*>> with_geometry(const std::vector<std::string>& names,
                                            const std::string& op);
  Result<std::vector<Field*>> images(const std::vector<std::string>& names, const std::string& op);
  // Likewise for sound: the fields that an op names, or all that are sound.
  Result<std::vector<Field*>> sounds(const std::vector<std::string>& names, const std::string& op);

  // " (there are 'image', 'label')"
  std::string names() const;

 private:
  Result<Field*> insert(Field field, const Field& behind, const std::string& op);
  Result<std::vector<Field*>> movable(const std::vector<std::string>& names, const std::string& op);
  // Begins chains of the arrays that `names` name, or of all, which fit.
  void take_up(const std::vector<std::string>& names, bool (*fits)(const FieldChain&));

  std::list<Field> fields_;
  MakeImageChain make_image_;
  MakeVideoChain make_video_;
  MakeArrayChain make_array_;
  std::set<std::string> masks_;  // names of those that calls were given
  std::vector<std::size_t> requested_;
  std::size_t first_made_value_ = 0;
  std::vector<ValueType> made_values_;
  std::vector<ArrayValue> array_values_;
};

}  // namespace spdld
