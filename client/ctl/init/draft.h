// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::ctl {

// What `init` has learned of a dataset, as far as a pipeline's text needs it.
struct Draft {
  enum class Kind { kVideos, kImages, kSound };

  std::string path;                         // that was looked at, absolute
  std::string output = {};                  // where the text goes; empty: not into a file
  std::vector<std::string> seen = {};       // what lies there: a comment each
  std::string root = {};                    // the value of the variable `root`
  std::vector<std::string> source = {};     // the lines below `source:`, as they stand
  std::vector<std::string> hints = {};      // lines behind decode_image: stages, or comments
  std::vector<std::string> unbounded = {};  // fields that these make and that `batch` has to bound
  std::vector<std::string> bounds = {};     // of fields of unknown size, as `collate` has them
  std::vector<std::string> splits = {};     // folders of which the first alone is taken
  std::uint64_t items = 0;                  // about so many; 0: not known
  Kind kind = Kind::kImages;                // of what is decoded
  bool shards = false;                      // read in sequence, so shuffled by blocks
  bool boxes = false;                       // they lie in pixels of the images
  bool class_folders = false;               // as an ImageFolder has them
  bool class_names = false;                 // labels are numbers of names that are sorted
  bool validation = false;                  // in order, and without random draws
  bool has_validation = false;              // a pipeline of its own
};

// `text` with each $ doubled, as it stands for itself in YAML of pipelines.
std::string without_variables(std::string_view text);
// `text` as one YAML scalar in which no variable stands. Throws Failure if it is no UTF-8.
std::string yaml_text(std::string_view text);
// The same of a text that has "${root}" in front.
std::string yaml_below_root(std::string_view text);
// The same of a text in which a plain $ is doubled already, and parts of items stand.
std::string yaml_of_pattern(std::string_view text);

// Makes a draft that of a validation pipeline, beside the training pipeline of `training`. Its
// labels are training's.
void make_validation(const Draft& training, Draft& draft);

// The whole YAML, with comments for people. The pipeline is called as its file is, or else as what
// was looked at.
std::string pipeline_text(const Draft& draft);

}  // namespace spdld::ctl
