// SPDX-License-Identifier: Apache-2.0
#include "source/table/coco_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "source/bytes/shown_columns.h"
#include "source/listing/item_uri.h"
#include "source/table/coco_file.h"

namespace spdld::source {
namespace {

Status invalid_coco(const std::string& file, const std::string& message) {
  return {Code::kInvalidArgument, file + ": " + message};
}

// Sorted ids, and what stands for each.
class Index {
 public:
  void add(std::int64_t id, std::uint64_t place) { places_.emplace_back(id, place); }
  // The places of two with the same id, if there are any.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> sort() {
    std::sort(places_.begin(), places_.end());
    const auto twice =
        std::adjacent_find(places_.begin(), places_.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice == places_.end()) return std::nullopt;
    return std::pair(twice[0].second, twice[1].second);
  }
  std::optional<std::uint64_t> find(std::int64_t id) const {
    const auto at =
        std::lower_bound(places_.begin(), places_.end(), std::pair(id, std::uint64_t{0}));
    if (at == places_.end() || at->first != id) return std::nullopt;
    return at->second;
  }
  const std::vector<std::pair<std::int64_t, std::uint64_t>>& places() const { return places_; }

 private:
  std::vector<std::pair<std::int64_t, std::uint64_t>> places_;
};

std::optional<BadBox::Why> wrong_with(const std::array<double, 4>& box,
                                      const CocoFile::Image& image) {
  const auto [x, y, width, height] = box;
  if (!(width > 0 && height > 0)) return BadBox::Why::kNoArea;
  constexpr double kFar = 0x1p31;
  const double right = x + width;
  const double bottom = y + height;
  const bool near = x > -kFar && y > -kFar && right < kFar && bottom < kFar;
  const auto begins_in = [](double at, std::int64_t side) {
    return side == 0 || at < static_cast<double>(side);
  };
  const bool meets =
      begins_in(x, image.width) && right > 0 && begins_in(y, image.height) && bottom > 0;
  if (!near || !meets) return BadBox::Why::kOutside;
  return std::nullopt;
}

// The file's lists turned into columns, step by step.
class CocoColumns {
 public:
  CocoColumns(const CocoSpec& spec, CocoFile file) : spec_(spec), file_(std::move(file)) {}

  Result<Coco> make(CocoOptions::BadBoxes bad_boxes) && {
    SPDLD_TRY(number_categories());
    SPDLD_ASSIGN(Columns images, image_columns());
    SPDLD_TRY(group(bad_boxes));
    std::vector<Columns> parts;
    parts.push_back(std::move(images));
    parts.push_back(object_columns());
    coco_.columns = Columns::beside(std::move(parts));
    return std::move(coco_);
  }

 private:
  Status number_categories() {
    Index by_id;
    for (const auto& category : file_.categories) by_id.add(category.id, by_id.places().size());
    if (const auto twice = by_id.sort()) {
      const auto& one = file_.categories[twice->first];
      return invalid_coco(spec_.annotations, "the category id " + std::to_string(one.id) +
                                                 " stands for " + shown_text(one.name) +
                                                 " and for " +
                                                 shown_text(file_.categories[twice->second].name));
    }
    std::vector<std::pair<std::string_view, std::int64_t>> names;
    for (const auto& [id, place] : by_id.places()) {
      const std::string& name = file_.categories[place].name;
      categories_.add(id, coco_.classes.size());
      coco_.category_ids.push_back(id);
      coco_.classes.push_back(name);
      names.emplace_back(name, id);
    }
    std::sort(names.begin(), names.end());
    const auto twice =
        std::adjacent_find(names.begin(), names.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice == names.end()) return {};
    return invalid_coco(spec_.annotations, "the categories " + std::to_string(twice[0].second) +
                                               " and " + std::to_string(twice[1].second) +
                                               " have the same name, " +
                                               shown_text(twice[0].first));
  }

  Result<Columns> image_columns() {
    if (file_.images.empty()) {
      return tl::unexpected(invalid_coco(spec_.annotations, "it has no images"));
    }
    std::vector<Columns::Info> infos{{.name = spec_.field, .type = ValueType::kText},
                                     {.name = "image_id", .type = ValueType::kInt64},
                                     {.name = "width", .type = ValueType::kInt64},
                                     {.name = "height", .type = ValueType::kInt64}};
    if (spec_.optional)
      infos.push_back({.name = spec_.field + "_present", .type = ValueType::kBool});
    SPDLD_TRY(merge_images());
    ColumnsBuilder columns(std::move(infos));
    for (const CocoFile::Image& image : file_.images) {
      const bool present = !spec_.optional || !image.file_name.empty();
      const Result<std::string_view> uri =
          present ? item_uri(image.file_name, spec_.root) : std::string_view();
      if (!uri) {
        return tl::unexpected(invalid_coco(
            spec_.annotations, "image " + std::to_string(image.id) + ": " + uri.error().message()));
      }
      columns.add(0, *uri);
      columns.add(1, image.id);
      columns.add(2, image.width);
      columns.add(3, image.height);
      if (spec_.optional) columns.add(4, present);
    }
    return std::move(columns).finish();
  }

  // An image that comes again is the same one.
  Status merge_images() {
    std::vector<std::pair<std::int64_t, std::uint64_t>> by_id;
    for (std::uint64_t i = 0; i < file_.images.size(); ++i)
      by_id.emplace_back(file_.images[i].id, i);
    std::sort(by_id.begin(), by_id.end());
    std::vector<bool> is_repeated(file_.images.size());
    for (std::size_t i = 1; i < by_id.size(); ++i) {
      if (by_id[i].first != by_id[i - 1].first) continue;
      const CocoFile::Image& one = file_.images[by_id[i - 1].second];
      const CocoFile::Image& other = file_.images[by_id[i].second];
      if (one.file_name != other.file_name)
        return invalid_coco(spec_.annotations, "the image id " + std::to_string(one.id) +
                                                   " stands for " + shown_text(one.file_name) +
                                                   " and for " + shown_text(other.file_name));
      is_repeated[by_id[i].second] = true;
      ++coco_.repeated_images;
    }
    std::uint64_t place = 0;
    std::erase_if(file_.images,
                  [&](const CocoFile::Image&) { return static_cast<bool>(is_repeated[place++]); });
    for (const CocoFile::Image& image : file_.images)
      images_.add(image.id, images_.places().size());
    images_.sort();
    return {};
  }

  // Fills first_ and order_: the annotations of each image, without those whose boxes are bad.
  Status group(CocoOptions::BadBoxes bad_boxes) {
    std::vector<std::uint64_t> image_of;
    std::vector<std::uint64_t> good;
    first_.assign(file_.images.size() + 1, 0);
    for (std::uint64_t i = 0; i < file_.annotations.size(); ++i) {
      const CocoFile::Annotation& annotation = file_.annotations[i];
      const std::string name = "annotation ";
      const std::optional<std::uint64_t> image = images_.find(annotation.image_id);
      if (!image) {
        if (coco_.orphans++ == 0) {
          coco_.orphan_id = annotation.id;
          coco_.orphan_image_id = annotation.image_id;
        }
        continue;
      }
      if (!categories_.find(annotation.category_id)) {
        return invalid_coco(spec_.annotations, name + std::to_string(annotation.id) +
                                                   ": there is no category with its category_id, " +
                                                   std::to_string(annotation.category_id));
      }
      if (const auto why = wrong_with(annotation.box, file_.images[*image])) {
        coco_.bad_boxes.push_back(
            {.annotation_id = annotation.id, .image_id = annotation.image_id, .why = *why});
        continue;
      }
      good.push_back(i);
      image_of.push_back(*image);
      ++first_[*image + 1];
    }
    if (bad_boxes == CocoOptions::BadBoxes::kFail && !coco_.bad_boxes.empty()) return bad_box();
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    order_.resize(good.size());
    std::vector<std::uint64_t> next(first_.begin(), first_.end() - 1);
    for (std::size_t i = 0; i < good.size(); ++i) order_[next[image_of[i]]++] = good[i];
    return {};
  }

  Status bad_box() const {
    const std::size_t more = coco_.bad_boxes.size() - 1;
    return invalid_coco(
        spec_.annotations,
        coco_.bad_boxes.front().text() +
            (more == 0 ? "" : ", and so it is with " + std::to_string(more) + " more") +
            "; correct the file, or let on_error replace what is bad: then such boxes "
            "are left out");
  }

  Columns object_columns() const {
    ColumnsBuilder columns({{.name = "boxes", .type = ValueType::kFloat64List},
                            {.name = "labels", .type = ValueType::kInt64List},
                            {.name = "ids", .type = ValueType::kInt64List},
                            {.name = "iscrowd", .type = ValueType::kInt64List},
                            {.name = "area", .type = ValueType::kFloat64List}});
    std::vector<double> boxes;
    std::vector<double> areas;
    std::array<std::vector<std::int64_t>, 3> numbers;
    for (std::size_t image = 0; image + 1 < first_.size(); ++image) {
      boxes.clear();
      areas.clear();
      for (auto& each : numbers) each.clear();
      for (std::uint64_t i = first_[image]; i < first_[image + 1]; ++i) {
        const CocoFile::Annotation& annotation = file_.annotations[order_[i]];
        const auto [x, y, width, height] = annotation.box;
        boxes.insert(boxes.end(), {x, y, x + width, y + height});
        areas.push_back(annotation.area);
        const std::uint64_t label = categories_.find(annotation.category_id).value_or(0);
        numbers[0].push_back(static_cast<std::int64_t>(label));
        numbers[1].push_back(annotation.id);
        numbers[2].push_back(annotation.is_crowd ? 1 : 0);
      }
      columns.add(0, std::span<const double>(boxes));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        columns.add(i + 1, std::span<const std::int64_t>(numbers[i]));
      }
      columns.add(4, std::span<const double>(areas));
    }
    return std::move(columns).finish();
  }

  const CocoSpec& spec_;
  CocoFile file_;
  Coco coco_;
  Index images_;                      // image id -> its place in the list
  Index categories_;                  // category id -> label
  std::vector<std::uint64_t> first_;  // of each image's annotations in order_, and an end
  std::vector<std::uint64_t> order_;  // places in file_.annotations
};

bool is_taken(const std::string& field) {
  constexpr std::string_view kTaken[] = {"image_id", "width", "height",  "boxes",
                                         "labels",   "ids",   "iscrowd", "area"};
  return std::find(std::begin(kTaken), std::end(kTaken), field) != std::end(kTaken);
}

}  // namespace

std::string BadBox::text() const {
  return "annotation " + std::to_string(annotation_id) + " of image " + std::to_string(image_id) +
         (why == Why::kNoArea ? ": the box has no area" : ": the box lies outside of the image");
}

Result<Coco> read_coco(const CocoSpec& spec, ReadSome read, const CocoOptions& options) {
  if (is_taken(spec.field)) {
    return tl::unexpected(
        invalid_coco(spec.annotations, "'" + spec.field + "' is the name of another field of it"));
  }
  SPDLD_ASSIGN(CocoFile file, read_coco_file(spec.annotations, std::move(read), options.max_bytes,
                                             spec.optional, options.memory));
  return CocoColumns(spec, std::move(file)).make(options.bad_boxes);
}

}  // namespace spdld::source
