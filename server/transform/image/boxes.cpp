// SPDX-License-Identifier: Apache-2.0
#include "transform/image/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "base/text/counted.h"

namespace spdld::transform {
namespace {

// A share of the image's width or height beyond this is none: it is a number of pixels.
constexpr double kMostShares = 2;

Box edges_of(const std::array<double, 4>& at, BoxFormat format) {
  const auto [a, b, c, d] = at;
  switch (format) {
    case BoxFormat::kXyxy: return {a, b, c, d};
    case BoxFormat::kXywh: return {a, b, a + c, b + d};
    case BoxFormat::kCxcywh: return {a - c / 2, b - d / 2, a + c / 2, b + d / 2};
  }
  return {};
}

const char* name_of(BoxFormat format) {
  return format == BoxFormat::kXyxy ? "xyxy" : format == BoxFormat::kXywh ? "xywh" : "cxcywh";
}

// What is wrong with the numbers of a box, or nothing.
std::string wrong_with(const std::array<double, 4>& at, BoxFormat format, bool normalized) {
  const auto finite = [](double number) { return std::isfinite(number); };
  const Box box = edges_of(at, format);
  if (!std::all_of(at.begin(), at.end(), finite) || !finite(box.right) || !finite(box.bottom) ||
      !finite(box.left) || !finite(box.top))
    return "a number that is not finite";
  if (format == BoxFormat::kXyxy) {
    if (box.right < box.left) return "its right edge left of its left one";
    if (box.bottom < box.top) return "its bottom edge above its top one";
  } else {
    if (at[2] < 0) return "a width below 0";
    if (at[3] < 0) return "a height below 0";
  }
  const auto far = [](double share) { return std::abs(share) > kMostShares; };
  if (normalized && std::any_of(at.begin(), at.end(), far))
    return "more than shares of an image, which lie between 0 and 1";
  return {};
}

template <typename Number>
Status read(std::span<const Number> numbers, BoxFormat format, bool normalized, Size image,
            const std::string& name, std::vector<Box>& boxes) {
  if (numbers.size() % 4 != 0)
    return {Code::kDataLoss, "its field '" + name + "' has " + counted(numbers.size(), "number") +
                                 ", and each box takes 4"};
  const double width = normalized ? image.width : 1;
  const double height = normalized ? image.height : 1;
  boxes.clear();
  for (std::size_t i = 0; i < numbers.size(); i += 4) {
    const std::array<double, 4> at{
        static_cast<double>(numbers[i]), static_cast<double>(numbers[i + 1]),
        static_cast<double>(numbers[i + 2]), static_cast<double>(numbers[i + 3])};
    if (const std::string wrong = wrong_with(at, format, normalized); !wrong.empty())
      return {Code::kDataLoss,
              fmt::format("{}[{}] is [{}, {}, {}, {}], which as {} has {}: say what "
                          "the numbers are by 'format' and 'normalized' of 'bounding_boxes'",
                          name, i / 4, at[0], at[1], at[2], at[3], name_of(format), wrong)};
    const Box box = edges_of(at, format);
    boxes.push_back({box.left * width, box.top * height, box.right * width, box.bottom * height});
  }
  return {};
}

void shift(double x, double y, Box& box) {
  box.left += x;
  box.right += x;
  box.top += y;
  box.bottom += y;
}

}  // namespace

Status read_boxes(const Value& value, BoxFormat format, bool normalized, Size image,
                  const std::string& name, std::vector<Box>& boxes) {
  if (const auto* integers = std::get_if<std::span<const std::int64_t>>(&value))
    return read(*integers, format, normalized, image, name, boxes);
  return read(std::get<std::span<const double>>(value), format, normalized, image, name, boxes);
}

void move_boxes(const Geometry& step, Size from, std::span<Box> boxes) {
  const bool cuts_before = step.cropped && step.crop != Rect{0, 0, from.width, from.height};
  const double x_ratio = static_cast<double>(step.scaled.width) / step.crop.width;
  const double y_ratio = static_cast<double>(step.scaled.height) / step.crop.height;
  for (Box& box : boxes) shift(-step.crop.x, -step.crop.y, box);
  if (cuts_before) clip_boxes(step.crop.size(), boxes);
  for (Box& box : boxes) {
    box = {box.left * x_ratio, box.top * y_ratio, box.right * x_ratio, box.bottom * y_ratio};
    shift(-step.window.x, -step.window.y, box);
  }
  if (step.cropped) clip_boxes(step.window.size(), boxes);
  if (!step.flip) return;
  for (Box& box : boxes) {
    const double left = box.left;
    box.left = step.window.width - box.right;
    box.right = step.window.width - left;
  }
}

void clip_boxes(Size image, std::span<Box> boxes) {
  const double width = image.width;
  const double height = image.height;
  for (Box& box : boxes) {
    box = {std::clamp(box.left, 0.0, width), std::clamp(box.top, 0.0, height),
           std::clamp(box.right, 0.0, width), std::clamp(box.bottom, 0.0, height)};
  }
}

}  // namespace spdld::transform
