// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs FILE
#include <span>

// jpeglib.h comes last of the outside headers
#include <jpeglib.h>

#include "base/status.h"

namespace spdld::media {

// libjpeg's decompressor with its source (a span of memory) and its way of failing (longjmp).
// Owned by one LibjpegReader and used by its thread alone. After a failed attempt() only abort(),
// failure() and begin() may be called.
class JpegCodec {
 public:
  JpegCodec();
  ~JpegCodec();
  JpegCodec(const JpegCodec&) = delete;
  JpegCodec& operator=(const JpegCodec&) = delete;

  // Begins an image in `bytes`, which must live as long as they are read; false as attempt().
  // libjpeg starts from nothing: left to itself it keeps one file's tables for the next, so that a
  // damaged file would decode or fail by what was read before it. That costs a microsecond.
  bool begin(std::span<const std::byte> bytes);

  // Runs `step`, which calls libjpeg; false when libjpeg reported an error, or a warning that means
  // corrupt data. libjpeg then leaves by longjmp: no frame between here and libjpeg may hold
  // anything with a destructor.
  template <typename Step>
  bool attempt(const Step& step) {
    if (setjmp(errors_.jump) != 0) return false;
    step(info_);
    return true;
  }

  // Why the last attempt() failed.
  Status failure() const;
  // Ends the image, whatever its state.
  void abort() { jpeg_abort_decompress(&info_); }

  const jpeg_decompress_struct& info() const { return info_; }

 private:
  // libjpeg hands back a pointer to the first member; both are standard-layout for that.
  struct Errors {
    jpeg_error_mgr manager;
    std::jmp_buf jump;
  };

  static void leave(j_common_ptr info);
  static void judge(j_common_ptr info, int level);
  static boolean refill(j_decompress_ptr info);
  static void skip(j_decompress_ptr info, long count);

  Errors errors_{};
  jpeg_source_mgr source_{};
  jpeg_decompress_struct info_{};
};

}  // namespace spdld::media
