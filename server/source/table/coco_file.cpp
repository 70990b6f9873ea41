// SPDX-License-Identifier: Apache-2.0
#include "source/table/coco_file.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "op/json_events.h"
#include "source/bytes/shown_columns.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxToken = std::size_t{16} << 20;
// With what is made of them later: columns, and the order of the annotations.
constexpr std::uint64_t kImageBytes = 192;
constexpr std::uint64_t kAnnotationBytes = 160;
constexpr std::uint64_t kCategoryBytes = 96;
constexpr std::int64_t kMaxSide = std::int64_t{1} << 31;

enum class Section { kImages, kAnnotations, kCategories };
constexpr std::array<std::string_view, 3> kSections = {"images", "annotations", "categories"};
constexpr std::array<std::string_view, 3> kOne = {"image", "annotation", "category"};

enum class Kind { kId, kSide, kNumber, kText, kFlag, kBox };

struct Field {
  Section section;
  std::string_view name;
  Kind kind;
  bool required = true;
};
constexpr std::array<Field, 12> kFields = {{
    {Section::kImages, "id", Kind::kId},
    {Section::kImages, "width", Kind::kSide, false},
    {Section::kImages, "height", Kind::kSide, false},
    {Section::kImages, "file_name", Kind::kText},
    {Section::kAnnotations, "id", Kind::kId},
    {Section::kAnnotations, "image_id", Kind::kId},
    {Section::kAnnotations, "category_id", Kind::kId},
    {Section::kAnnotations, "bbox", Kind::kBox},
    {Section::kAnnotations, "area", Kind::kNumber, false},
    {Section::kAnnotations, "iscrowd", Kind::kFlag, false},
    {Section::kCategories, "id", Kind::kId},
    {Section::kCategories, "name", Kind::kText},
}};
constexpr std::size_t kFileName = 3;
constexpr std::size_t kArea = 8;
static_assert(kFields[kFileName].name == "file_name" && kFields[kArea].name == "area");

std::string wanted(Kind kind) {
  switch (kind) {
    case Kind::kId:
    case Kind::kSide: return "an integer";
    case Kind::kNumber: return "a number";
    case Kind::kText: return "a text";
    case Kind::kFlag: return "0 or 1";
    case Kind::kBox: return "a list of four numbers";
  }
  return "";
}

std::optional<double> number_of(const JsonScalar& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  const auto* huge = std::get_if<HugeInteger>(&value);
  if (huge == nullptr) return std::nullopt;
  double nearest = 0;
  std::from_chars(huge->digits.data(), huge->digits.data() + huge->digits.size(), nearest);
  return nearest;
}

// Some programs write 640.0 for 640.
std::optional<std::int64_t> integer_of(const JsonScalar& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  const auto* number = std::get_if<double>(&value);
  constexpr double kExact = 0x1p53;
  if (number == nullptr || std::abs(*number) > kExact || std::floor(*number) != *number) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*number);
}

// Other programs write "17" for 17.
std::optional<std::int64_t> id_of(const JsonScalar& value) {
  const auto* const text = std::get_if<std::string_view>(&value);
  if (text == nullptr) return integer_of(value);
  std::int64_t id = 0;
  const char* const end = text->data() + text->size();
  const auto [at, failed] = std::from_chars(text->data(), end, id);
  if (failed != std::errc() || at != end) return std::nullopt;
  return id;
}

// Goes through the file: the root, a list, an object of it, its box.
class CocoParser final : public JsonEvents {
 public:
  CocoParser(std::string name, ReadSome read, std::uint64_t max_bytes, bool files_optional,
             ListingMemory::SharePtr memory)
      : name_(std::move(name)),
        text_(std::move(read), kMaxToken),
        max_bytes_(max_bytes),
        memory_(std::move(memory)),
        files_optional_(files_optional) {}

  Result<CocoFile> parse() && {
    const std::string broken = parse_json(text_, *this);
    if (!failure_.ok()) return tl::unexpected(failure_);
    // An error of reading names the file, one of the text's bounds does not.
    if (const Status& status = text_.status(); !status.ok()) {
      return tl::unexpected(status.code() == Code::kInvalidArgument ? here(status.message())
                                                                    : status);
    }
    if (!broken.empty()) return tl::unexpected(here(broken));
    for (std::size_t i = 0; i < kSections.size(); ++i) {
      if (sections_[i]) continue;
      return error(Code::kInvalidArgument,
                   name_ + " has no list '" + std::string(kSections[i]) +
                       "'; COCO's format for object detection has images, annotations and "
                       "categories");
    }
    return std::move(file_);
  }

  Next key(std::string_view key) override {
    if (level_ == Level::kRoot) {
      for (std::size_t i = 0; i < kSections.size(); ++i) {
        if (kSections[i] != key) continue;
        if (sections_[i]) {
          stop(here("'" + std::string(key) + "' is there twice"));
          return Next::kStop;
        }
        section_ = static_cast<Section>(i);
        sections_[i] = true;
        index_ = 0;
        return Next::kRead;
      }
      return Next::kSkip;
    }
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (kFields[i].section != section_ || kFields[i].name != key) continue;
      field_ = i;
      if ((seen_ & bit(i)) != 0) {
        stop(fail("is there twice"));
        return Next::kStop;
      }
      return Next::kRead;
    }
    return Next::kSkip;
  }

  bool begin_object() override {
    if (level_ == Level::kStart) {
      level_ = Level::kRoot;
      return true;
    }
    if (level_ != Level::kList) return refuse("an object");
    level_ = Level::kObject;
    seen_ = 0;
    image_ = {};
    annotation_ = {};
    category_ = {};
    return true;
  }

  bool begin_array() override {
    if (level_ == Level::kRoot) {
      level_ = Level::kList;
      return true;
    }
    if (level_ != Level::kObject || kFields[field_].kind != Kind::kBox) return refuse("a list");
    level_ = Level::kBox;
    box_size_ = 0;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kRoot) {
      level_ = Level::kEnd;
      return true;
    }
    level_ = Level::kList;
    return finish_object();
  }

  bool end_array() override {
    if (level_ == Level::kList) {
      level_ = Level::kRoot;
      return true;
    }
    level_ = Level::kObject;
    if (box_size_ != 4) return refuse("a list of " + std::to_string(box_size_));
    seen_ |= bit(field_);
    return true;
  }

  bool scalar(const JsonScalar& value) override {
    if (level_ == Level::kBox) {
      const std::optional<double> number = number_of(value);
      if (!number) return refuse("a list with " + std::string(kind_of(value)));
      if (box_size_ == 4) return refuse("a list of more");
      annotation_.box[box_size_++] = *number;
      return true;
    }
    if (level_ != Level::kObject || !take(value)) return refuse(std::string(kind_of(value)));
    seen_ |= bit(field_);
    return true;
  }

 private:
  enum class Level { kStart, kRoot, kList, kObject, kBox, kEnd };

  static std::uint32_t bit(std::size_t field) { return std::uint32_t{1} << field; }

  Status here(const std::string& message) const { return text_.place().fail(name_, message); }

  // The object that is being read.
  std::string object() const {
    const auto section = static_cast<std::size_t>(section_);
    if (id_) return std::string(kOne[section]) + " " + std::to_string(*id_);
    return std::string(kSections[section]) + "[" + std::to_string(index_) + "]";
  }

  Status fail(const std::string& message) const {
    return here(object() + ": '" + std::string(kFields[field_].name) + "' " + message);
  }

  bool stop(Status status) {
    failure_ = std::move(status);
    return false;
  }

  bool refuse(const std::string& what) {
    switch (level_) {
      case Level::kStart:
      case Level::kEnd:
        return stop(here("the file holds " + what +
                         ", and no object with images, annotations and "
                         "categories"));
      case Level::kRoot:
        return stop(here("'" + std::string(kSections[static_cast<std::size_t>(section_)]) +
                         "' holds " + what + ", and no list"));
      case Level::kList: return stop(here(object() + " is " + what + ", and no object"));
      case Level::kObject:
      case Level::kBox: break;
    }
    return stop(fail("holds " + what + ", and not " + wanted(kFields[field_].kind)));
  }

  bool take(const JsonScalar& value) {
    const Field& field = kFields[field_];
    if (field_ == kFileName && files_optional_ && std::holds_alternative<std::monostate>(value))
      return true;
    if (field.kind == Kind::kText) {
      const auto* text = std::get_if<std::string_view>(&value);
      if (text == nullptr) return false;
      (section_ == Section::kImages ? image_.file_name : category_.name) = *text;
      return true;
    }
    if (field.kind == Kind::kNumber) {
      const std::optional<double> number = number_of(value);
      annotation_.area = number.value_or(0);
      return number.has_value();
    }
    if (field.kind == Kind::kFlag) {
      const auto* truth = std::get_if<bool>(&value);
      const std::optional<std::int64_t> integer = truth == nullptr ? integer_of(value) : *truth;
      annotation_.is_crowd = integer == 1;
      return integer == 0 || integer == 1;
    }
    const bool is_side = field.kind == Kind::kSide;
    if (is_side && std::holds_alternative<std::monostate>(value)) return true;
    const std::optional<std::int64_t> integer = is_side ? integer_of(value) : id_of(value);
    if ((!is_side && field.kind != Kind::kId) || !integer) return false;
    if (field.name == "id") id_ = *integer;
    if (field.name == "width") image_.width = *integer;
    if (field.name == "height") image_.height = *integer;
    if (field.name == "image_id") annotation_.image_id = *integer;
    if (field.name == "category_id") annotation_.category_id = *integer;
    return true;
  }

  bool finish_object() {
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (kFields[i].section != section_ || !kFields[i].required || (seen_ & bit(i)) != 0) continue;
      if (i == kFileName && files_optional_) continue;
      return stop(here(object() + " has no '" + std::string(kFields[i].name) + "'"));
    }
    if (section_ == Section::kImages) {
      if (image_.width < 0 || image_.height < 0 || image_.width > kMaxSide ||
          image_.height > kMaxSide) {
        return stop(here(object() + " has an impossible size: " + std::to_string(image_.width) +
                         " x " + std::to_string(image_.height)));
      }
      image_.id = *id_;
      bytes_ += kImageBytes + image_.file_name.size();
      file_.images.push_back(std::move(image_));
    } else if (section_ == Section::kAnnotations) {
      annotation_.id = *id_;
      if ((seen_ & bit(kArea)) == 0) annotation_.area = annotation_.box[2] * annotation_.box[3];
      bytes_ += kAnnotationBytes;
      file_.annotations.push_back(annotation_);
    } else {
      if (category_.name.empty() || category_.name.find('\0') != std::string::npos) {
        return stop(here(object() + ": " + shown_text(category_.name) + " is no name"));
      }
      category_.id = *id_;
      bytes_ += kCategoryBytes + category_.name.size();
      file_.categories.push_back(std::move(category_));
    }
    ++index_;
    id_.reset();
    if (bytes_ <= max_bytes_) {
      if (memory_ == nullptr) return true;
      Status asked = memory_->cover(bytes_).with_context(name_);
      return asked.ok() || stop(std::move(asked));
    }
    return stop({Code::kResourceExhausted, name_ + ": its lists take more than " +
                                               std::to_string(max_bytes_) +
                                               " bytes of memory; split the file"});
  }

  const std::string name_;
  JsonText text_;
  const std::uint64_t max_bytes_;
  const ListingMemory::SharePtr memory_;
  const bool files_optional_;
  std::uint64_t bytes_ = 0;
  CocoFile file_;
  Status failure_;

  Level level_ = Level::kStart;
  Section section_ = Section::kImages;
  std::array<bool, 3> sections_{};  // which of them have been there
  std::uint64_t index_ = 0;         // of the object in its list
  std::size_t field_ = 0;           // whose value is read
  std::uint32_t seen_ = 0;          // fields of the object
  std::optional<std::int64_t> id_;
  CocoFile::Image image_;
  CocoFile::Annotation annotation_;
  CocoFile::Category category_;
  std::size_t box_size_ = 0;
};

}  // namespace

Result<CocoFile> read_coco_file(const std::string& file, ReadSome read, std::uint64_t max_bytes,
                                bool files_optional, const ListingMemory::SharePtr& memory) {
  return CocoParser(file, std::move(read), max_bytes, files_optional, memory).parse();
}

}  // namespace spdld::source
