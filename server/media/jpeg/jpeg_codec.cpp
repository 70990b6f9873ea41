// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_codec.h"

#include <jerror.h>

#include <array>
#include <string>

#include "base/memory/no_memory.h"

namespace spdld::media {
namespace {

// Warnings that leave every pixel as the encoder meant it. All others (a Huffman code that does not
// exist, data that ends before the segment does, restart markers out of step, a progression that
// refines what was never sent) mean that libjpeg went on with made-up pixels, which must not reach
// a training step unseen.
bool harmless(const jpeg_error_mgr& manager, const jpeg_decompress_struct& info) {
  switch (manager.msg_code) {
    // Bytes between segments or behind the last scan's data: many cameras and editors pad there,
    // and ImageNet has some. Before a restart marker they are what is left of a segment whose codes
    // did not come out even, so that its pixels are wrong; but not before the first scan, where an
    // Exif segment that is longer than it says may hold such a marker.
    case JWRN_EXTRANEOUS_DATA: {
      const int next = manager.msg_parm.i[1];
      return next < 0xD0 || next > 0xD7 || info.input_scan_number == 0;
    }
    case JWRN_ADOBE_XFORM:     // an unknown colour transform: YCbCr is meant
    case JWRN_JFIF_MAJOR:      // a version number
    case JWRN_NOT_SEQUENTIAL:  // scan parameters that a baseline decoder ignores
      return true;
    default: return false;
  }
}

Code code_of(int message) {
  switch (message) {
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE: return kNoMemory;  // the latter: over what $JPEGMEM says
    case JERR_IMAGE_TOO_BIG: return Code::kResourceExhausted;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED: return Code::kInvalidArgument;
    default: return Code::kDataLoss;
  }
}

}  // namespace

JpegCodec::JpegCodec() {
  info_.err = jpeg_std_error(&errors_.manager);
  errors_.manager.error_exit = leave;
  errors_.manager.emit_message = judge;
  source_.init_source = [](j_decompress_ptr) {};
  source_.fill_input_buffer = refill;
  source_.skip_input_data = skip;
  source_.resync_to_restart = jpeg_resync_to_restart;
  source_.term_source = [](j_decompress_ptr) {};
}

JpegCodec::~JpegCodec() { jpeg_destroy_decompress(&info_); }

bool JpegCodec::begin(std::span<const std::byte> bytes) {
  jpeg_destroy_decompress(&info_);
  source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  source_.bytes_in_buffer = bytes.size();
  if (!attempt([](jpeg_decompress_struct& info) { jpeg_create_decompress(&info); })) return false;
  info_.src = &source_;
  return true;
}

Status JpegCodec::failure() const {
  const jpeg_error_mgr& manager = errors_.manager;
  const Code code = code_of(manager.msg_code);
  std::array<char, JMSG_LENGTH_MAX> text{};
  // format_message only reads, but libjpeg knows no const.
  auto* info = reinterpret_cast<j_common_ptr>(const_cast<jpeg_decompress_struct*>(&info_));
  manager.format_message(info, text.data());
  switch (code) {
    case kNoMemory: return no_memory(std::string("libjpeg: ") + text.data());
    case Code::kInvalidArgument: return {code, std::string("unsupported JPEG: ") + text.data()};
    case Code::kResourceExhausted: return {code, std::string("JPEG too large: ") + text.data()};
    default: return {code, std::string("corrupt JPEG: libjpeg says: ") + text.data()};
  }
}

void JpegCodec::leave(j_common_ptr info) {
  std::longjmp(reinterpret_cast<Errors*>(info->err)->jump, 1);
}

void JpegCodec::judge(j_common_ptr info, int level) {
  // 0 and up are traces.
  const auto& decompressor = *reinterpret_cast<const jpeg_decompress_struct*>(info);
  if (level < 0 && !harmless(*info->err, decompressor)) leave(info);
}

boolean JpegCodec::refill(j_decompress_ptr info) {
  // All there is was in the buffer: the file ended too early.
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void JpegCodec::skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  jpeg_source_mgr& source = *info->src;
  if (static_cast<std::size_t>(count) > source.bytes_in_buffer) ERREXIT(info, JERR_INPUT_EOF);
  source.next_input_byte += count;
  source.bytes_in_buffer -= static_cast<std::size_t>(count);
}

}  // namespace spdld::media
