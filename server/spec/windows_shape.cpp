// SPDX-License-Identifier: Apache-2.0
#include "spec/windows_shape.h"

#include <utility>

namespace spdld::spec {
Shape windows_shape() {
  Shape stream = any_of({int_shape(0, 65535), string_shape()});
  stream.expected = "best, a stream's number, or a language such as eng";
  Shape times = any_of({string_shape(), list_shape(float_shape(0, 1e9))});
  times.expected = "a list of seconds, or the name of a field of the listing that holds them";
  Shape shape = map_shape({
      {.name = "seconds",
       .doc = "how long each window is",
       .shape = float_shape(1e-4, 86400),
       .required = true},
      {.name = "hop",
       .doc = "seconds from one window's begin to the next, of dense; not given: as many as a "
              "window has",
       .shape = float_shape(1e-4, 1e9),
       .nullable = true},
      {.name = "sampling",
       .doc = "dense: one each hop; uniform: per_file, evenly spread; random: per_file, "
              "drawn anew each epoch; timestamps: one at each of them; not given: "
              "dense, or what timestamps or per_file ask for",
       .shape = choice_shape({"dense", "uniform", "random", "timestamps"}),
       .nullable = true},
      {.name = "per_file",
       .doc = "so many of each file, of uniform and random; not given: 1",
       .shape = int_shape(1, 65536),
       .nullable = true},
      {.name = "timestamps",
       .doc = "where they begin, in seconds: a list, or the field of the listing that "
              "holds one for each item",
       .shape = std::move(times),
       .nullable = true},
      {.name = "end",
       .doc = "one that runs over its file's end: there is none, its end is silence, or it "
              "begins anew",
       .shape = choice_shape({"drop", "pad", "loop"}),
       .default_value = "drop"},
      {.name = "field",
       .doc = "the part of the source that holds the media file; not given: the first",
       .shape = string_shape(),
       .nullable = true},
      {.name = "stream",
       .doc = "which stream of the file: best, its number, or its language",
       .shape = std::move(stream),
       .default_value = "best"},
      {.name = "broken",
       .doc = "files that cannot be read as media, or have no such stream: left out, "
              "counted and told of, or an error",
       .shape = choice_shape({"skip", "error"}),
       .default_value = "skip"},
  });
  shape.instead = {{"duration", "write 'seconds: S'"}};
  return shape;
}

}  // namespace spdld::spec
