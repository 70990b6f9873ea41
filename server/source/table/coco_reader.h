// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/table_spec.h"
#include "source/bytes/read_some.h"
#include "source/item/columns.h"

namespace spdld::source {

// What read_descriptor() is to let through of an annotation file.
inline constexpr std::uint64_t kMaxCocoFile = std::uint64_t{16} << 30;

// An annotation whose box nothing can be learned from.
struct BadBox {
  enum class Why {
    kNoArea,   // its width or height is not above 0
    kOutside,  // no part of it lies in its image, or a corner further away than any image is large
  };
  std::int64_t annotation_id = 0;
  std::int64_t image_id = 0;
  Why why = Why::kNoArea;

  // "annotation 17 of image 4: the box has no area"
  std::string text() const;

  friend bool operator==(const BadBox&, const BadBox&) = default;
};

struct CocoOptions {
  enum class BadBoxes {
    kFail,  // the first one is the error
    kDrop,  // they are left out, and Coco::bad_boxes has them
  };
  BadBoxes bad_boxes = BadBoxes::kFail;
  std::uint64_t max_bytes = std::uint64_t{4} << 30;  // of memory, about
  ListingMemory::SharePtr memory = nullptr;          // asked while the lists grow; null: nobody is
};

// What an annotation file says of its images, one a row, in the order of its list.
struct Coco {
  // The fields that CocoSpec names, first the uris, as texts that item_uri() gave. An image's boxes
  // stand in the order of the file. A box that sticks out of its image is as it stands in the file.
  Columns columns;
  // By label, which is a category's place among the sorted ids: no matter which ids are left out.
  std::vector<std::string> classes;
  std::vector<std::int64_t> category_ids;
  std::vector<BadBox> bad_boxes;  // that were dropped, in the order of the file
  // Annotations of images that the file does not have, which are left out, and the first one's.
  std::uint64_t orphans = 0;
  std::int64_t orphan_id = 0;
  std::int64_t orphan_image_id = 0;
  std::uint64_t repeated_images = 0;  // entries of an image that came before, which are one item
};

// Reads all of an annotation file in one go. There is at least one image; whether its file is there
// is not looked at. Annotation ids may repeat, and so may an image with its file; an image id that
// stands for two files, a category's id or name that comes twice is an error.
Result<Coco> read_coco(const CocoSpec& spec, ReadSome read, const CocoOptions& options = {});

}  // namespace spdld::source
