// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctl/init/survey.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using test::ScratchDir;
using test::TarBlock;
using test::TarWriter;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InitTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  void write(const std::string& name, const std::string& text = "x") const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }

  // Samples of a picture and a caption.
  void write_shard(const std::string& name, int samples = 2, const std::string& ending = "jpg") {
    TarWriter tar;
    for (int i = 0; i < samples; ++i) {
      tar.file("some/" + std::to_string(i) + "." + ending, "picture");
      tar.file("some/" + std::to_string(i) + ".txt", "caption");
    }
    write(name, tar.archive());
  }

  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string drafted(const std::string& name = "") const {
    const Outcome outcome = spdlctl({"init", path(name)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }

  std::string refused(const std::vector<std::string>& arguments) const {
    const Outcome outcome = spdlctl(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }
  std::string refused(const std::string& name = "") const {
    return refused(std::vector<std::string>{"init", path(name)});
  }

  ScratchDir dir_;
};

TEST_F(InitTest, TakesFoldersAsClasses) {
  write("pets/cat/1.JPEG");
  write("pets/cat/more/2.png");
  write("pets/dog/3.JPEG");
  write("pets/dog/notes.md");
  write("pets/dog/.hidden.png");
  const std::string text = drafted("pets/");
  EXPECT_THAT(text, AllOf(HasSubstr("# 3 images: 2 .JPEG and 1 .png.\n"),
                          HasSubstr("2 folders, which are taken as classes: cat and dog.\n"),
                          HasSubstr("1 other file, such as dog/notes.md"),
                          HasSubstr("\npipeline: pets\n"), HasSubstr("label: parent_dir"),
                          HasSubstr("with exif: false, neither does this.\n"
                                    "  - decode_image: {mode: rgb}\n"),
                          HasSubstr("root: \"" + path("pets") + "\""),
                          HasSubstr("pattern: \"**/*.{JPEG,png}\""),
                          HasSubstr("random_resized_crop"), HasSubstr("batch: {size: 3}")));
}

TEST_F(InitTest, TakesImagesSideBySideAsUnlabelled) {
  write("pets/1.jpg");
  write("pets/more/2.jpg");
  EXPECT_THAT(drafted("pets"), AllOf(HasSubstr("pattern: \"**/*.jpg\""),
                                     Not(HasSubstr("parent_dir")), Not(HasSubstr("ImageFolder"))));
}

TEST_F(InitTest, TakesVideosAsClips) {
  for (int i = 0; i < 9; ++i) write("films/climb/" + std::to_string(i) + ".mp4");
  write("films/swim/a.MOV");
  EXPECT_THAT(
      drafted("films"),
      AllOf(HasSubstr("# 10 videos: 1 .MOV and 9 .mp4.\n"),
            HasSubstr("2 folders, which are taken as classes: climb and swim.\n"),
            HasSubstr("\", frames: 16, stride: 4, size: 224}"),
            HasSubstr("    pattern: \"**/*.{MOV,mp4}\"\n    field: video\n    label: parent_dir"),
            HasSubstr("\n  clips:\n    frames: \"${frames}\"\n"),
            HasSubstr("  - decode_video\n  - resize: {size: 256}"), HasSubstr("batch: {size: 8}"),
            Not(HasSubstr("decode_image")), Not(HasSubstr("ImageFolder"))));
}

TEST_F(InitTest, TakesTheKindOfMostFilesAndTellsOfOthers) {
  write("a.mp4");
  write("a.jpg");
  write("a.wav");
  EXPECT_THAT(drafted(), AllOf(HasSubstr("# 1 video: 1 .mp4.\n"),
                               HasSubstr("# Left out: 1 image, such as a.jpg; 'spdlctl init' of"),
                               HasSubstr("# Left out: 1 file of sound, such as a.wav; ")));
  write("b.jpg");
  EXPECT_THAT(drafted(), AllOf(HasSubstr("# 2 images: 2 .jpg.\n"), HasSubstr("- decode_image"),
                               HasSubstr("# Left out: 1 video, such as a.mp4; ")));
  write("b.wav");
  write("c.wav");
  EXPECT_THAT(drafted(), AllOf(HasSubstr("# 3 files of sound: 3 .wav.\n"),
                               HasSubstr("# Left out: 2 images, such as ")));
}

TEST_F(InitTest, SendsSplitsToTheOneThatIsMeant) {
  write("pets/train/cat/1.jpg");
  write("pets/val/cat/1.jpg");
  EXPECT_THAT(refused("pets"), AllOf(HasSubstr("train and val, which are datasets of their own"),
                                     HasSubstr("spdlctl init " + path("pets/train") + " --val " +
                                               path("pets/val") + " -o train.yaml")));
}

// What a PNG begins with; of `color` 0 is gray, 2 RGB, 3 of a palette.
std::string png(char color, char depth = 8) {
  std::string head("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1", 24);
  head.append({depth, color});
  return head.append(20, '\0');
}

TEST_F(InitTest, TakesMasksOfLikeNamesAlong) {
  for (const char* name : {"images/a/1", "images/a/2", "images/b/1"})
    write(name + std::string(".jpg"));
  for (const char* name : {"labels/a/1", "labels/a/2", "labels/b/1"})
    write(name + std::string(".png"), png(0));
  EXPECT_THAT(
      drafted(),
      AllOf(
          HasSubstr("# 3 images: 3 .jpg.\n"),
          HasSubstr("# 3 of 3 images have a file of a like name, as images/a/1.jpg has "
                    "labels/a/1.png: it comes along as 'mask'.\n"),
          HasSubstr("    pattern: \"images/**/*.jpg\"\n"
                    "    companions:\n"
                    "      mask: \"labels/${subdir}/${stem}.png\"\n"
                    "  # A tenth"),
          HasSubstr("  - decode_image: {mode: rgb}\n"
                    "  # Masks keep their numbers, and follow the images' crops and flips: uint8.\n"
                    "  - decode_image: {field: mask, mode: index}\n"),
          Not(HasSubstr("label: parent_dir")), Not(HasSubstr("classes")),
          Not(HasSubstr("optional"))));
}

TEST_F(InitTest, KnowsMasksThatHaveNoSuchNameByTheirPixels) {
  for (const std::string each : {"1", "2"}) {
    write("a/" + each + ".png", png(2));
    write("b/" + each + ".png", png(3));
    write("c/" + each + ".png", png(0, 16));
  }
  EXPECT_THAT(drafted(), AllOf(HasSubstr("pattern: \"a/**/*.png\""),
                               HasSubstr("      mask: \"b/${stem}.png\"\n"
                                         "      # c: \"c/${stem}.png\"   # other masks\n"),
                               HasSubstr("mode: index}")));
  std::filesystem::remove_all(path("b"));
  EXPECT_THAT(drafted(), HasSubstr("uint16.\n  - decode_image: {field: mask, mode: index, dtype: "
                                   "uint16}"));
}

TEST_F(InitTest, TakesFoldersOfLikeNamesWithoutMasksAsClasses) {
  for (const std::string each : {"1", "2"}) {
    write("cat/" + each + ".jpg");
    write("dog/" + each + ".jpg");
  }
  EXPECT_THAT(drafted(), AllOf(HasSubstr("taken as classes: cat and dog"),
                               HasSubstr("Each has files of the same names: if these belong"),
                               HasSubstr("label: parent_dir")));
  write("dog/3.jpg");
  EXPECT_THAT(drafted(), Not(HasSubstr("same names")));
}

TEST_F(InitTest, PairsCityscapes) {
  for (const std::string split : {"train/aachen/aachen_", "val/ulm/ulm_"}) {
    for (const std::string each : {"1_19", "2_19"}) {
      write("leftImg8bit/" + split + each + "_leftImg8bit.png", png(2));
      write("gtFine/" + split + each + "_gtFine_color.png", png(6));
      write("gtFine/" + split + each + "_gtFine_instanceIds.png", png(0, 16));
      write("gtFine/" + split + each + "_gtFine_labelIds.png", png(0));
      write("gtFine/" + split + each + "_gtFine_polygons.json", "{}");
    }
  }
  const std::string pattern = "\"gtFine/${subdir}/${stem%_leftImg8bit}_gtFine_";
  EXPECT_THAT(
      drafted(),
      AllOf(HasSubstr("# 2 images: 2 .png.\n"),
            HasSubstr("# Those of leftImg8bit/train alone: leftImg8bit/train and leftImg8bit/val "
                      "are datasets of their own.\n"),
            HasSubstr("add --val " + path("leftImg8bit/val")),
            HasSubstr("pattern: \"leftImg8bit/train/**/*.png\""),
            HasSubstr("\n      mask: " + pattern + "labelIds.png\"\n"),
            HasSubstr("      # instanceids: " + pattern + "instanceIds.png\"   # other masks\n"),
            HasSubstr("      # color: " + pattern + "color.png\"   # colours, not the numbers"),
            HasSubstr("      # polygons: " + pattern + "polygons.json\"   # text,")));
}

TEST_F(InitTest, PairsPascalVoc) {
  for (int i = 0; i < 40; ++i) {
    const std::string each = std::to_string(i);
    write("JPEGImages/" + each + ".jpg");
    write("Annotations/" + each + ".xml");
    if (i % 4 != 0) continue;
    write("SegmentationClass/" + each + ".png", png(3));
    write("SegmentationObject/" + each + ".png", png(3));
  }
  write("ImageSets/Main/train.txt");
  EXPECT_THAT(
      drafted(),
      AllOf(HasSubstr("# 10 of 40 images have a file of a like name"),
            HasSubstr("pattern: \"JPEGImages/**/*.jpg\""),
            HasSubstr("      mask: \"SegmentationClass/${stem}.png\"\n"),
            HasSubstr("      # segmentationobject: \"SegmentationObject/${stem}.png\""),
            HasSubstr("      # annotations: \"Annotations/${stem}.xml\"   # comes as bytes"),
            HasSubstr("    optional: [mask]")));
}

TEST_F(InitTest, TakesCaptionsBesideImagesAlong) {
  for (const std::string each : {"cat/1", "cat/2", "dog/1"}) {
    write(each + ".jpg");
    write(each + ".txt", "a caption");
  }
  write("cat/notes.md");
  EXPECT_THAT(drafted(),
              AllOf(HasSubstr("label: parent_dir"),
                    HasSubstr("as cat/1.jpg has cat/1.txt: it comes along as 'caption'.\n"),
                    HasSubstr("    companions:\n      caption: \"${dir}/${stem}.txt\"\n"),
                    HasSubstr("# Left out: 1 other file, such as cat/notes.md.\n"),
                    HasSubstr("batch: {size: 3, collate: {caption: {max_bytes: 4KiB}}}")));
}

TEST_F(InitTest, TakesTranscriptsBesideSoundAlong) {
  write("a.wav");
  write("a.txt");
  EXPECT_THAT(drafted(), AllOf(HasSubstr("companions:\n      text: \"${stem}.txt\"\n  # Items"),
                               HasSubstr("collate: {text: {max_bytes: 4KiB}}")));
}

TEST_F(InitTest, LeavesMasksThatLieBesideTheirImagesOutOfThese) {
  for (const std::string each : {"x/1", "x/2"}) {
    write(each + ".png", png(2));
    write(each + "_mask.png", png(0));
  }
  EXPECT_THAT(drafted(),
              AllOf(HasSubstr("# 2 images: 2 .png.\n"), HasSubstr("exclude: [\"**/*_mask.png\"]"),
                    HasSubstr("      mask: \"${dir}/${stem}_mask.png\"\n")));
}

TEST_F(InitTest, PairsFoldersBelowThoseOfScenes) {
  for (const std::string each : {"s1/rgb/1", "s2/rgb/1", "s3/rgb/1"}) write(each + ".jpg");
  for (const std::string each : {"s1/mask/1", "s2/mask/1", "s3/mask/1"})
    write(each + ".png", png(0));
  EXPECT_THAT(drafted(), AllOf(HasSubstr("pattern: \"**/rgb/*.jpg\""),
                               HasSubstr("      mask: \"${dir%rgb}mask/${stem}.png\"\n")));
}

TEST_F(InitTest, DoublesThePlainDollarsOfCompanions) {
  for (const std::string each : {"1", "2"}) {
    write("im$/" + each + ".jpg");
    write("mask$x/" + each + ".png", png(0));
  }
  EXPECT_THAT(drafted(), AllOf(HasSubstr("pattern: \"im$$/**/*.jpg\""),
                               HasSubstr("mask: \"mask$$x/${stem}.png\"")));
}

TEST_F(InitTest, WritesAPipelineForValidationBesideTheOther) {
  write("pets/train/cat/1.jpg");
  write("pets/train/dog/1.jpg");
  write("pets/val/cat/2.jpg");
  write("pets/val/dog/2.jpg");
  const Outcome outcome =
      spdlctl({"init", path("pets/train"), "--val", path("pets/val/"), "-o", path("pets.yaml")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(path("pets-val.yaml") + " are written"));
  EXPECT_THAT(read("pets.yaml"),
              AllOf(HasSubstr("\npipeline: pets\n"), Not(HasSubstr("select")),
                    HasSubstr("shuffle: global"), HasSubstr("batch: {size: 2}")));
  EXPECT_THAT(read("pets-val.yaml"),
              AllOf(HasSubstr("\npipeline: pets-val\n"), HasSubstr("\nshuffle: none\n"),
                    HasSubstr("root: \"" + path("pets/val") + "\""),
                    HasSubstr("    classes: {from: pets}"), HasSubstr("  - resize: {size: 256} "),
                    HasSubstr("  - center_crop: {size: \"${size}\"}\n"), HasSubstr("- normalize:"),
                    HasSubstr("batch: {size: 2, last: pad}"), Not(HasSubstr("random")),
                    Not(HasSubstr("select"))));
}

TEST_F(InitTest, TakesTheFolderOfValidationBelowThatOfImages) {
  for (const std::string each : {"train/1", "val/2"}) {
    write("images/" + each + ".jpg");
    write("masks/" + each + ".png", png(0));
  }
  const Outcome outcome =
      spdlctl({"init", path(""), "--val", path("images/val"), "-o", path("p.yaml")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read("p.yaml"), HasSubstr("pattern: \"images/train/**/*.jpg\""));
  EXPECT_THAT(read("p-val.yaml"),
              AllOf(HasSubstr("pattern: \"images/val/**/*.jpg\""),
                    HasSubstr("      mask: \"masks/${subdir}/${stem}.png\"\n")));
}

TEST_F(InitTest, RefusesValidationThatIsNone) {
  write("pets/a.jpg");
  write("pets/more/b.jpg");
  write("sound/a.wav");
  write("val/c.jpg");
  write("there-val.yaml");
  EXPECT_THAT(refused({"init", path("pets"), "--val", path("val")}), HasSubstr("by -o FILE"));
  const auto with = [&](const std::string& val, const std::string& file = "p.yaml") {
    return refused({"init", path("pets"), "--val", path(val), "-o", path(file)});
  };
  EXPECT_THAT(with("pets"), HasSubstr("is among what " + path("pets") + " is trained on"));
  EXPECT_THAT(with("pets/more"), HasSubstr("is among what"));
  EXPECT_THAT(with("sound"), HasSubstr("holds other data than"));
  write("classes/a/1.jpg");
  write("classes/b/1.jpg");
  EXPECT_THAT(refused({"init", path("classes"), "--val", path("val"), "-o", path("p.yaml")}),
              HasSubstr("val has no folders of several classes"));
  EXPECT_THAT(with("none"), HasSubstr("none is not there"));
  EXPECT_THAT(with("val", "there.yaml"), HasSubstr("there-val.yaml is there already"));
  EXPECT_FALSE(std::filesystem::exists(path("there.yaml")));
  EXPECT_FALSE(std::filesystem::exists(path("p.yaml")));
}

TEST_F(InitTest, WritesShardsAsBraces) {
  for (const char* name : {"train-008.tar", "train-009.tar", "train-010.tar"})
    write_shard(std::string("shards/") + name);
  const std::string text = drafted("shards");
  EXPECT_THAT(text, AllOf(HasSubstr("# 3 shards; the first samples have jpg and txt.\n"),
                          HasSubstr("shards: \"${root}/train-{008..010}.tar\""),
                          HasSubstr("image: jpg\n"), HasSubstr("caption: txt\n"),
                          HasSubstr("shuffle: {block: 512"), Not(HasSubstr("missing"))));
}

TEST_F(InitTest, WritesShardsWithGapsAsAGlob) {
  write_shard("train-0.tar");
  write_shard("train-2.tar");
  EXPECT_THAT(drafted(), HasSubstr("shards: \"${root}/train-*.tar\""));
}

TEST_F(InitTest, TakesShardsOfTrainingFirstAndTellsOfOthers) {
  for (const char* name : {"a-0.tar", "a-1.tar", "b-train-0.tar", "odd.tar"}) write_shard(name);
  EXPECT_THAT(drafted(), AllOf(HasSubstr("shards: \"${root}/b-train-0.tar\""),
                               HasSubstr("# 2 shards beside them: a-{0..1}.tar"),
                               HasSubstr("# 1 shard beside them: odd.tar")));
}

TEST_F(InitTest, EscapesAFolderWhoseNameIsAPattern) {
  write_shard("a{b}/x[1].tar");
  EXPECT_THAT(drafted("a{b}"), HasSubstr(R"(a\\{b\\}/x\\[1\\].tar")"));
}

TEST_F(InitTest, ReadsTheOneShardThatIsNamed) {
  write_shard("a-0.tar");
  write_shard("a-1.tar");
  EXPECT_THAT(drafted("a-0.tar"),
              AllOf(HasSubstr("# 1 shard;"), HasSubstr("shards: \"${root}/a-0.tar\""),
                    HasSubstr("pipeline: a-0\n")));
}

TEST_F(InitTest, SaysWhatIsLeftOutOfSamples) {
  TarWriter tar;
  tar.file("0.png", "p").file("0.npy", "n").file("0.pkl", "k").file("0.cls", "dog");
  tar.file("1.jpg", "p").file("1.seg.png", "m").file("1.json", "{}");
  write("a.tar", tar.archive());
  EXPECT_THAT(drafted("a.tar"),
              AllOf(HasSubstr("image: \"png;jpg\""), HasSubstr("# npy: arrays"),
                    HasSubstr("# pkl: pickled, which is never read"),
                    HasSubstr("# cls: holds class names, such as 'dog'"),
                    HasSubstr("# seg.png: an image, too"),
                    HasSubstr("# json: 1 of the first 2 samples have it: add meta: json"),
                    Not(HasSubstr("\n    missing:")), Not(HasSubstr("\n      label:"))));
}

TEST_F(InitTest, LeavesOutSamplesWithoutAnImage) {
  TarWriter tar;
  tar.file("0.txt", "a").file("0.png", "p").file("1.txt", "b");
  write("a.tar", tar.archive());
  EXPECT_THAT(drafted("a.tar"),
              AllOf(HasSubstr("\n    missing: skip"), HasSubstr("\n    # optional: image "),
                    HasSubstr("{size: 1}")));
}

TEST_F(InitTest, TakesIntegersOfClsAsLabels) {
  TarWriter tar;
  tar.file("0.png", "p").file("0.cls", "12\n");
  write("a.tar", tar.archive());
  EXPECT_THAT(drafted("a.tar"), HasSubstr("    label: cls\n"));
}

TEST_F(InitTest, ReadsLongNamesOfEveryForm) {
  const std::string name = "a/" + std::string(120, 'k') + "/0.webp";
  TarWriter tar;
  tar.gnu_long('L', name).file(name.substr(0, 100), "p");
  tar.pax(TarWriter::pax_record("mtime", "1.5") + TarWriter::pax_record("path", name));
  tar.file("short", "p");
  write("a.tar", tar.archive());
  EXPECT_THAT(drafted("a.tar"), HasSubstr("image: webp\n"));
}

TEST_F(InitTest, RefusesWhatIsNoShard) {
  write("text.tar", std::string(2000, 'x'));
  EXPECT_THAT(refused("text.tar"), HasSubstr("text.tar is no tar archive"));
  write("packed.tar", "\x1f\x8b" + std::string(2000, 'x'));
  EXPECT_THAT(refused("packed.tar"), HasSubstr("packed.tar is compressed"));
  write("empty.tar", "");
  EXPECT_THAT(refused("empty.tar"), HasSubstr("empty.tar has no files"));
  write("bad.tar", TarWriter().file("0.jpg", "p").bytes() + std::string(512, 'x'));
  EXPECT_THAT(refused("bad.tar"), HasSubstr("bad.tar is damaged at byte 1024"));
  write("sound.tar", TarWriter().file("0.flac", "p").archive());
  EXPECT_THAT(refused("sound.tar"), HasSubstr("have flac, and no image"));
}

TEST_F(InitTest, RefusesAShardThatIsCutOff) {
  TarWriter tar;
  tar.file("0.jpg", "p").file("1.jpg", std::string(1000, 'p'));
  write("content.tar", tar.bytes().substr(0, 1024 + 512 + 100));
  EXPECT_THAT(refused("content.tar"),
              HasSubstr("content.tar: at byte 1024, member '1.jpg': it is cut off: it has 1000 "
                        "bytes, and only 100 follow up to the end of the file; copy the shard"));
  write("padding.tar", tar.bytes().substr(0, 1024 + 512 + 1000));
  EXPECT_THAT(refused("padding.tar"), HasSubstr("has 1000 bytes, and only 1000 follow"));
  write("header.tar", tar.bytes().substr(0, 1024 + 7));
  EXPECT_THAT(refused("header.tar"), HasSubstr("at byte 1024, behind member '0.jpg': it is cut "
                                               "off: only 7 bytes of a header follow"));
  const std::string named = TarWriter().gnu_long('L', "long/0.jpg").bytes();
  write("named.tar", named);
  EXPECT_THAT(refused("named.tar"), HasSubstr("before its first member: it is cut off: a header "
                                              "that names a member is the last"));
  write("name.tar", named.substr(0, 512 + 4));
  EXPECT_THAT(refused("name.tar"), HasSubstr("it has 11 bytes, and only 4 follow"));
  write("huge.tar", TarBlock{.name = "0.jpg", .size_field = "777777777777"}.bytes());
  EXPECT_THAT(refused("huge.tar"), HasSubstr("and only 0 follow"));
}

TEST_F(InitTest, ReadsShardsWithoutEndMarkerAndWithLinksOfSomeSize) {
  TarWriter tar;
  tar.file("0.jpg", "p").raw(TarBlock{.name = "link", .type = '1', .size = 5000}.bytes());
  write("a.tar", tar.file("1.jpg", "p").bytes());
  EXPECT_THAT(drafted("a.tar"), HasSubstr("{size: 2}"));
}

TEST_F(InitTest, TellsOfCompressedShardsBesideOthers) {
  write_shard("a-0.tar");
  write("a-1.tar.gz");
  write("a-2.tar.gz");
  write("a-3.tar.xz");
  write("deeper/a-4.tar.gz");
  EXPECT_THAT(drafted(),
              AllOf(HasSubstr("\n# 2 .tar.gz beside them are not read: gunzip -k them first\n"),
                    HasSubstr("\n# 1 .tar.xz beside them are not read: unxz -k them first\n")));
}

TEST_F(InitTest, TakesAnImageWhosePartHasDotsInItsSuffix) {
  write_shard("a.tar", 2, "rgb.jpg");
  EXPECT_THAT(drafted("a.tar"), AllOf(HasSubstr("image: rgb.jpg\n"), Not(HasSubstr("missing"))));
}

TEST_F(InitTest, TakesTheFirstOfSeveralImagesOfASample) {
  TarWriter tar;
  tar.file("0.rgb.jpg", "p").file("0.depth.png", "d");
  tar.file("1.depth.png", "d").file("1.rgb.png", "p");
  write("a.tar", tar.archive());
  EXPECT_THAT(drafted("a.tar"),
              AllOf(HasSubstr("image: \"rgb.jpg;rgb.png\"\n"),
                    HasSubstr("    # depth.png: an image, too"), Not(HasSubstr("missing"))));
  write("b.tar", TarWriter().file("0.a.png", "p").file("0.png", "p").archive());
  EXPECT_THAT(drafted("b.tar"), HasSubstr("image: png\n"));
  write("c.tar", TarWriter().file("0.png", "p").file("0.jpg", "p").archive());
  EXPECT_THAT(drafted("c.tar"), AllOf(HasSubstr("image: png\n"), HasSubstr("    # jpg: an image")));
}

TEST_F(InitTest, HintsAtListsInTheJsonOfSamples) {
  TarWriter tar;
  tar.file("0.jpg", "p").file("0.json", R"({"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "id": 7,
    "a/b": [1, 2], "caption": [0.5], "odd": [[1], [2, 3]], "none": []})");
  write("a.tar", tar.archive());
  EXPECT_THAT(
      drafted("a.tar"),
      HasSubstr("  - decode_image: {mode: rgb}\n"
                "  # - decode_json: {field: meta, values: {"
                "boxes: {pointer: /boxes, type: float64_list}, "
                "a_b: {pointer: \"/a~1b\", type: int64_list}, "
                "caption: {pointer: /caption, type: float64_list}}}\n"
                "  # - bounding_boxes: {field: boxes, format: xywh}  # boxes do not follow crops "
                "and flips without this\n"));
  EXPECT_THAT(drafted("a.tar"), HasSubstr("\n# batch: {size: 1, collate: {boxes: {max_bytes: "));
}

TEST_F(InitTest, WritesNoHintOfJsonWithoutLists) {
  const std::string deep(100000, '[');
  for (const std::string& json :
       {std::string(R"({"id": 7, "names": ["a"]})"), std::string("[1]"), std::string("{\"a\": [1"),
        "{\"a\": " + deep, "{\"a\": " + deep + std::string(deep.size(), ']') + "}"}) {
    write("a.tar", TarWriter().file("0.jpg", "p").file("0.json", json).archive());
    EXPECT_THAT(drafted("a.tar"), AllOf(Not(HasSubstr("decode_json")), HasSubstr("meta: json")));
  }
}

TEST_F(InitTest, NamesTheCommandThatUnpacks) {
  write("a.tar.gz");
  EXPECT_THAT(refused("a.tar.gz"), HasSubstr("'gunzip -k' it, and name the .tar"));
  EXPECT_THAT(refused(), HasSubstr("a.tar.gz is compressed"));
  write("b.tar.zst");
  EXPECT_THAT(refused("b.tar.zst"), HasSubstr("'unzstd'"));
}

TEST_F(InitTest, GuessesTheColumnsOfATable) {
  write("pictures/1.jpg");
  write("pictures/2.jpg");
  write("pairs.csv",
        "file,caption,score,category,box,,image id\n"
        "1.jpg,\"a \"\"cat\"\", lying\",0.5,cat,\"[1, 2]\",7,8\n"
        "2.jpg,\"a dog\nand a cat\",1,dog,[3],8,9\n");
  EXPECT_THAT(drafted("pairs.csv"),
              AllOf(HasSubstr("# 2 rows; the columns are file, caption, score"),
                    HasSubstr("file: " + path("pairs.csv")),
                    HasSubstr("root: \"" + path("pictures") + "\""), HasSubstr("uri: file "),
                    HasSubstr("label: category "), HasSubstr("caption: caption             # text"),
                    HasSubstr("score: score               # numbers"),
                    HasSubstr("box: box                 # lists of numbers"),
                    HasSubstr("image_id: \"image id\"")));
}

TEST_F(InitTest, GuessesTheKeysOfJsonLines) {
  write("1.png");
  write("1-mask.png");
  write(
      "items.jsonl",
      R"({"mask": "1-mask.png", "path": "1.png", "count": 1, "tags": ["a"], "ok": true, "odd": 1})"
      "\n\n"
      R"({"mask": "1-mask.png", "path": "1.png", "count": 2.5, "tags": ["b"], "ok": false})"
      "\n");
  EXPECT_THAT(
      drafted("items.jsonl"),
      AllOf(HasSubstr("uri: path"),
            HasSubstr("# mask names files, too: uri: {image: path, mask: mask}\n"),
            HasSubstr("- decode_image: {mode: rgb}\n"
                      "  # - decode_image: {field: mask, mode: index}\n"),
            HasSubstr("count: count               # numbers"),
            HasSubstr("tags: {column: tags, type: json} # each as its text"), HasSubstr("ok: ok "),
            HasSubstr("odd: odd                 # integers"), HasSubstr("    optional: [odd]\n")));
}

TEST_F(InitTest, TakesColumnsThatSomeRowsLackAsOptional) {
  write("1.png");
  write("a.jsonl", R"({"id": 7, "conversations": [{"from": "human"}], "empty": null})"
                   "\n"
                   R"({"id": "x7", "image": "1.png", "conversations": [], "score": null})"
                   "\n"
                   R"({"id": 8, "image": null, "conversations": [], "score": 1, "mixed": 0.5})"
                   "\n"
                   R"({"id": 8, "image": "1.png", "conversations": [], "score": 1.5, "mixed": "a"})"
                   "\n");
  EXPECT_THAT(drafted("a.jsonl"),
              AllOf(HasSubstr("uri: image                   # in the first rows that have it, it "
                              "names images that are there\n"),
                    HasSubstr("id: {column: id, type: text} # text, and integers as text\n"),
                    HasSubstr("conversations: {column: conversations, type: json} #"),
                    HasSubstr("score: score               # numbers\n"),
                    HasSubstr("mixed: {column: mixed, type: json} #"),
                    HasSubstr("# left out: empty, which the first rows have not\n"),
                    HasSubstr("    # Not all of the first 4 rows have these; image_present tells "
                              "which rows do.\n"
                              "    optional: [image, score, mixed]\n")));
}

TEST_F(InitTest, TakesColumnsWithEmptyCellsAsOptionalButTexts) {
  write("1.png");
  write("a.csv", "some,path,caption,score,label\n,1.png,,,cat\n1.png,1.png,a,2,\n");
  EXPECT_THAT(drafted("a.csv"), AllOf(HasSubstr("uri: path "), HasSubstr("# some names files, too"),
                                      HasSubstr("score: score               # integers\n"),
                                      HasSubstr("    optional: [score, label]\n")));
}

TEST_F(InitTest, HintsAtBoxesInAColumnOfLists) {
  write("1.png");
  write("a.jsonl",
        R"({"path": "1.png", "bbox": [1, 2, 3, 4], "box_ids": [1], "quad": [1, 2, 3, 4]})"
        "\n"
        R"({"path": "1.png", "bbox": [], "box_ids": [2], "quad": [1, 2, 3, 4]})"
        "\n");
  EXPECT_THAT(drafted("a.jsonl"),
              AllOf(HasSubstr("- decode_image: {mode: rgb}\n"
                              "  # - bounding_boxes: {field: bbox, format: xywh}  # boxes do not "
                              "follow crops and flips without this\n"
                              "  - random_resized_crop"),
                    Not(HasSubstr("field: box_ids")), Not(HasSubstr("field: quad"))));
  write("a.csv", "path,boxes\n1.png,\"[1, 2, 3, 4]\"\n1.png,\"[1.5, 2, 3, 4]\"\n");
  EXPECT_THAT(drafted("a.csv"), HasSubstr("# - bounding_boxes: {field: boxes,"));
  write("b.csv", "path,boxes\n1.png,\"[1, 2, 3, 4]\"\n1.png,\"[1.5, 2]\"\n");
  EXPECT_THAT(drafted("b.csv"), Not(HasSubstr("bounding_boxes")));
}

TEST_F(InitTest, HintsAtFilesBesideTheImage) {
  write("1.png");
  write("a.csv", "image_path,mask_path,other mask,depth\n1.png,1.png,1.png,1.png\n");
  EXPECT_THAT(drafted("a.csv"),
              AllOf(HasSubstr("uri: {image: image_path, depth: depth, mask: mask_path, "
                              "other_mask: \"other mask\"}\n"),
                    HasSubstr("# - decode_image: {field: depth}\n"),
                    HasSubstr("# - decode_image: {field: mask, mode: index}\n"),
                    HasSubstr("# - decode_image: {field: other_mask, mode: index}\n")));
}

TEST_F(InitTest, AsksForTheRootOfATableThatNamesNoFilesThatAreThere) {
  write("far/away/there/1.jpg");
  write("table/pairs.csv", "file,caption\n1.jpg,a cat\n");
  EXPECT_THAT(refused("table/pairs.csv"), AllOf(HasSubstr("the column 'file'"), HasSubstr("1.jpg"),
                                                HasSubstr("say by --root DIR")));
  EXPECT_THAT(refused({"init", path("table/pairs.csv"), "--root", path("table")}),
              HasSubstr("are not all below " + path("table")));
  const Outcome rooted =
      spdlctl({"init", path("table/pairs.csv"), "--root", path("far/away/there")});
  EXPECT_THAT(rooted.out, HasSubstr("root: \"" + path("far/away/there") + "\"")) << rooted.err;
}

TEST_F(InitTest, RefusesTablesThatNameNoImages) {
  write("a.csv", "name,age\nx,1\n");
  EXPECT_THAT(refused("a.csv"), HasSubstr("it has 'name' and 'age'"));
  write("b.csv", "name,age\n");
  EXPECT_THAT(refused("b.csv"), HasSubstr("has no row"));
  write("c.csv", "a,b\n1,2,3\n");
  EXPECT_THAT(refused("c.csv"), HasSubstr("has 2 columns in its first line and 3 in row 1"));
  write("d.jsonl", "{\"a\": 1}\n[1]\n");
  EXPECT_THAT(refused("d.jsonl"), HasSubstr("has no object in row 2"));
  write("e.tsv", "");
  EXPECT_THAT(refused("e.tsv"), HasSubstr("is empty"));
}

constexpr char kCoco[] = R"({
  "annotations": [{"id": 1, "image_id": 5, "category_id": 2, "bbox": [0, 0, 1, 1]}],
  "images": [{"id": 5, "file_name": "5.jpg", "width": 2, "height": 2}],
  "categories": [{"id": 2, "name": "cat"}]})";

TEST_F(InitTest, FindsTheImagesOfAnnotations) {
  write("coco/annotations/instances.json", kCoco);
  write("coco/images/train/5.jpg");
  EXPECT_THAT(drafted("coco/annotations/instances.json"),
              AllOf(HasSubstr("# 1 image, 1 annotation, 1 category.\n"),
                    HasSubstr("root: \"" + path("coco/images/train") + "\""),
                    HasSubstr("annotations: " + path("coco/annotations/instances.json")),
                    HasSubstr("bounding_boxes: {field: boxes, with: [labels, ids")));
}

TEST_F(InitTest, RefusesJsonThatIsNoAnnotations) {
  write("a.json", kCoco);
  EXPECT_THAT(refused("a.json"), AllOf(HasSubstr("5.jpg"), HasSubstr("--root DIR")));
  write("b.json", "{\"images\": [");
  EXPECT_THAT(refused("b.json"), HasSubstr("is no JSON from byte"));
  write("c.json", "[{\"file_name\": \"5.jpg\"}]");
  EXPECT_THAT(refused("c.json"), HasSubstr("is one list, as LLaVA's rows are"));
  write("e.json", "{\"rows\": []}");
  EXPECT_THAT(refused("e.json"), HasSubstr("no COCO annotations"));
  write("d.json", R"({"images": [{"file_name": "5.jpg"}], "annotations": [{"caption": "x"}]})");
  EXPECT_THAT(refused("d.json"), HasSubstr("no annotation with a bbox"));
}

TEST_F(InitTest, KnowsTheFilesOfOtherTools) {
  write("hf/README.md");
  write("hf/data/train-0.parquet");
  EXPECT_THAT(refused("hf"), HasSubstr("such as data/train-0.parquet: it is Parquet, which holds "
                                       "rows and is not read: convert it"));
  write("unnamed", "PAR1\x15");
  EXPECT_THAT(refused("unnamed"), HasSubstr("unnamed is Parquet, which"));
  write("set/x.h5");
  EXPECT_THAT(refused("set/x.h5"), HasSubstr("x.h5 is HDF5, which"));
  write("mds/index.json", R"({"version": 2, "shards": []})");
  write("mds/shard.00000.mds");
  EXPECT_THAT(refused("mds"), HasSubstr("an index.json of MosaicML's streaming"));
  EXPECT_THAT(refused("mds/index.json"), HasSubstr("lists the shards of MosaicML's streaming"));
}

TEST_F(InitTest, KnowsTheTablesOfOtherTools) {
  write("nemo.jsonl", R"({"audio_filepath": "a.wav", "duration": 1.5, "text": "x"})");
  EXPECT_THAT(refused("nemo.jsonl"),
              HasSubstr("it has 'audio_filepath', 'duration' and 'text'; it is NeMo's manifest, "
                        "which names sound in audio_filepath: write 'uri: {audio: "));
  write("chats.jsonl", R"({"id": 1, "conversations": [{"from": "human"}]})");
  EXPECT_THAT(refused("chats.jsonl"), HasSubstr("a set of conversations (LLaVA, ShareGPT)"));
  write("train.tsv", "/data/LibriSpeech\na.flac\t160000\n");
  EXPECT_THAT(refused("train.tsv"), HasSubstr("has 1 columns in its first line and 2 in row 1; it "
                                              "is fairseq's manifest, which begins"));
  write("kinetics.csv", "v0.mp4 0\nv1.mp4 1\n");
  EXPECT_THAT(refused("kinetics.csv"), HasSubstr("it is a table without a line of names"));
  write("kaldi/wav.scp");
  EXPECT_THAT(refused("kaldi"), HasSubstr("it is a list of Kaldi's"));
}

TEST_F(InitTest, SaysWhatIsWrongWithAPath) {
  EXPECT_THAT(refused("nowhere"), HasSubstr("nowhere is not there"));
  std::filesystem::create_directory(path("empty"));
  EXPECT_THAT(refused("empty"), AllOf(HasSubstr("neither images"), HasSubstr("no file at all")));
  write("texts/a.md");
  EXPECT_THAT(refused("texts"), HasSubstr("but files such as a.md"));
  EXPECT_THAT(refused("texts/a.md"), HasSubstr("is nothing that a pipeline could read"));
  write("one.png");
  EXPECT_THAT(refused("one.png"), HasSubstr("spdlctl init " + dir_.path()));
  write("one.webm");
  EXPECT_THAT(refused("one.webm"),
              HasSubstr("is one video; name its folder: spdlctl init " + dir_.path()));
  write("tables/a.csv");
  EXPECT_THAT(refused("tables"), HasSubstr("spdlctl init " + path("tables/a.csv")));
  write("nested/deep/a.tar");
  EXPECT_THAT(refused("nested"), HasSubstr("spdlctl init " + path("nested/deep")));
  EXPECT_THAT(refused({"init", path("texts"), "--root", "/"}), HasSubstr("--root is for tables"));
}

TEST_F(InitTest, LetsNoNameForgeALineOrAVariable) {
  write("a\nb: ${env:HOME}/1.jpg");
  const std::string text = drafted("a\nb: ${env:HOME}");
  EXPECT_THAT(text, AllOf(HasSubstr("\npipeline: a-b----env-HOME\n"),
                          HasSubstr(R"(a\nb: $${env:HOME}", size)"), Not(HasSubstr("\nb:"))));
}

TEST_F(InitTest, RefusesNamesThatYamlCannotHold) {
  write("a\xff/1.jpg");
  EXPECT_THAT(refused("a\xff"), HasSubstr("is not UTF-8"));
}

TEST_F(InitTest, CallsThePipelineAsItsFileIsCalled) {
  write("pets/1.jpg");
  const Outcome outcome = spdlctl({"init", path("pets"), "-o", path("1 train.yaml")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::stringstream text;
  text << std::ifstream(path("1 train.yaml")).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\npipeline: \"1-train\"\n"));
}

TEST_F(InitTest, SaysHowADaemonIsStartedWhereNoneAnswers) {
  write("pets/1.jpg");
  const Outcome alone =
      spdlctl({"--address", path("nowhere"), "init", path("pets"), "-o", path("a.yaml")});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, AllOf(HasSubstr("spdlctl preview -f " + path("a.yaml")),
                               HasSubstr("no daemon answers at " + path("nowhere")),
                               HasSubstr("    spdld --set runtime_dir=$SPDLD_HOME/run")));
  FakeDaemon daemon;
  daemon.start();
  const Outcome served =
      spdlctl({"--address", daemon.path(), "init", path("pets"), "-o", path("b.yaml")});
  EXPECT_EQ(served.out, path("b.yaml") + " is written; read it, then: spdlctl preview -f " +
                            path("b.yaml") + "\n");
}

TEST_F(InitTest, WritesIntoAFileThatIsNotThereYet) {
  write("pets/1.jpg");
  const Outcome outcome = spdlctl({"init", path("pets"), "-o", path("pets.yaml")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("spdlctl preview -f " + path("pets.yaml")));
  std::stringstream text;
  text << std::ifstream(path("pets.yaml")).rdbuf();
  EXPECT_EQ(text.str(), drafted("pets"));
  EXPECT_THAT(refused({"init", path("pets"), "-o", path("pets.yaml")}),
              HasSubstr("is there already"));
  const Outcome nowhere = spdlctl({"init", path("pets"), "-o", path("no/pets.yaml")});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot write"));
}

}  // namespace
}  // namespace spdld::ctl
