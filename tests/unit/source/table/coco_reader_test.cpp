// SPDX-License-Identifier: Apache-2.0
#include "source/table/coco_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/source/read_of.h"
#include "tests/unit/source/table/table_maker.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Integers = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

const CocoSpec kSpec = {.annotations = "/i.json", .root = "/data"};
constexpr const char* kImages =
    R"([{"id": 9, "file_name": "b.jpg", "width": 100, "height": 50, "license": 3},
        {"height": 20, "width": 10, "file_name": "d/a.jpg", "id": 4}])";
constexpr const char* kCategories =
    R"([{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person", "supercategory": "p"},
        {"name": "car", "id": 3}])";

std::string file_of(const std::string& annotations, const std::string& images = kImages,
                    const std::string& categories = kCategories) {
  return R"({"info": {"year": 2017}, "images": )" + images + R"(, "annotations": )" + annotations +
         R"(, "categories": )" + categories + "}";
}

std::string annotation(int id, int image, int category, const std::string& box,
                       const std::string& more = "") {
  return R"({"id": )" + std::to_string(id) + R"(, "image_id": )" + std::to_string(image) +
         R"(, "category_id": )" + std::to_string(category) + R"(, "bbox": )" + box + more + "}";
}

Coco read(const std::string& text, const CocoOptions& options = {}) {
  Result<Coco> coco = read_coco(kSpec, read_of(text), options);
  EXPECT_TRUE(coco) << coco.error().message();
  return coco ? std::move(*coco) : Coco();
}

std::string coco_error(const std::string& text, const CocoOptions& options = {}) {
  const Result<Coco> coco = read_coco(kSpec, read_of(text), options);
  if (!coco) return coco.error().message();
  ADD_FAILURE() << "no error for: " << text.substr(0, 200);
  return "";
}

TEST(Coco, GivesImagesInTheOrderOfTheirListWithTheirBoxes) {
  const Coco coco = read(
      file_of("[" + annotation(7, 4, 3, "[1, 2, 3.5, 4]", R"(, "area": 12.5, "iscrowd": 1)") + "," +
              annotation(5, 9, 90, "[0, 0, 100, 50]", R"(, "segmentation": [[1, 2, "]\"", {}]])") +
              "," + annotation(6, 4, 1, "[0, 0, 1, 1]", R"(, "iscrowd": false)") + "]"));
  const Columns& columns = coco.columns;
  EXPECT_THAT(column_of<std::string>(columns, "image"), ElementsAre("b.jpg", "d/a.jpg"));
  EXPECT_THAT(column_of<std::int64_t>(columns, "image_id"), ElementsAre(9, 4));
  EXPECT_THAT(column_of<std::int64_t>(columns, "width"), ElementsAre(100, 10));
  EXPECT_THAT(column_of<std::int64_t>(columns, "height"), ElementsAre(50, 20));
  EXPECT_THAT(column_of<Numbers>(columns, "boxes"),
              ElementsAre(Numbers{0, 0, 100, 50}, Numbers{1, 2, 4.5, 6, 0, 0, 1, 1}));
  EXPECT_THAT(column_of<Integers>(columns, "labels"), ElementsAre(Integers{2}, Integers{1, 0}));
  EXPECT_THAT(column_of<Integers>(columns, "ids"), ElementsAre(Integers{5}, Integers{7, 6}));
  EXPECT_THAT(column_of<Integers>(columns, "iscrowd"), ElementsAre(Integers{0}, Integers{1, 0}));
  EXPECT_THAT(column_of<Numbers>(columns, "area"), ElementsAre(Numbers{5000}, Numbers{12.5, 1}));
}

TEST(Coco, TakesImagesWithoutAFileWhereThatIsOptional) {
  const std::string images =
      R"([{"id": 1, "width": 1, "height": 1}, {"id": 2, "width": 1, "height": 1, "file_name": ""},
          {"id": 3, "width": 1, "height": 1, "file_name": null},
          {"id": 4, "width": 1, "height": 1, "file_name": "a.jpg"}])";
  EXPECT_THAT(coco_error(file_of("[]", images)), HasSubstr("image 1 has no 'file_name'"));
  CocoSpec spec = kSpec;
  spec.optional = true;
  const Result<Coco> coco = read_coco(spec, read_of(file_of("[]", images)));
  ASSERT_TRUE(coco) << coco.error().message();
  EXPECT_THAT(column_of<std::string>(coco->columns, "image"), ElementsAre("", "", "", "a.jpg"));
  EXPECT_THAT(column_of<bool>(coco->columns, "image_present"),
              ElementsAre(false, false, false, true));
}

TEST(Coco, NumbersCategoriesWithGapsWithoutGaps) {
  const Coco coco = read(file_of("[]"));
  EXPECT_THAT(coco.classes, ElementsAre("person", "car", "toothbrush"));
  EXPECT_THAT(coco.category_ids, ElementsAre(1, 3, 90));
  EXPECT_THAT(column_of<Numbers>(coco.columns, "boxes"), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(Coco, IsTheSameWhereverReadsEnd) {
  const std::string text = file_of(
      "[" + annotation(7, 4, 3, "[1, 2, 3.5, 4]", R"(, "segmentation" : {"a\"": [1, "}"]})") +
      ", " + annotation(8, 4, 3, "[1, 2, 3, 4]", R"(, "area": 1e1)") + "]");
  const std::string whole = read(text).columns.digest();
  for (std::size_t part = 1; part <= text.size(); ++part) {
    const Result<Coco> coco = read_coco(kSpec, read_of(text, part));
    ASSERT_TRUE(coco) << coco.error().message();
    EXPECT_EQ(coco->columns.digest(), whole) << part;
  }
}

TEST(Coco, KeepsOrderOfAnnotationsOfAnImageWhateverStandsBetween) {
  std::string annotations = "[";
  for (int i = 0; i < 1000; ++i) {
    annotations += (i == 0 ? "" : ",") + annotation(i, i % 3 == 0 ? 9 : 4, 1, "[0, 0, 1, 1]");
  }
  const auto ids = column_of<Integers>(read(file_of(annotations + "]")).columns, "ids");
  EXPECT_EQ(ids[0].size() + ids[1].size(), 1000U);
  EXPECT_TRUE(std::is_sorted(ids[0].begin(), ids[0].end()));
  EXPECT_TRUE(std::is_sorted(ids[1].begin(), ids[1].end()));
}

TEST(Coco, LeavesOutUselessBoxesOnlyWhereAskedTo) {
  const std::string text = file_of(
      "[" + annotation(1, 4, 1, "[1, 1, 0, 5]") + "," + annotation(2, 4, 1, "[1, 1, 5, -5]") + "," +
      annotation(3, 4, 1, "[10, 0, 5, 5]") + "," + annotation(4, 4, 1, "[-5, 0, 5, 5]") + "," +
      annotation(5, 4, 1, "[0, 0, 1e300, 1e300]") + "," + annotation(6, 4, 1, "[-5, -5, 90, 90]") +
      "]");
  EXPECT_EQ(coco_error(text),
            "/i.json: annotation 1 of image 4: the box has no area, and so it is with 4 more; "
            "correct the file, or let on_error replace what is bad: then such boxes are left out");
  const Coco coco = read(text, {.bad_boxes = CocoOptions::BadBoxes::kDrop});
  using Why = BadBox::Why;
  EXPECT_THAT(coco.bad_boxes, ElementsAre(BadBox{1, 4, Why::kNoArea}, BadBox{2, 4, Why::kNoArea},
                                          BadBox{3, 4, Why::kOutside}, BadBox{4, 4, Why::kOutside},
                                          BadBox{5, 4, Why::kOutside}));
  EXPECT_EQ(coco.bad_boxes[2].text(), "annotation 3 of image 4: the box lies outside of the image");
  EXPECT_THAT(column_of<Integers>(coco.columns, "ids"), ElementsAre(Integers{}, Integers{6}));
  EXPECT_THAT(column_of<Numbers>(coco.columns, "boxes"),
              ElementsAre(Numbers{}, Numbers{-5, -5, 85, 85}));
}

TEST(Coco, LeavesOutAnnotationsOfImagesThatAreNotThere) {
  const Coco coco = read(file_of("[" + annotation(17, 5, 1, "[0, 0, 1, 1]") + "," +
                                 annotation(18, 4, 1, "[0, 0, 1, 1]") + "," +
                                 annotation(19, 6, 1, "[0, 0, 1, 1]") + "]"));
  EXPECT_THAT(column_of<Integers>(coco.columns, "ids"), ElementsAre(Integers{}, Integers{18}));
  EXPECT_EQ(coco.orphans, 2u);
  EXPECT_EQ(coco.orphan_id, 17);
  EXPECT_EQ(coco.orphan_image_id, 5);
}

TEST(Coco, TakesAnImageThatComesAgainForOne) {
  const std::string images =
      R"([{"id": 9, "file_name": "b.jpg", "width": 100, "height": 50},
          {"id": 4, "file_name": "a.jpg", "width": 10, "height": 20},
          {"id": 9, "file_name": "b.jpg", "width": 100, "height": 50}])";
  const Coco coco = read(file_of(
      "[" + annotation(1, 9, 1, "[0, 0, 1, 1]") + "," + annotation(2, 9, 3, "[0, 0, 2, 2]") + "]",
      images));
  EXPECT_THAT(column_of<std::int64_t>(coco.columns, "image_id"), ElementsAre(9, 4));
  EXPECT_THAT(column_of<Integers>(coco.columns, "ids"), ElementsAre(Integers{1, 2}, Integers{}));
  EXPECT_EQ(coco.repeated_images, 1u);
}

TEST(Coco, TakesImagesWithoutASize) {
  const std::string images =
      R"([{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg", "width": null},
          {"id": 3, "file_name": "c.jpg", "width": 0, "height": 0}])";
  const Coco coco = read(file_of("[" + annotation(1, 1, 1, "[500, 500, 1, 1]") + "," +
                                     annotation(2, 3, 1, "[-5, 0, 1, 1]") + "]",
                                 images),
                         {.bad_boxes = CocoOptions::BadBoxes::kDrop});
  EXPECT_THAT(column_of<std::int64_t>(coco.columns, "width"), ElementsAre(0, 0, 0));
  EXPECT_THAT(column_of<Numbers>(coco.columns, "boxes"),
              ElementsAre(Numbers{500, 500, 501, 501}, Numbers{}, Numbers{}));
  EXPECT_EQ(coco.bad_boxes.size(), 1u) << "no image reaches to the left of 0";
}

TEST(Coco, TakesIdsThatAreTexts) {
  const Coco coco =
      read(file_of(R"([{"id": "7", "image_id": "9", "category_id": "3", "bbox": [0, 0, 1, 1]}])",
                   R"([{"id": "9", "file_name": "b.jpg"}])", R"([{"id": "3", "name": "car"}])"));
  EXPECT_THAT(column_of<std::int64_t>(coco.columns, "image_id"), ElementsAre(9));
  EXPECT_THAT(column_of<Integers>(coco.columns, "ids"), ElementsAre(Integers{7}));
  EXPECT_THAT(coco.category_ids, ElementsAre(3));
}

TEST(CocoErrors, NameTheAnnotation) {
  EXPECT_EQ(coco_error(file_of("[" + annotation(17, 4, 2, "[0, 0, 1, 1]") + "]")),
            "/i.json: annotation 17: there is no category with its category_id, 2");
  EXPECT_THAT(
      coco_error(file_of("[" + annotation(17, 4, 1, "[0, 0, 1]") + "]")),
      HasSubstr(": annotation 17: 'bbox' holds a list of 3, and not a list of four numbers"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, "[0, 0, 1, 1, 1]") + "]")),
              HasSubstr(": annotation 17: 'bbox' holds a list of more"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, "[0, 0, 1, null]") + "]")),
              HasSubstr(": annotation 17: 'bbox' holds a list with null"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, "[[0, 0, 1, 1]]") + "]")),
              HasSubstr(": annotation 17: 'bbox' holds a list, and not a list of four numbers"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, "{}") + "]")),
              HasSubstr(": annotation 17: 'bbox' holds an object"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, "[0, 0, 1, 1e999]") + "]")),
              HasSubstr("this is no JSON"));
  const std::string box = "[0, 0, 1, 1]";
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, box, R"(, "iscrowd": 2)") + "]")),
              HasSubstr(": annotation 17: 'iscrowd' holds an integer, and not 0 or 1"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, box, R"(, "id": 17)") + "]")),
              HasSubstr(": annotation 17: 'id' is there twice"));
  EXPECT_THAT(coco_error(file_of("[{}, " + annotation(17, 4, 1, box) + "]")),
              HasSubstr(": annotations[0] has no 'id'"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, box) + R"(, {"id": "x"}])")),
              HasSubstr(": annotations[1]: 'id' holds a text, and not an integer"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, box) + R"(, {"id": 18}])")),
              HasSubstr(": annotation 18 has no 'image_id'"));
  EXPECT_THAT(coco_error(file_of("[" + annotation(17, 4, 1, box) + ", 7]")),
              HasSubstr(": annotations[1] is an integer, and no object"));
}

TEST(CocoErrors, NameImagesAndCategoriesThatCannotBe) {
  const auto with_images = [](const std::string& images) {
    return coco_error(file_of("[]", images));
  };
  EXPECT_EQ(with_images("[]"), "/i.json: it has no images");
  EXPECT_EQ(with_images(R"([{"id": 1, "file_name": "a", "width": 1, "height": 1},
                            {"id": 1, "file_name": "b", "width": 1, "height": 1}])"),
            "/i.json: the image id 1 stands for 'a' and for 'b'");
  EXPECT_EQ(with_images(R"([{"id": 1, "file_name": "../a", "width": 1, "height": 1}])"),
            "/i.json: image 1: '../a' has '..' as a part; set root to a directory above all items");
  EXPECT_THAT(with_images(R"([{"id": 1, "file_name": "a", "width": -1, "height": 1}])"),
              HasSubstr(": image 1 has an impossible size: -1 x 1"));
  EXPECT_THAT(with_images(R"([{"id": 1, "file_name": "a", "width": "1"}])"),
              HasSubstr(": image 1: 'width' holds a text, and not an integer"));
  EXPECT_THAT(with_images(R"([{"id": 1.5}])"),
              HasSubstr(": images[0]: 'id' holds a number, and not an integer"));
  EXPECT_THAT(with_images(R"([{"id": 99999999999999999999}])"),
              HasSubstr("'id' holds an integer too large, and not an integer"));
  EXPECT_THAT(with_images("[[]]"), HasSubstr(": images[0] is a list, and no object"));
  EXPECT_THAT(with_images("{}"), HasSubstr(": 'images' holds an object, and no list"));
  EXPECT_THAT(with_images("null"), HasSubstr(": 'images' holds null, and no list"));

  const auto with_categories = [](const std::string& categories) {
    return coco_error(file_of("[]", kImages, categories));
  };
  EXPECT_EQ(with_categories(R"([{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])"),
            "/i.json: the category id 1 stands for 'a' and for 'b'");
  EXPECT_EQ(with_categories(R"([{"id": 2, "name": "a"}, {"id": 1, "name": "a"}])"),
            "/i.json: the categories 1 and 2 have the same name, 'a'");
  EXPECT_THAT(with_categories(R"([{"id": 1, "name": ""}])"),
              HasSubstr(": category 1: '' is no name"));
}

TEST(CocoErrors, TellFilesOfOtherKindsApart) {
  EXPECT_EQ(coco_error("{}"),
            "/i.json has no list 'images'; COCO's format for object detection has images, "
            "annotations and categories");
  EXPECT_THAT(coco_error(R"({"images": [], "annotations": []})"),
              HasSubstr("has no list 'categories'"));
  EXPECT_THAT(coco_error(R"([{"image_id": 1}])"),
              StartsWith("/i.json:1:1: the file holds a list, and no object"));
  EXPECT_THAT(coco_error("7"), HasSubstr("the file holds an integer"));
  EXPECT_THAT(coco_error(""), StartsWith("/i.json:1:1: this is no JSON: "));
  EXPECT_THAT(coco_error("{\n\"images\": [}"), StartsWith("/i.json:2:12: this is no JSON: "));
  EXPECT_THAT(coco_error(R"({"images": [], "images": []})"), HasSubstr("'images' is there twice"));
  EXPECT_THAT(coco_error(file_of("[]") + "x"), HasSubstr("this is no JSON"));
  EXPECT_THAT(coco_error(R"({"images": [{"file_name": ")"
                         "\xE4"
                         R"("}]})"),
              HasSubstr("ill-formed UTF-8"));
}

TEST(CocoErrors, CountLinesAndColumnsOverAllParts) {
  const std::string text = "{\n\n  \"info\": \"\xC3\xA9\",  \"images\": 7}";
  for (std::size_t part = 1; part <= text.size(); ++part) {
    const Result<Coco> coco = read_coco(kSpec, read_of(text, part));
    ASSERT_FALSE(coco);
    EXPECT_THAT(coco.error().message(), StartsWith("/i.json:3:28: 'images' holds an integer"))
        << part;
  }
}

TEST(CocoErrors, RefuseWhatIsTooDeepOrTooLarge) {
  const auto skipped = [](int depth) {
    return file_of("[]").insert(
        1, R"("x": )" + std::string(depth, '[') + std::string(depth, ']') + ", ");
  };
  EXPECT_TRUE(read_coco(kSpec, read_of(skipped(63))));
  EXPECT_THAT(coco_error(skipped(64)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(coco_error(skipped(1'000'000)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(coco_error("{\"" + std::string(17 << 20, 'x') + "\": 1}"),
              HasSubstr("a single key, text or number has more than 16 MiB"));
  EXPECT_EQ(coco_error(file_of("[]"), {.max_bytes = 300}),
            "/i.json: its lists take more than 300 bytes of memory; split the file");
}

TEST(CocoErrors, SayThatReadingFailed) {
  int reads = 0;
  const ReadSome read = [&reads](std::span<char> into) -> Result<std::size_t> {
    if (++reads == 2) return error(Code::kUnavailable, "cannot read /i.json: the disk is gone");
    into[0] = '{';
    return 1;
  };
  const Result<Coco> coco = read_coco(kSpec, read);
  ASSERT_FALSE(coco);
  EXPECT_EQ(coco.error(), Status(Code::kUnavailable, "cannot read /i.json: the disk is gone"));
}

TEST(CocoErrors, RefuseAFieldThatHasTheNameOfAnother) {
  CocoSpec spec = kSpec;
  spec.field = "boxes";
  const Result<Coco> coco = read_coco(spec, read_of(file_of("[]")));
  ASSERT_FALSE(coco);
  EXPECT_EQ(coco.error().message(), "/i.json: 'boxes' is the name of another field of it");
}

}  // namespace
}  // namespace spdld::source
