// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"
#include "media/jpeg/coefficient_image.h"
#include "media/jpeg/jpeg_kernels.h"
#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/indexed_scan.h"
#include "media/jpeg_scan/scan_pass.h"
#include "media/jpeg_scan/scan_survey.h"
#include "media/jpeg_scan/scan_tables.h"
#include "media/jpeg_scan/seek_index.h"
#include "media/jpeg_scan/whole_scan.h"
#include "op/image.h"

namespace spdld::media {

// The size, colour and orientation of such a file's image.
RasterInfo raster_info(const BaselineFrame& frame, int exif_orientation);

// Regions of baseline JPEG, with libjpeg-turbo's pixels: of a scan whose index is there, only the
// MCUs of the region are decoded. One image at a time, used by one thread.
class BaselineDecoder {
 public:
  // What becomes of the samples: luma alone, or red, green and blue.
  enum class Output { kGray, kRgb };
  static Output output_for(const ImageMode& mode);
  static DecodedRows rows_of(Output output);
  // The memory that reading takes at most beside the file and its index: the coefficients and the
  // samples of some rows of MCUs. Some KB between the rows are not counted.
  static std::uint64_t most_bytes(const BaselineFrame& frame);
  // The further memory that a file of so many bytes takes: for copies of its scan, and for the MCUs
  // that a survey finds in it.
  static std::uint64_t most_scan_bytes(const BaselineFrame& frame, std::uint64_t bytes);

  // The file must live as long as it is read.
  void open(const BaselineFrame& frame, std::span<const std::byte> file, Output output);
  // Likewise, of an image of which the coefficients were kept.
  void open(const CoefficientImage& image, Output output);
  // By the index: decodes the region alone. Returns how many rows the sink was given: fewer than
  // the region has where index and scan disagree.
  int read(const SeekIndex& index, const Rect& region, RowSink& rows);

  // Without one: makes one, where ScanSurvey can, or decodes the scan from its begin to the
  // region's end. Returns likewise how many rows the sink was given: fewer than the region has
  // where the scan is not sound. With `grid`, `entries` become those of the scan's index then, or
  // none if it is not sound to its end; they stay until the next call.
  int read_first(const SeekGrid* grid, const Rect& region, RowSink& rows,
                 std::span<const std::uint64_t>& entries);

  // Of kept coefficients, which are those of open(): returns how many rows the sink was given,
  // fewer than the region has where they are damaged.
  int read(const CoefficientImage& image, const Rect& region, RowSink& rows);
  // All coefficients of the scan that open() was given. False: it is not sound.
  bool copy(CoefficientWriter& to);

 private:
  // MCU rows of samples that are kept. Two would do, since pixels draw on a row and the one before
  // it, but a region took 5 % longer with two (spdld_media_bench on Emerald Rapids).
  static constexpr int kKeptRows = 4;
  // One component's samples, in a ring of MCU rows.
  struct Plane {
    int mcu_width = 8;
    int mcu_height = 8;
    int width = 0;  // of the image, in samples of this component
    int height = 0;
    int origin = 0;  // the first sample of a line that is there
    std::ptrdiff_t stride = 0;
    JpegMultipliers multipliers{};
    std::vector<std::uint8_t> samples;

    // A line of samples, addressed as in the image.
    std::uint8_t* line(int y);
  };

  void open_planes(const BaselineFrame& frame, Output output);
  bool halves_columns() const { return planes_[0].mcu_width == 16; }
  bool halves_rows() const { return planes_[0].mcu_height == 16; }
  // What a region is made of, and how far it has got.
  struct Progress {
    Rect region;
    McuSpan mcus;   // of each row
    int first = 0;  // MCU rows [first, end)
    int end = 0;
    int y = 0;  // the next row that the sink is given
  };
  Progress begin(const Rect& region);
  // MCU rows up to `end` were transformed: gives the sink what can be made of them.
  void emit(int end, Progress& progress, RowSink& rows);
  bool needs_rows_beside() const { return halves_rows() && output_ == Output::kRgb; }
  McuSpan columns_of(const Rect& region) const;
  void prepare_planes(const McuSpan& mcus);
  void transform(int mcu_row, const std::int16_t* blocks, BlockOrder order, const McuSpan& mcus);
  const std::uint8_t* pixels(int y, const Rect& region);
  const std::uint8_t* chroma(Plane& plane, int y, const Rect& region,
                             std::vector<std::uint8_t>& line);

  BaselineFrame frame_;
  Output output_ = Output::kRgb;
  std::span<const std::byte> scan_;
  ScanTables tables_;
  IndexedScan indexed_;
  WholeScan whole_;
  ScanSurvey survey_;
  ScanPass pass_;
  std::vector<std::int16_t> blocks_;  // kept ones of a row
  std::array<Plane, 3> planes_;
  std::vector<std::uint8_t> blue_line_;
  std::vector<std::uint8_t> red_line_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace spdld::media
