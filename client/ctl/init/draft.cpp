// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/draft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text/ascii.h"
#include "base/text/printable.h"
#include "base/text/utf8.h"
#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

constexpr std::uint64_t kRows = 32;  // of a batch
constexpr std::uint64_t kClips = 8;  // likewise
constexpr std::size_t kMaxName = 128;
constexpr const char* kValidationCrop =
    "  - resize: {size: 256}          # the short side\n"
    "  - center_crop: {size: \"${size}\"}\n";
constexpr const char* kFlip =
    "  - random_horizontal_flip: {p: 0.5}   # not where left and right differ, as in text\n";

// Whether YAML takes it for this text without quotes.
bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 12> kOthers{"null", "true", "false", "yes", "no",  "on",
                                                     "off",  "y",    "n",     "nan", "inf", "none"};
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/')) return false;
  return std::find(kOthers.begin(), kOthers.end(), lower_case(text)) == kOthers.end() &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || is_digit(c) || c == '_' || c == '/' || c == '.' || c == '-';
         });
}

std::string in_quotes(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    if (length == 0)
      throw Failure(kWrongUsage, fmt::format("'{}' is not UTF-8, which a pipeline's text is: "
                                             "rename it, or go by a link that has another name",
                                             printable(text)));
    rest.remove_prefix(length);
  }
  // JSON's texts are YAML's.
  return nlohmann::json(text).dump();
}

// The last part of the path, as far as it may be a pipeline's name.
std::string pipeline_name(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) {
    if (!is_letter(c) && !is_digit(c) && c != '.' && c != '_') c = '-';
  }
  while (!name.empty() && (name.front() == '-' || name.front() == '.')) name.erase(0, 1);
  while (!name.empty() && (name.back() == '-' || name.back() == '.')) name.pop_back();
  name = name.substr(0, kMaxName);
  return name.empty() ? "dataset" : name;
}

std::string name_of(const Draft& draft) {
  return pipeline_name(draft.output.empty() ? draft.path : draft.output);
}

// The line of shuffle, and what stands before it.
std::string order_of(const Draft& draft) {
  if (draft.validation) return "shuffle: none\n";
  std::string text;
  if (!draft.has_validation)
    text =
        "  # A tenth for validation, always the same: in another file with part: val.\n"
        "  # select: {split: {part: train, val: 0.1}}\n";
  if (draft.shards)
    return text +
           "shuffle: {block: 512, interleave: 16}   # 16 blocks are mixed: shards are fast "
           "in sequence\n";
  text += "shuffle: global                # another order in each epoch";
  return text + (draft.has_validation ? "\n" : "; for validation: none\n");
}

// The keys of `batch` that follow its size, each with a comma before it.
std::string rest_of_batch(const Draft& draft) {
  std::string text;
  if (draft.validation) text += ", last: pad";
  if (!draft.bounds.empty())
    text += fmt::format(", collate: {{{}}}", fmt::join(draft.bounds, ", "));
  return text;
}

// The stages behind `fetch`, and an empty line.
std::string image_stages(const Draft& draft) {
  std::string text;
  if (draft.boxes) {
    text += "  # Boxes are drawn on the pixels as they are stored.\n";
    text += "  - decode_image: {mode: rgb, exif: false}\n";
    text +=
        "  # What follows moves boxes with their images; those that are lost go with their "
        "labels.\n";
    text += "  - bounding_boxes: {field: boxes, with: [labels, ids, iscrowd, area]}\n";
  } else {
    if (draft.class_folders)
      text +=
          "  # ImageFolder does not turn images upright by their EXIF: with exif: false, neither "
          "does this.\n";
    text += "  - decode_image: {mode: rgb}\n";
  }
  for (const std::string& hint : draft.hints) text += "  " + hint + "\n";
  if (draft.validation && draft.boxes) {
    text += "  - resize: {size: [\"${size}\", \"${size}\"]}\n";
  } else if (draft.validation) {
    text += kValidationCrop;
  } else {
    text += fmt::format("  - random_resized_crop: {{size: [\"${{size}}\", \"${{size}}\"]{}}}\n",
                        draft.boxes ? ", scale: [0.3, 1.0]" : "");
    text += kFlip;
  }
  text +=
      "  # Pixels in [0, 1] less ImageNet's means, by its deviations, as pretrained models want "
      "it;\n"
      "  # without this stage, pixels are bytes.\n"
      "  - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n\n";
  return text;
}

// Likewise. The windows that are cut of files have all one length, whatever the files' rates are.
std::string sound_stages() {
  return "  # Every file gets this rate, and one channel: 16000 Hz is what models of speech want.\n"
         "  - decode_audio: {sample_rate: 16000, channels: 1}\n"
         "  # Whisper's spectra: [channels, n_mels, frames]. Without this stage, rows are "
         "samples;\n"
         "  # mel_spectrogram and mfcc make others.\n"
         "  - log_mel\n\n";
}

std::string video_stages(const Draft& draft) {
  std::string text;
  if (draft.validation) {
    text = std::string("  - decode_video\n") + kValidationCrop;
  } else {
    text = std::string(
               "  # All frames of a clip are moved by one draw.\n"
               "  - decode_video\n"
               "  - resize: {size: 256}          # the short side\n"
               "  - random_crop: {size: [\"${size}\", \"${size}\"]}\n") +
           kFlip;
  }
  return text +
         "  # Pixels in [0, 1] less these means, by these deviations, as models of Kinetics want "
         "it;\n"
         "  # without this stage, pixels are bytes.\n"
         "  - normalize: {mean: [0.45, 0.45, 0.45], std: [0.225, 0.225, 0.225]}\n\n";
}

std::string stages_of(const Draft& draft) {
  switch (draft.kind) {
    case Draft::Kind::kVideos: return video_stages(draft);
    case Draft::Kind::kSound: return sound_stages();
    case Draft::Kind::kImages: break;
  }
  return image_stages(draft);
}

std::string variables_of(const Draft& draft) {
  switch (draft.kind) {
    case Draft::Kind::kVideos: return "frames: 16, stride: 4, size: 224";
    case Draft::Kind::kSound: return "seconds: 4";
    case Draft::Kind::kImages: break;
  }
  return fmt::format("size: {}", draft.boxes ? 640 : 224);
}

}  // namespace

std::string without_variables(std::string_view text) {
  std::string doubled;
  for (const char c : text) doubled.append(c == '$' ? 2 : 1, c);
  return doubled;
}

std::string yaml_text(std::string_view text) {
  return is_plain(text) ? std::string(text) : in_quotes(without_variables(text));
}

std::string yaml_of_pattern(std::string_view text) { return in_quotes(text); }

std::string yaml_below_root(std::string_view text) {
  return in_quotes("${root}/" + without_variables(text));
}

void make_validation(const Draft& training, Draft& draft) {
  draft.validation = true;
  for (std::size_t i = 0; i < draft.source.size(); ++i) {
    if (draft.source[i].starts_with("  label:") && draft.class_names) {
      draft.source.insert(
          draft.source.begin() + static_cast<std::ptrdiff_t>(i) + 1,
          fmt::format("  classes: {{from: {}}}   # labels are the numbers that training gave them",
                      yaml_text(name_of(training))));
    } else if (draft.source[i].starts_with("  sampling: random")) {
      draft.source[i] = "  sampling: uniform           # the middle of each video";
    }
  }
}

std::string pipeline_text(const Draft& draft) {
  std::string text = fmt::format("# Written by 'spdlctl init' for {}\n", printable(draft.path));
  for (const std::string& each : draft.seen) text += fmt::format("# {}\n", printable(each));
  // A number is quoted: the name of a pipeline is a text.
  text += fmt::format("pipeline: {}\n\n", yaml_text(name_of(draft)));
  text += "vars: {";
  if (!draft.root.empty())
    text += fmt::format("root: {}, ", in_quotes(without_variables(draft.root)));
  text += variables_of(draft) + "}\n\n";
  if (!draft.validation)
    text += "seed: 42                       # the order and every random draw follow from it\n";
  text += "source:\n";
  for (const std::string& line : draft.source) text += "  " + line + "\n";
  text += order_of(draft);
  text += "\nstages:\n  - fetch\n";
  text += stages_of(draft);
  const bool videos = draft.kind == Draft::Kind::kVideos;
  const std::uint64_t most = videos ? kClips : kRows;
  const std::uint64_t rows = draft.items == 0 ? most : std::min(draft.items, most);
  if (draft.validation)
    text += "# All ranks take equally many steps; rows that only fill up the last are not valid.\n";
  text += fmt::format("batch: {{size: {}{}}}   # rows of each rank{}\n", rows, rest_of_batch(draft),
                      videos ? "; video: [rows, frames, channels, height, width]" : "");
  if (!draft.unbounded.empty()) {
    std::string bounds;
    for (const std::string& field : draft.unbounded)
      bounds += fmt::format("{}{}: {{max_bytes: 4KiB}}", bounds.empty() ? "" : ", ", field);
    text += fmt::format(
        "# With decode_json, its lists want a bound of a row:\n"
        "# batch: {{size: {}, collate: {{{}}}}}\n",
        rows, bounds);
  }
  return text;
}

}  // namespace spdld::ctl
