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

// A table of another library; the first that fits is it.
struct ForeignTable {
  std::string_view columns;  // the columns that tell it, with a space between them
  ForeignFormat format;
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
    Format{
        {"a list of Kaldi's",
         "has no line that names its columns, and lines that are commands have to become files: "
         "awk 'BEGIN {print \"id\\tpath\"} {print $1 \"\\t\" $2}' wav.scp > wav.tsv makes a table "
         "for 'uri: {audio: path}'"},
        ".scp .ark"},
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

constexpr std::string_view kConversations =
    "is read with 'uri: image', where image is the column of each row's image, 'values: "
    "{conversations: {column: conversations, type: json}}', with its own column's name, and "
    "'optional: image' where some rows have no image; several images of a row each want a column";
constexpr std::string_view kAddresses =
    "names addresses, and none is downloaded here: img2dataset and video2dataset make tar shards, "
    "for 'source: {webdataset: ...}'";
constexpr std::string_view kYouTube =
    "names videos of YouTube and no files: add a column such as path with the file of each row, "
    "for 'uri: {video: path}'";
constexpr std::string_view kLeRobot =
    "has its frames in Parquet, which is not read: write JSON Lines with a row for each frame, its "
    "video file, timestamp, state and action, and 'clips: {timestamps: timestamp, frames: 1}'";

// Of rows or first lines that are quite something else than columns, see foreign_table().
constexpr ForeignFormat kFairseq = {
    "fairseq's manifest",
    "begins with a folder: write that folder as 'root', and in its place the names of the columns, "
    "path and frames, with a tab between them; then 'uri: {audio: path}'"};
constexpr ForeignFormat kHeadless = {
    "a table without a line of names",
    "has a row where the names of its columns must stand: put a line such as 'path,label' before "
    "it, with a comma between cells, here and in the rows, or in a .tsv a tab"};

constexpr std::array kTables = {
    ForeignTable{
        "audio_filepath",
        {"NeMo's manifest",
         "names sound in audio_filepath: write 'uri: {audio: audio_filepath}' and its other "
         "columns under 'values'; an offset that is not 0 wants the sound cut before"}},
    ForeignTable{"supervisions",
                 {"lhotse's list of cuts",
                  "has names of files inside other values: jq -c '{id, path: "
                  ".recording.sources[0].source, text: .supervisions[0].text}' cuts.jsonl > "
                  "sounds.jsonl gives each a column, for 'uri: {audio: path}'"}},
    ForeignTable{"sources sampling_rate",
                 {"lhotse's list of recordings",
                  "has names of files inside lists: jq -c '{id, path: .sources[0].source}' "
                  "recordings.jsonl > sounds.jsonl gives each a column, for 'uri: {audio: path}'"}},
    ForeignTable{"recording_id channel",
                 {"lhotse's list of supervisions",
                  "names no files: export cuts, which have both, and give each file a column"}},
    ForeignTable{"client_id path sentence",
                 {"Common Voice's",
                  "names sound in path, below its folder clips: write 'root: DIRECTORY/clips', "
                  "'uri: {audio: path}' and 'values: {sentence: sentence}'"}},
    ForeignTable{"conversations", {"a set of conversations (LLaVA, ShareGPT)", kConversations}},
    ForeignTable{"messages", {"a set of conversations", kConversations}},
    ForeignTable{"file_name",
                 {"the metadata of a folder of HF's datasets",
                  "names files in file_name: write 'uri: file_name', or of sound 'uri: {audio: "
                  "file_name}', and its other columns under 'values'"}},
    ForeignTable{"images annotations",
                 {"COCO's annotations",
                  "are read by 'source: {coco: {annotations: FILE, root: DIRECTORY}}'"}},
    ForeignTable{"image_id category_id bbox",
                 {"COCO's list of annotations",
                  "are read with the images that they belong to, by 'source: {coco: {annotations: "
                  "FILE, root: DIRECTORY}}'"}},
    ForeignTable{"youtube_id", {"a list of Kinetics'", kYouTube}},
    ForeignTable{"YTID", {"a list of AudioSet's", kYouTube}},
    ForeignTable{"template placeholders",
                 {"a list of Something-Something's",
                  "names videos by id: jq -c '. + {path: (.id + \".webm\")}' FILE.jsonl > "
                  "VIDEOS.jsonl adds the names, for 'uri: {video: path}'"}},
    ForeignTable{"episode_index", {"LeRobot's", kLeRobot}},
    ForeignTable{"task_index", {"LeRobot's", kLeRobot}},
    ForeignTable{"contentUrl", {"a list of WebVid's", kAddresses}},
    ForeignTable{"URL TEXT", {"a list of LAION's", kAddresses}},
    ForeignTable{"url caption", {"a list of addresses", kAddresses}},
    ForeignTable{"__key__",
                 {"a list of WebDataset's samples",
                  "stand in tar shards: write 'source: {webdataset: {shards: "
                  "\"train-{000..129}.tar\", fields: {image: jpg}}}'"}},
};

// By these a name is that of a file that a row is about.
constexpr std::array kMediaEndings = {".jpg"sv, ".jpeg"sv, ".png"sv, ".webp"sv,
                                      ".mp4"sv, ".webm"sv, ".avi"sv, ".mkv"sv,
                                      ".wav"sv, ".flac"sv, ".mp3"sv, ".opus"sv};

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
constexpr std::string_view kBoxes =
    "write 'bounding_boxes' before the crops: it moves boxes with the image, clips them and leaves "
    "out those of which too little is left";
constexpr std::string_view kPadding =
    "there is no such op: random_crop: {size: N, padding: 4} puts 0 around an image and crops, "
    "center_crop around one that is smaller, and batch: {collate: {FIELD: pad}} around the smaller "
    "rows of a batch";
constexpr std::string_view kMono = "write 'mix_channels', or decode_audio: {channels: 1}";
constexpr std::string_view kShortSide = "write resize: {size: N}, the short side";
constexpr std::string_view kFrames =
    "the source says which frames a clip has: clips: {frames: N, sampling: uniform} below 'source'";
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
    Transform{"flip", kFlipped},
    Transform{"smallest_max_size", kShortSide},
    Transform{"short_side_scale", kShortSide},
    Transform{"crop", "write 'random_crop' or 'center_crop'"},
    Transform{"pad", kPadding},
    Transform{"pad_if_needed", kPadding},
    Transform{"clamp_bounding_boxes", kBoxes},
    Transform{"sanitize_bounding_boxes", kBoxes},
    Transform{"convert_bounding_box_format", kBoxes},
    Transform{"bbox_params", kBoxes},
    Transform{"uniform_temporal_subsample", kFrames},
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
    Transform{"random_photometric_distort", kOnBatches},
    Transform{"hue_saturation_value", kOnBatches},
    Transform{"gaussian_noise", kOnBatches},
    Transform{"random_solarize", kOnBatches},
    Transform{"random_posterize", kOnBatches},
    Transform{"five_crop", kOnBatches},
    Transform{"ten_crop", kOnBatches},
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
    Transform{"mel", "write 'mel_spectrogram'"},
    Transform{"mel_spec", "write 'mel_spectrogram'"},
    Transform{"stft", "write 'spectrogram'"},
    Transform{"log_mel_spectrogram",
              "write log_mel, which is Whisper's, or mel_spectrogram and below it amplitude_to_db"},
    Transform{"power_to_db", "write 'amplitude_to_db'"},
    Transform{"vol", "write 'gain'"},
    Transform{"speed", "write 'speed_perturbation: {factors: N}'"},
    Transform{"to_mono", kMono},
    Transform{"downmix_mono", kMono},
    Transform{"tokenize", "there is no such op: a tokenizer runs in Loader(..., map=)"},
    Transform{"shuffle", "the order is no stage: write 'shuffle' beside 'stages'"},
    Transform{"batch", kNoStage},
    Transform{"batched", kNoStage},
    Transform{"to_tuple", "leave it out: Loader(..., output=(\"image\", \"label\")) makes tuples"},
};

// An argument of another library.
struct Argument {
  std::string_view in;  // ops, sections or keys, with a space between them; empty: any
  // Keys, or values in small letters, with a space between them; N is any whole number.
  std::string_view names;
  std::string_view instead;
};

constexpr std::string_view kThreads =
    "leave it out: the daemon has the threads, for all pipelines together (executor.cpu_threads in "
    "its configuration)";
constexpr std::string_view kPinned = "leave it out: batches lie in shared memory";
constexpr std::string_view kPrefetch = "write 'delivery: {prefetch: N}'";
constexpr std::string_view kCollate =
    "write 'batch: {collate: {FIELD: pad}}', or stack, ragged or bytes; a function of your own is "
    "Loader(..., map=)";
constexpr std::string_view kByLength =
    "a batch has so many rows: write 'batch: {size: N}', and 'shuffle: {global: {bucket: {by: "
    "FIELD}}}' so that they are of like length";
constexpr std::string_view kMixture =
    "there is no mixture: a row that a table names twice comes twice, and a loop can read a Loader "
    "for each set";
constexpr std::string_view kNoBuffer =
    "write 'shuffle: global', which needs no buffer: it is a permutation of all items";
constexpr std::string_view kSplit =
    "write 'select: {split: {part: train, val: 0.2}}' below 'source', or a pipeline for each "
    "folder";
constexpr std::string_view kRoot = "write 'root: DIRECTORY'";
constexpr std::string_view kClip =
    "the source says which frames a clip has: 'clips: {frames: N, stride: M}' below 'source'";
constexpr std::string_view kWindow =
    "the source says which part of a file is read: 'windows: {seconds: S}' below 'source'";
constexpr std::string_view kSizes = "write 'size: [HEIGHT, WIDTH]', or one number";
constexpr std::string_view kZeros = "leave it out: what is put around an image is 0";
constexpr std::string_view kScaled =
    "leave it out: integers are brought into [0, 1] first, bytes by 255";
constexpr std::string_view kRate = "write 'sample_rate: HZ'";
constexpr std::string_view kOfSound =
    "leave it out: it is the sound's, which decode_audio: {sample_rate: HZ} makes one for all";
constexpr std::string_view kSpectra = "spectrogram mel_spectrogram mfcc";

constexpr std::array kArguments = {
    Argument{"pipeline", "batch_size", "write 'batch: {size: N}'"},
    Argument{"pipeline", "dataset", "write 'source: {files: {root: DIRECTORY}}'"},
    Argument{"pipeline", "data_dir dataset_path root path",
             "write 'source: {files: {root: DIRECTORY}}'"},
    Argument{"pipeline", "drop_last",
             "write 'batch: {size: N, last: drop}'; last may be pad or keep, too"},
    Argument{"pipeline batch delivery", "num_workers persistent_workers", kThreads},
    Argument{"pipeline batch delivery", "pin_memory", kPinned},
    Argument{"pipeline batch delivery", "prefetch_factor", kPrefetch},
    Argument{"pipeline batch", "collate_fn", kCollate},
    Argument{"pipeline batch", "max_tokens max_frames batch_sampler", kByLength},
    Argument{"pipeline", "transforms transform augmentations",
             "write 'stages', a list of ops that begins with fetch"},
    Argument{"pipeline", "clips windows select",
             "it stands in 'source', beside 'files' or another kind of source"},
    Argument{"pipeline", "mixture datasets weights sampling_weights", kMixture},
    Argument{"pipeline", "buffer_size shuffle_buffer shuffle_buffer_size", kNoBuffer},
    Argument{"pipeline", "sampler",
             "write 'shuffle: global'; a Loader's rank and world_size say which part each gets"},
    Argument{"pipeline", "ra_sampler repeated_aug aug_repeats ra_reps",
             "write 'repeat: {rows: 3, adjacent: false}'"},
    Argument{"pipeline source files table", "split", kSplit},
    Argument{"pipeline", "epochs num_epochs", "a loop says how often it reads a Loader"},

    Argument{"batch", "batch_size", "write 'size: N'"},
    Argument{"batch", "drop_last", "write 'last: drop', which is the default, 'pad' or 'keep'"},
    Argument{"batch", "shuffle", "it stands beside 'batch', not in it"},

    Argument{"shuffle", "true yes on shuffle random", "write 'global'"},
    Argument{"shuffle", "false no off sequential", "write 'none'"},
    Argument{"shuffle", "N buffer_size initial bufsize", kNoBuffer},
    Argument{"shuffle", "bucket", "write 'global: {bucket: {by: FIELD}}'"},
    Argument{"shuffle", "seed", "it stands beside 'shuffle', not in it"},

    Argument{"source", "imagefolder image_folder folder directory",
             "write 'files: {root: DIRECTORY, label: parent_dir}'"},
    Argument{"source", "csv tsv json jsonl manifest", "write 'table: {file: FILE, uri: COLUMN}'"},
    Argument{"source", "tar tars shards wds",
             "write 'webdataset: {shards: \"train-{000..129}.tar\", fields: {image: jpg}}'"},
    Argument{"source", "hf huggingface datasets parquet arrow",
             "files of this machine are read, and no Parquet or Arrow: save the set as images with "
             "metadata.jsonl, for 'table', or as tar shards, for 'webdataset'"},
    Argument{"source", "filter where", "write 'select: {where: CONDITION}'"},
    Argument{"files", "path dir directory folder data_dir", kRoot},
    Argument{"files", "extensions ext suffix recursive glob",
             "write 'pattern: \"**/*.{jpg,png}\"', where ** stands for folders"},
    Argument{"table", "path csv csv_file data_files manifest", "write 'file: FILE'"},
    Argument{"table", "image images image_column path_column file_column audio video",
             "write 'uri: COLUMN', or 'uri: {FIELD: COLUMN}' for another field than image"},
    Argument{"table", "caption text text_column columns", "write 'values: {FIELD: COLUMN}'"},
    Argument{"table", "delimiter sep", "write 'format: csv' for commas, 'format: tsv' for tabs"},
    Argument{"table", "header names", "leave it out: a table's first line names the columns"},
    Argument{"coco", "annFile ann_file annotation_file json", "write 'annotations: FILE'"},
    Argument{"coco", "img_folder img_dir images image_root", kRoot},
    Argument{"webdataset", "cache_dir",
             "shards are files here; write 'cache: {size: SIZE}' beside 'source'"},
    Argument{"webdataset", "cache_size", "write 'cache: {size: SIZE}' beside 'source'"},
    Argument{"webdataset", "shardshuffle",
             "write 'shuffle: {block: N, interleave: M}' beside 'source'"},
    Argument{"webdataset", "url urls", "write 'shards: \"train-{000..129}.tar\"'"},
    Argument{"webdataset", "handler", "write 'on_error' beside 'source'"},
    Argument{"webdataset", "resampled nodesplitter workersplitter",
             "leave it out: each rank gets its own part of every epoch"},
    Argument{"select", "filter", "write 'where: CONDITION'"},
    Argument{"select", "limit max_samples num_samples n", "write 'take: N'"},
    Argument{"select", "val_size val_split val_ratio test_size validation_split",
             "write 'split: {part: train, val: 0.2}'"},
    Argument{"split", "val_size val_ratio", "write 'val: SHARE'"},
    Argument{"split", "test_size test_ratio", "write 'test: SHARE'"},
    Argument{"split", "train train_size train_ratio",
             "leave it out: train is what 'val' and 'test' leave"},
    Argument{"part", "validation valid dev", "write 'val'"},
    Argument{"clips", "seconds duration",
             "clips are so many frames; windows of sound have seconds"},
    Argument{"clips", "clip_length clip_len num_frames n_frames", "write 'frames: N'"},
    Argument{"clips", "sampling_rate frame_interval",
             "write 'stride: N', frames from one to the next"},
    Argument{"clips", "clips_per_video num_clips", "write 'per_file: N'"},
    Argument{"clips", "step_between_clips frames_between_clips", "write 'hop: FRAMES'"},
    Argument{"clips", "fps frame_rate",
             "frames are those of the file: write 'stride: N', or make the files of one rate"},
    Argument{"clips windows", "start start_time offset",
             "write 'timestamps: FIELD', a field of the listing with the seconds"},
    Argument{"windows", "frames", "windows of sound have 'seconds: S'; clips of video have frames"},
    Argument{"windows", "duration window_size chunk_length segment_size", "write 'seconds: S'"},
    Argument{"windows", "hop_length stride overlap",
             "write 'hop: SECONDS', from one begin to the next"},
    Argument{"windows", "min_duration", "write 'min_seconds: S' beside 'sampling: whole'"},
    Argument{"windows", "max_duration", "write 'max_seconds: S' beside 'sampling: whole'"},
    Argument{"windows", "sample_rate sr",
             "write decode_audio: {sample_rate: HZ} under 'stages'; windows are so many seconds"},
    Argument{"windows", "stack", "windows are an item each; clips of video can be stacked"},

    Argument{"decode_image", "color_mode color format to_rgb",
             "write 'mode: rgb', 'gray' or 'rgba'"},
    Argument{"decode_image", "apply_exif_orientation", "write 'exif: true', which is the default"},
    Argument{"decode_audio", "sr sampling_rate rate", kRate},
    Argument{"decode_audio", "mono num_channels", "write 'channels: 1'"},
    Argument{"decode_audio", "offset duration frame_offset num_frames", kWindow},
    Argument{"decode_audio", "normalize", "leave it out: sound is float32 in [-1, 1]"},
    Argument{"decode_video", "num_frames frames clip_len stride fps", kClip},
    Argument{"decode_video", "backend decoder num_threads num_ffmpeg_threads device", kThreads},
    Argument{"decode_video", "output_format dimension_order", "write 'layout: tchw'"},
    Argument{"resize center_crop random_crop random_resized_crop", "height width h w", kSizes},
    Argument{"resize random_resized_crop", "resample interpolation_mode",
             "write 'interpolation: bilinear'"},
    Argument{"center_crop random_crop", "fill padding_mode pad_mode border_mode fill_value",
             kZeros},
    Argument{"random_horizontal_flip", "prob probability", "write 'p: 0.5'"},
    Argument{"normalize", "max_pixel_value scale rescale_factor", kScaled},
    Argument{"resample", "orig_freq", "leave it out: it is the sound's"},
    Argument{"resample", "new_freq sr target_sr target_sample_rate", kRate},
    Argument{"resample", "lowpass_filter_width rolloff resampling_method",
             "filters are FFmpeg's: filter_size, cutoff and filter_type"},
    Argument{"pad_or_trim", "length max_length num_samples", "write 'samples: N' or 'seconds: S'"},
    Argument{"speed_perturbation", "orig_freq", kOfSound},
    Argument{"add_noise", "noise noise_dir noises",
             "leave it out: the noise is made here, white; recorded noise is added in Loader(..., "
             "map=)"},
    Argument{kSpectra, "hop hop_size frame_shift stride step", "write 'hop_length: SAMPLES'"},
    Argument{kSpectra, "win window_size frame_length", "write 'win_length: SAMPLES'"},
    Argument{kSpectra, "sr sample_rate sampling_rate", kOfSound},
    Argument{kSpectra, "window window_fn wkwargs", "leave it out: the window is Hann's"},
    Argument{"spectrogram", "n_mels", "write 'mel_spectrogram' in place of 'spectrogram'"},
    Argument{"mel_spectrogram mfcc", "htk", "write 'mel_scale: htk' or 'slaney'"},
    Argument{"mfcc", "melkwargs", "write what is in it beside 'n_mfcc'"},
    Argument{"log_mel", "sr sample_rate", kOfSound},

    Argument{"interpolation", "N",
             "write its name: Pillow's 2 is 'bilinear', its 3 is 'bicubic', its 0 'nearest'"},
    Argument{"interpolation", "linear inter_linear", "write 'bilinear'"},
    Argument{"interpolation", "cubic inter_cubic", "write 'bicubic'"},
    Argument{"interpolation", "lanczos area inter_area inter_lanczos4 box hamming",
             "write 'bicubic', or 'bilinear' with antialias: true, which sees all pixels"},
    Argument{"mode", "l grayscale", "write 'gray'"},
    Argument{"mode", "p", "write 'index'"},
    Argument{"mode", "i;16", "write 'gray16'"},
    Argument{"mode", "bgr", "write 'rgb'; image.flip(1) on a batch turns the channels round"},
    Argument{"table_format", "json", "a table is JSON Lines, one object a line: write 'jsonl'"},
    Argument{"format", "pascal_voc", "write 'xyxy'"},
    Argument{"format", "coco", "write 'xywh'"},
    Argument{"format", "albumentations", "write 'xyxy' with normalized: true"},
    Argument{"format", "yolo", "write 'cxcywh' with normalized: true"},
    Argument{"dtype", "float fp32", "write 'float32'"},
    Argument{"dtype", "half fp16", "write 'float16'"},
    Argument{"dtype", "bf16", "write 'bfloat16'"},
    Argument{"dtype", "long", "write 'int64'"},
    Argument{"resize center_crop random_crop random_resized_crop normalize", "p",
             "leave it out: it is done to each"},
    Argument{"", "inplace", "leave it out: ops work in place"},
    Argument{"", "always_apply", "leave it out: an op without 'p' always works"},
};

// Calls `each` with every word until it says true; whether one of them did.
template <typename Each>
bool any_word(std::string_view words, Each each) {
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(word.size() + 1, words.size()));
    if (each(word)) return true;
  }
  return false;
}

bool has_word(std::string_view words, std::string_view wanted) {
  return any_word(words, [&](std::string_view word) { return word == wanted; });
}

bool is_whole_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// "v0.mp4" or "v0.mp4 3": a row, and no name of a column.
bool names_media(std::string_view column) {
  const std::string first = lower_case(column.substr(0, column.find(' ')));
  return std::any_of(kMediaEndings.begin(), kMediaEndings.end(), [&](std::string_view ending) {
    return first.size() > ending.size() && first.ends_with(ending);
  });
}

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
    any_word(each.endings, [&](std::string_view ending) {
      if (ending.size() > longest && name.size() > ending.size() && name.ends_with(ending)) {
        found = &each.format;
        longest = ending.size();
      }
      return false;
    });
  }
  return found;
}

const ForeignFormat* foreign_table(const std::vector<std::string>& columns) {
  for (const ForeignTable& table : kTables) {
    const bool lacks = any_word(table.columns, [&](std::string_view wanted) {
      return std::find(columns.begin(), columns.end(), wanted) == columns.end();
    });
    if (!lacks) return &table.format;
  }
  if (columns.size() == 1 && columns.front().starts_with('/') && !names_media(columns.front()))
    return &kFairseq;
  return std::any_of(columns.begin(), columns.end(), names_media) ? &kHeadless : nullptr;
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

std::string_view instead_of_argument(std::string_view in, std::string_view name) {
  for (const Argument& argument : kArguments) {
    if (!argument.in.empty() && !has_word(argument.in, in)) continue;
    if (has_word(argument.names, name)) return argument.instead;
    if (is_whole_number(name) && has_word(argument.names, "N")) return argument.instead;
  }
  return {};
}

}  // namespace spdld
