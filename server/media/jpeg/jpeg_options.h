// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "media/jpeg_scan/seek_indexes.h"
#include "op/jpeg_images.h"

namespace spdld::media {

// How JPEG is read beside what its header says.
struct JpegOptions {
  std::shared_ptr<SeekIndexes> indexes = nullptr;  // null: libjpeg-turbo reads all files
  std::uint32_t verify_one_in = 0;  // of the images that our own decoder reads; 0: none
  JpegCounter* counter = nullptr;   // counts images, as `indexes` does; null: nobody else does

  void count(JpegWay way) const {
    if (indexes != nullptr) indexes->count(way);
    if (counter != nullptr) counter->count(way);
  }
};

}  // namespace spdld::media
