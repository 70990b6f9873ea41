// SPDX-License-Identifier: Apache-2.0
#include "base/text/foreign_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace spdld {
namespace {

using std::string_view_literals::operator""sv;

std::string_view content(std::string_view head) {
  const ForeignFormat* const format = foreign_content(head);
  return format == nullptr ? "" : format->name;
}

std::string_view file(std::string_view path) {
  const ForeignFormat* const format = foreign_file(path);
  return format == nullptr ? "" : format->name;
}

TEST(ForeignNames, KnowFormatsByTheirFirstBytes) {
  EXPECT_EQ(content("PAR1\x15\x04"), "Parquet");
  EXPECT_EQ(content("\x89HDF\r\n\x1a\n"), "HDF5");
  EXPECT_EQ(content(std::string(128, '\0') + "DICM"), "DICOM");
  EXPECT_EQ(content(std::string(344, '\1') + "n+1" + '\0'), "NIfTI");
  EXPECT_EQ(content("\0\0\0\x18"
                    "ftypheix"sv),
            "HEIF");
  EXPECT_EQ(content("\0\0\0\x18"
                    "ftypisom"sv),
            "MP4");
  EXPECT_EQ(content("version https://git-lfs.github.com/spec/v1\noid"), kLfsPointer);
  EXPECT_EQ(content("<svg xmlns="), "SVG");
  EXPECT_EQ(content("<!DOCTYPE html>"), "HTML or XML");
}

TEST(ForeignNames, KnowNothingOfAHeadThatEndsInASignature) {
  for (const std::string_view head : {""sv, "PAR"sv,
                                      "\0\0\0\x18"
                                      "ftyp"
                                      "hei"sv.substr(0, 7),
                                      "plain text"sv})
    EXPECT_EQ(content(head), "") << head;
  EXPECT_EQ(content(std::string(128, '\1').append("DIC")), "");
}

TEST(ForeignNames, KnowFilesByTheLongestEnding) {
  EXPECT_EQ(file("a/train-0.parquet"), "Parquet");
  EXPECT_EQ(file("b/T1.NII.GZ"), "NIfTI");
  EXPECT_EQ(file("b/a.tar.gz"), "gzip");
  EXPECT_EQ(file("data.mdb"), "LMDB");
  EXPECT_EQ(file(".parquet"), "");
  EXPECT_EQ(file("a.parquet/b.jpg"), "");
  EXPECT_EQ(file(""), "");
  EXPECT_EQ(described(*foreign_file("a.heic")),
            "HEIF, which is not read: convert it to PNG, TIFF or JPEG");
}

TEST(ForeignNames, AreOpsNamesInSmallLetters) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"RandomResizedCrop", "random_resized_crop"},
      {"v2.RandomResizedCrop(224)", "random_resized_crop"},
      {"MFCC", "mfcc"},
      {"AmplitudeToDB", "amplitude_to_db"},
      {"ToTensorV2", "to_tensor_v2"},
      {"RandomCrop", "random_crop"},
      {"random-crop", "random_crop"},
      {"RGB", "rgb"},
      {"resize", "resize"},
      {"", ""},
      {"(", ""},
  };
  for (const auto& [theirs, ours] : names) EXPECT_EQ(op_name_of(theirs), ours);
}

TEST(ForeignNames, SayWhatToDoInPlaceOfATransform) {
  EXPECT_EQ(instead_of_transform("to_tensor"),
            "leave it out: images come as tensors, channels first");
  EXPECT_NE(instead_of_transform(op_name_of("ColorJitter(0.4)")).find("map="),
            std::string_view::npos);
  EXPECT_EQ(instead_of_transform("resize"), "");
}

TEST(ForeignNames, KnowTablesByTheirColumns) {
  const std::pair<std::vector<std::string>, std::string_view> tables[] = {
      {{"audio_filepath", "duration", "text"}, "NeMo's manifest"},
      {{"id", "image", "conversations"}, "a set of conversations (LLaVA, ShareGPT)"},
      {{"messages"}, "a set of conversations"},
      {{"file_name", "text"}, "the metadata of a folder of HF's datasets"},
      {{"id", "start", "duration", "supervisions", "recording"}, "lhotse's list of cuts"},
      {{"id", "sources", "sampling_rate"}, "lhotse's list of recordings"},
      {{"/data/LibriSpeech"}, "fairseq's manifest"},
      {{"label", "youtube_id", "time_start", "split"}, "a list of Kinetics'"},
      {{"id", "label", "template", "placeholders"}, "a list of Something-Something's"},
      {{"episode_index", "tasks", "length"}, "LeRobot's"},
      {{"info", "images", "annotations"}, "COCO's annotations"},
      {{"__key__", "__url__"}, "a list of WebDataset's samples"},
      {{"v0.mp4 0"}, "a table without a line of names"},
      {{"/data/a.MP4", "3"}, "a table without a line of names"},
      {{"path", "label"}, ""},
      {{"/data", "3"}, ""},
      {{".mp4", "audio_filepath "}, ""},
      {{}, ""},
  };
  for (const auto& [columns, name] : tables) {
    const ForeignFormat* const table = foreign_table(columns);
    EXPECT_EQ(table == nullptr ? "" : table->name, name) << columns.size();
  }
}

TEST(ForeignNames, SayWhatToDoInPlaceOfAnArgument) {
  struct Case {
    std::string_view in;
    std::string_view name;
    std::string_view part;  // of what is said
  };
  constexpr Case kCases[] = {
      {"pipeline", "num_workers", "leave it out"},
      {"pipeline", "split", "select: {split:"},
      {"batch", "batch_size", "write 'size: N'"},
      {"batch", "collate_fn", "collate: {FIELD: pad}"},
      {"batch", "num_workers", "leave it out"},
      {"shuffle", "1000", "needs no buffer"},
      {"shuffle", "true", "write 'global'"},
      {"source", "imagefolder", "label: parent_dir"},
      {"files", "extensions", "pattern"},
      {"table", "image_column", "write 'uri: COLUMN'"},
      {"webdataset", "urls", "shards"},
      {"clips", "num_frames", "frames: N"},
      {"windows", "duration", "seconds: S"},
      {"resize", "height", "[HEIGHT, WIDTH]"},
      {"random_crop", "fill", "is 0"},
      {"normalize", "max_pixel_value", "by 255"},
      {"normalize", "inplace", "leave it out"},
      {"random_resized_crop", "p", "leave it out"},
      {"spectrogram", "n_mels", "mel_spectrogram"},
      {"mel_spectrogram", "hop", "hop_length"},
      {"mfcc", "sr", "decode_audio"},
      {"decode_audio", "sr", "sample_rate"},
      {"decode_video", "num_frames", "clips"},
      {"interpolation", "3", "'bicubic'"},
      {"mode", "l", "'gray'"},
      {"dtype", "half", "float16"},
      {"format", "pascal_voc", "xyxy"},
  };
  for (const Case& each : kCases)
    EXPECT_NE(instead_of_argument(each.in, each.name).find(each.part), std::string_view::npos)
        << each.in << " " << each.name;
  for (const std::string_view name : {"", "size", "N ", "batch_size inplace"})
    EXPECT_EQ(instead_of_argument("batch", name), "") << name;
  EXPECT_EQ(instead_of_argument("interpolation", ""), "") << "no number";
}

}  // namespace
}  // namespace spdld
