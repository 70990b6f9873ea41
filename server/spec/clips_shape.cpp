// SPDX-License-Identifier: Apache-2.0
#include "spec/clips_shape.h"

#include <string>
#include <utility>
#include <vector>

#include "op/clips_spec.h"

namespace spdld::spec {
namespace {

// What `clips` and `windows` have in common, behind what is their own. `last_sampling`: what the
// last of their samplings is, which the other one lacks.
Shape cut_shape(std::vector<Key> own, std::vector<std::string> samplings,
                const std::string& last_sampling) {
  Shape stream = any_of({int_shape(0, 65535), string_shape()});
  stream.expected = "best, a stream's number, or a language such as eng";
  Shape times = any_of({string_shape(), list_shape(float_shape(0, 1e9))});
  times.expected = "a list of seconds, or the name of a field of the listing that holds them";
  std::vector<Key> keys = std::move(own);
  keys.push_back({.name = "sampling",
                  .doc = "dense: one each hop; uniform: per_file, evenly spread; random: per_file, "
                         "drawn anew each epoch; timestamps: one at each of them; " +
                         last_sampling +
                         "; not given: dense, or what timestamps or per_file ask for",
                  .shape = choice_shape(std::move(samplings)),
                  .nullable = true});
  keys.push_back({.name = "per_file",
                  .doc = "so many of each file, of uniform and random; not given: 1",
                  .shape = int_shape(1, 65536),
                  .nullable = true});
  keys.push_back({.name = "timestamps",
                  .doc = "where they begin, in seconds: a list, or the field of the listing that "
                         "holds one for each item",
                  .shape = std::move(times),
                  .nullable = true});
  keys.push_back({.name = "end",
                  .doc = "one that runs over its file's end: there is none, its end is filled up "
                         "with the last frame or silence, or it begins anew",
                  .shape = choice_shape({"drop", "pad", "loop"}),
                  .default_value = "drop",
                  .nullable = true});
  keys.push_back(
      {.name = "field",
       .doc =
           "the part of the source that holds the media file; not given: the only one, or the only "
           "one whose suffixes are those of such files",
       .shape = field_shape(),
       .nullable = true});
  keys.push_back({.name = "stream",
                  .doc = "which stream of the file: best, its number, or its language",
                  .shape = std::move(stream),
                  .default_value = "best"});
  keys.push_back({.name = "broken",
                  .doc = "files that cannot be read as media, or have no such stream: left out, "
                         "counted and told of, or an error",
                  .shape = choice_shape({"skip", "error"}),
                  .default_value = "skip"});
  return map_shape(std::move(keys));
}

}  // namespace

Shape clips_shape() {
  Shape audio_stream = any_of({int_shape(0, 65535), string_shape()});
  audio_stream.expected = "best, a stream's number, or a language such as eng";
  Shape shape = cut_shape(
      {{.name = "frames",
        .doc = "how many frames each clip has",
        .shape = int_shape(1, static_cast<double>(ClipsSpec::kMostFrames)),
        .default_value = 16},
       {.name = "stride",
        .doc = "a clip has each so manyth frame of its file",
        .shape = int_shape(1, 65536),
        .default_value = 1},
       {.name = "hop",
        .doc = "frames from one clip's begin to the next, of dense; not given: as many as a clip "
               "spans",
        .shape = int_shape(1, kUnbounded),
        .nullable = true},
       {.name = "stack",
        .doc = "the clips of a file are one item, with a leading dimension of per_file",
        .shape = bool_shape(),
        .default_value = false},
       {.name = "audio",
        .doc = "a further field: the sound of the same file and time",
        .shape = field_shape(),
        .nullable = true},
       {.name = "audio_stream",
        .doc = "which stream that is of: best, its number, or its language",
        .shape = std::move(audio_stream),
        .nullable = true}},
      {"dense", "uniform", "random", "timestamps", "keyframes"},
      "keyframes: one at each key frame");
  return shape;
}

Shape windows_shape() {
  Shape shape = cut_shape(
      {{.name = "seconds",
        .doc = "how long each window is; not given: sampling must be whole",
        .shape = float_shape(1e-4, 86400),
        .nullable = true},
       {.name = "hop",
        .doc = "seconds from one window's begin to the next, of dense; not given: as many as a "
               "window has",
        .shape = float_shape(1e-4, 1e9),
        .nullable = true},
       {.name = "min_seconds",
        .doc = "of whole: files that are shorter are left out; not given: none is too short",
        .shape = float_shape(1e-4, 1e9),
        .nullable = true},
       {.name = "max_seconds",
        .doc = "of whole: files that are longer are left out; not given: none is too long",
        .shape = float_shape(1e-4, 1e9),
        .nullable = true}},
      {"dense", "uniform", "random", "timestamps", "whole"},
      "whole: one, which is all of its file");
  return shape;
}

}  // namespace spdld::spec
