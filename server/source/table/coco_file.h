// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "source/bytes/read_some.h"

namespace spdld::source {

// What an annotation file of COCO's object detection format says, list by list in its order. Other
// lists and keys, such as segmentations, are left out. An id may be written as a text: "17".
struct CocoFile {
  struct Image {
    std::int64_t id = 0;
    std::int64_t width = 0;  // 0: the file does not say, here and below
    std::int64_t height = 0;
    std::string file_name;
  };
  struct Annotation {
    std::int64_t id = 0;
    std::int64_t image_id = 0;
    std::int64_t category_id = 0;
    std::array<double, 4> box{};  // x, y, width, height; in pixels, finite
    double area = 0;              // where the file has none: that of the box
    bool is_crowd = false;        // false where the file has nothing
  };
  struct Category {
    std::int64_t id = 0;
    std::string name;  // not empty
  };

  std::vector<Image> images;
  std::vector<Annotation> annotations;
  std::vector<Category> categories;
};

// Reads `file` in one go; the lists take at most about `max_bytes` of memory, for which `memory` is
// asked, else it is kResourceExhausted. `files_optional`: an image without a file_name, or one that
// is null or empty, has none. Errors about contents begin with "file:line:column: " of the place
// behind them, and name the annotation by its id where that has been read, else by its index in the
// list.
Result<CocoFile> read_coco_file(const std::string& file, ReadSome read, std::uint64_t max_bytes,
                                bool files_optional = false,
                                const ListingMemory::SharePtr& memory = nullptr);

}  // namespace spdld::source
