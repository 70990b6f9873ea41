// SPDX-License-Identifier: Apache-2.0
#include "base/text/foreign_names.h"

#include <algorithm>
#include <array>

#include "base/text/ascii.h"

namespace spdld {
namespace {

using std::string_view_literals::operator""sv;

struct Format {
  ForeignFormat format;
  std::string_view endings = {};  // of names, in small letters, with a space between them
};

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  std::string_view format;  // its name
};

constexpr std::string_view kRows =
    "holds rows and is not read: convert it, to a table of .jsonl or .csv with the values and the "
    "names of files, or to tar shards with the bytes of its samples";
constexpr std::string_view kRecords =
    "holds records and is not read: convert it to tar shards, a file for each part of a sample";
constexpr std::string_view kPictures = "is not read: convert it to PNG, TIFF or JPEG";
constexpr std::string_view kVolumes =
    "is not read: convert it to .npy for decode_npy, or its slices to PNG, with 16 bits for mode: "
    "gray16";
constexpr std::string_view kUnpack = "is not read in place: unpack it";
constexpr std::string_view kSound = "is not read: convert it, 'ffmpeg -i FILE FILE.flac'";
constexpr std::string_view kFilms =
    "is not read: convert it, 'ffmpeg -i FILE -c copy FILE.mp4', or without '-c copy' where its "
    "codec is not read either";

constexpr std::array kFormats = {
    Format{{"Parquet", kRows}, ".parquet .pq"},
    Format{{"Arrow", kRows}, ".arrow .feather"},
    Format{{"HDF5", kRows}, ".h5 .hdf5 .hdf .he5"},
    Format{{"SQLite", kRows}, ".sqlite .sqlite3"},
    Format{{"an Excel workbook", kRows}, ".xlsx .xls"},
    Format{{"TFRecord", kRecords}, ".tfrecord .tfrecords .tfrec"},
    Format{{"a shard of MosaicML's streaming (MDS)", kRecords}, ".mds .mds.zstd"},
    Format{{"FFCV", kRecords}, ".beton"},
    Format{{"LMDB", kRecords}, ".mdb .lmdb"},
    Format{{"MXNet's RecordIO", kRecords}, ".rec"},
    Format{
        {"pickled Python",
         "is never read, since unpickling runs whatever code is in it: write its arrays as .npy, "
         "its values as JSON"},
        ".pkl .pickle .pth .pt"},
    Format{{"NumPy's .npy", "is read by decode_npy"}, ".npy"},
    Format{{"NumPy's .npz", "is read by decode_npy"}, ".npz"},
    Format{{"MATLAB's .mat", kRows}, ".mat"},
    Format{{kLfsPointer, "stands for a file that is not there yet: run 'git lfs pull'"}},
    Format{{"HEIF", kPictures}, ".heic .heif"},
    Format{{"MP4", "is no image but a video: a source with 'clips', and decode_video, read it"}},
    Format{{"JPEG 2000", kPictures}, ".jp2 .j2k .jpx"},
    Format{{"JPEG XL", kPictures}, ".jxl"},
    Format{{"DICOM", kVolumes}, ".dcm .dicom"},
    Format{{"NIfTI", kVolumes}, ".nii .nii.gz"},
    Format{{"a Photoshop document (PSD)", kPictures}, ".psd .psb"},
    Format{{"OpenEXR", kVolumes}, ".exr"},
    Format{{"Radiance HDR", kVolumes}, ".hdr"},
    Format{{"Netpbm", kPictures}, ".ppm .pgm .pbm .pnm .pfm"},
    Format{{"a Windows icon", kPictures}, ".ico"},
    Format{{"SVG", "is drawn, not decoded: render it to PNG"}, ".svg"},
    Format{{"a camera's raw image", "is developed, not decoded: convert it to TIFF or JPEG"},
           ".nef .cr2 .cr3 .arw .dng .orf .rw2"},
    Format{{"PDF", "is no image: render its pages to PNG"}, ".pdf"},
    Format{{"HTML or XML", "is no medium: it may be what a download got in place of the file"}},
    Format{{"NIST SPHERE", kSound}, ".sph"},
    Format{{"AIFF", kSound}, ".aiff .aif"},
    Format{{"AMR", kSound}, ".amr"},
    Format{{"CAF", kSound}, ".caf"},
    Format{{"ASF (WMV, WMA)", kFilms}, ".wmv .wma .asf"},
    Format{{"FLV", kFilms}, ".flv"},
    Format{{"MXF", kFilms}, ".mxf"},
    Format{{"MPEG-PS", kFilms}, ".mpg .mpeg .vob"},
    Format{{"gzip", kUnpack}, ".gz .tgz"},
    Format{{"zstd", kUnpack}, ".zst"},
    Format{{"bzip2", kUnpack}, ".bz2"},
    Format{{"xz", kUnpack}, ".xz"},
    Format{{"7z", kUnpack}, ".7z"},
    Format{{"RAR", kUnpack}, ".rar"},
    Format{{"ZIP", kUnpack}, ".zip"},
};

// Longer signatures stand before those that they begin with.
constexpr std::array kMagics = {
    Magic{0, "PAR1"sv, "Parquet"},
    Magic{0, "ARROW1"sv, "Arrow"},
    Magic{0, "\x89HDF\r\n\x1a\n"sv, "HDF5"},
    Magic{0, "SQLite format 3\0"sv, "SQLite"},
    Magic{16, "\xDE\xC0\xEF\xBE"sv, "LMDB"},
    Magic{0, "\x0A\x23\xD7\xCE"sv, "MXNet's RecordIO"},
    Magic{0, "\x80\x02}"sv, "pickled Python"},
    Magic{0, "\x80\x04\x95"sv, "pickled Python"},
    Magic{0, "\x80\x05\x95"sv, "pickled Python"},
    Magic{0, "\x93NUMPY"sv, "NumPy's .npy"},
    Magic{0, "MATLAB 5.0 MAT-file"sv, "MATLAB's .mat"},
    Magic{0, "version https://git-lfs.github.com/spec/"sv, kLfsPointer},
    Magic{4, "ftyphei"sv, "HEIF"},
    Magic{4, "ftyphev"sv, "HEIF"},
    Magic{4, "ftypmif1"sv, "HEIF"},
    Magic{4, "ftyp"sv, "MP4"},
    Magic{4, "jP  "sv, "JPEG 2000"},
    Magic{0, "\xFF\x4F\xFF\x51"sv, "JPEG 2000"},
    Magic{4, "JXL "sv, "JPEG XL"},
    Magic{0, "\xFF\x0A"sv, "JPEG XL"},
    Magic{128, "DICM"sv, "DICOM"},
    Magic{344, "n+1\0"sv, "NIfTI"},
    Magic{344, "ni1\0"sv, "NIfTI"},
    Magic{0, "8BPS"sv, "a Photoshop document (PSD)"},
    Magic{0, "\x76\x2F\x31\x01"sv, "OpenEXR"},
    Magic{0, "#?RADIANCE"sv, "Radiance HDR"},
    Magic{0, "#?RGBE"sv, "Radiance HDR"},
    Magic{0, "P1\n"sv, "Netpbm"},
    Magic{0, "P2\n"sv, "Netpbm"},
    Magic{0, "P3\n"sv, "Netpbm"},
    Magic{0, "P4\n"sv, "Netpbm"},
    Magic{0, "P5\n"sv, "Netpbm"},
    Magic{0, "P6\n"sv, "Netpbm"},
    Magic{0, "P5 "sv, "Netpbm"},
    Magic{0, "P6 "sv, "Netpbm"},
    Magic{0, "P7\n"sv, "Netpbm"},
    Magic{0, "Pf\n"sv, "Netpbm"},
    Magic{0, "PF\n"sv, "Netpbm"},
    Magic{0, "\0\0\1\0"sv, "a Windows icon"},
    Magic{0, "<svg"sv, "SVG"},
    Magic{0, "%PDF"sv, "PDF"},
    Magic{0, "<"sv, "HTML or XML"},
    Magic{0, "NIST_1A"sv, "NIST SPHERE"},
    Magic{0, "FORM"sv, "AIFF"},
    Magic{0, "#!AMR"sv, "AMR"},
    Magic{0, "caff"sv, "CAF"},
    Magic{0, "\x30\x26\xB2\x75\x8E\x66\xCF\x11"sv, "ASF (WMV, WMA)"},
    Magic{0, "FLV\1"sv, "FLV"},
    Magic{0, "\x06\x0E\x2B\x34"sv, "MXF"},
    Magic{0, "\0\0\1\xBA"sv, "MPEG-PS"},
    Magic{0, "\x1F\x8B"sv, "gzip"},
    Magic{0, "\x28\xB5\x2F\xFD"sv, "zstd"},
    Magic{0, "BZh"sv, "bzip2"},
    Magic{0,
          "\xFD"
          "7zXZ\0"sv,
          "xz"},
    Magic{0, "7z\xBC\xAF\x27\x1C"sv, "7z"},
    Magic{0, "Rar!"sv, "RAR"},
    Magic{0, "PK\x03\x04"sv, "ZIP"},
    Magic{0, "PK\x05\x06"sv, "ZIP"},
};

struct Transform {
  std::string_view name;
  std::string_view instead;
};

constexpr std::string_view kTensors = "leave it out: images come as tensors, channels first";
constexpr std::string_view kOnBatches =
    "there is no such op: torchvision.transforms.v2 does it on batches, on the GPU or in "
    "Loader(..., map=)";
constexpr std::string_view kOnSpectra =
    "there is no such op: torchaudio does it on batches, on the GPU or in Loader(..., map=)";
constexpr std::string_view kFloats =
    "write to_dtype: {dtype: float32, scale: true}; normalize does that by itself";
constexpr std::string_view kGray = "write it in decode_image: {mode: gray}";
constexpr std::string_view kDecode =
    "name what is decoded: decode_image, decode_audio, decode_video, decode_json or decode_npy";
constexpr std::string_view kFlipped = "write 'random_horizontal_flip'; {p: 1} flips each image";
constexpr std::string_view kOwnFunction =
    "there is no such op: a function of your own is Loader(..., map=)";
constexpr std::string_view kNoStage = "it is no stage: write 'batch' beside 'stages'";
constexpr std::string_view kMode = "leave it out: decode_image makes RGB, or what its 'mode' says";

// Of torchvision, torchaudio, albumentations, WebDataset and HF, by their names as ops are called.
constexpr std::array kTransforms = {
    Transform{"compose", "write what is in it as stages, one below the other"},
    Transform{"to_tensor", kTensors},
    Transform{"to_tensor_v2", kTensors},
    Transform{"to_image", kTensors},
    Transform{"to_pure_tensor", kTensors},
    Transform{"pil_to_tensor", kTensors},
    Transform{"to_pil_image", "leave it out: there are no PIL images"},
    Transform{"convert_image_dtype", kFloats},
    Transform{"to_float", kFloats},
    Transform{"rgb", kMode},
    Transform{"to_rgb", kMode},
    Transform{"convert", kMode},
    Transform{"grayscale", kGray},
    Transform{"to_gray", kGray},
    Transform{"decode", kDecode},
    Transform{"decoder", kDecode},
    Transform{"hflip", kFlipped},
    Transform{"horizontal_flip", kFlipped},
    Transform{"smallest_max_size", "write resize: {size: N}, the short side"},
    Transform{"scale_jitter", kOnBatches},
    Transform{"vflip", kOnBatches},
    Transform{"vertical_flip", kOnBatches},
    Transform{"random_vertical_flip", kOnBatches},
    Transform{"color_jitter", kOnBatches},
    Transform{"rand_augment", kOnBatches},
    Transform{"auto_augment", kOnBatches},
    Transform{"trivial_augment_wide", kOnBatches},
    Transform{"aug_mix", kOnBatches},
    Transform{"random_erasing", kOnBatches},
    Transform{"coarse_dropout", kOnBatches},
    Transform{"gaussian_blur", kOnBatches},
    Transform{"random_rotation", kOnBatches},
    Transform{"rotate", kOnBatches},
    Transform{"random_affine", kOnBatches},
    Transform{"random_perspective", kOnBatches},
    Transform{"random_grayscale", kOnBatches},
    Transform{"random_brightness_contrast", kOnBatches},
    Transform{"random_apply", kOnBatches},
    Transform{"random_choice", kOnBatches},
    Transform{"mix_up", kOnBatches},
    Transform{"mixup", kOnBatches},
    Transform{"cut_mix", kOnBatches},
    Transform{"cutmix", kOnBatches},
    Transform{"lambda", kOwnFunction},
    Transform{"map", kOwnFunction},
    Transform{"map_dict", kOwnFunction},
    Transform{"frequency_masking", kOnSpectra},
    Transform{"time_masking", kOnSpectra},
    Transform{"spec_augment", kOnSpectra},
    Transform{"time_stretch", kOnSpectra},
    Transform{"pitch_shift", kOnSpectra},
    Transform{"tokenize", "there is no such op: a tokenizer runs in Loader(..., map=)"},
    Transform{"shuffle", "the order is no stage: write 'shuffle' beside 'stages'"},
    Transform{"batch", kNoStage},
    Transform{"batched", kNoStage},
    Transform{"to_tuple", "leave it out: Loader(..., output=(\"image\", \"label\")) makes tuples"},
};

// A capital letter behind one of these begins a word.
bool ends_word(char c) { return is_lower(c) || is_digit(c); }

}  // namespace

const ForeignFormat* foreign_content(std::string_view head) {
  for (const Magic& magic : kMagics) {
    if (head.size() < magic.offset + magic.bytes.size() ||
        head.substr(magic.offset, magic.bytes.size()) != magic.bytes)
      continue;
    for (const Format& each : kFormats) {
      if (each.format.name == magic.format) return &each.format;
    }
  }
  return nullptr;
}

const ForeignFormat* foreign_file(std::string_view path) {
  const std::string name = lower_case(path.substr(path.rfind('/') + 1));
  const ForeignFormat* found = nullptr;
  std::size_t longest = 0;  // ".nii.gz" is more than ".gz"
  for (const Format& each : kFormats) {
    for (std::string_view rest = each.endings; !rest.empty();) {
      const std::string_view ending = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(ending.size() + 1, rest.size()));
      if (ending.size() <= longest || name.size() <= ending.size() || !name.ends_with(ending))
        continue;
      found = &each.format;
      longest = ending.size();
    }
  }
  return found;
}

std::string described(const ForeignFormat& format) {
  return std::string(format.name) + ", which " + std::string(format.what);
}

std::string op_name_of(std::string_view transform) {
  transform = transform.substr(0, transform.find('('));
  transform = transform.substr(transform.rfind('.') + 1);  // of transforms.RandomCrop
  std::string name;
  for (std::size_t i = 0; i < transform.size(); ++i) {
    const char c = transform[i];
    const bool begins =
        is_upper(c) && i > 0 &&
        (ends_word(transform[i - 1]) ||
         (is_upper(transform[i - 1]) && i + 1 < transform.size() && ends_word(transform[i + 1])));
    if (begins) name += '_';
    name += c == '-' || c == ' ' ? '_' : lower_case(c);
  }
  return name;
}

std::string_view instead_of_transform(std::string_view op_name) {
  for (const Transform& transform : kTransforms) {
    if (transform.name == op_name) return transform.instead;
  }
  return {};
}

}  // namespace spdld
