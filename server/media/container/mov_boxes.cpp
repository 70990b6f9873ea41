// SPDX-License-Identifier: Apache-2.0
#include "media/container/mov_boxes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::media {
namespace {

constexpr std::uint32_t tag(std::string_view name) {
  std::uint32_t value = 0;
  for (const char letter : name) value = value << 8 | static_cast<unsigned char>(letter);
  return value;
}

struct Box {
  std::uint32_t type = 0;
  std::uint64_t begin = 0;  // of its content
  std::uint64_t end = 0;
};

class BoxWalk {
 public:
  BoxWalk(ByteReader& reader, std::uint64_t max_packets)
      : reader_(reader), max_packets_(max_packets) {}

  Status run() { return boxes(0, reader_.size(), 0); }
  MovBoxes take() { return std::move(found_); }

 private:
  // Whether FFmpeg looks for boxes in one of this type.
  static bool holds_boxes(std::uint32_t type) {
    constexpr std::array kHolders = {
        tag("moov"), tag("trak"), tag("mdia"), tag("minf"), tag("dinf"), tag("stbl"), tag("edts"),
        tag("moof"), tag("traf"), tag("udta"), tag("mvex"), tag("sinf"), tag("schi"), tag("wave")};
    return std::find(kHolders.begin(), kHolders.end(), type) != kHolders.end();
  }

  // Reads `count` big-endian numbers of 4 bytes; fewer where the box ends.
  Result<std::vector<std::uint32_t>> numbers(std::uint64_t offset, std::uint64_t end,
                                             std::size_t count) {
    std::vector<std::byte> bytes(
        std::min<std::uint64_t>(count * 4, offset < end ? end - offset : 0));
    SPDLD_ASSIGN(const std::size_t got, reader_.read(offset, bytes));
    std::vector<std::uint32_t> values;
    for (std::size_t i = 0; i + 4 <= got; i += 4) {
      std::uint32_t value = 0;
      for (std::size_t k = 0; k < 4; ++k)
        value = value << 8 | std::to_integer<std::uint32_t>(bytes[i + k]);
      values.push_back(value);
    }
    return values;
  }

  Status boxes(std::uint64_t begin, std::uint64_t end, int depth) {
    constexpr int kMostNested = 12;
    if (depth > kMostNested) return {};
    while (begin + 8 <= end) {
      if (++boxes_ > kMostBoxes) {
        return {Code::kResourceExhausted, "the mp4 file has more than " +
                                              std::to_string(kMostBoxes) +
                                              " boxes; remux it: ffmpeg -i FILE -c copy NEW.mp4"};
      }
      SPDLD_ASSIGN(const std::vector<std::uint32_t> head, numbers(begin, end, 4));
      if (head.size() < 2) return {};
      std::uint64_t size = head[0];
      std::uint64_t header = 8;
      if (size == 1) {
        if (head.size() < 4) return {};
        size = std::uint64_t{head[2]} << 32 | head[3];
        header = 16;
      } else if (size == 0) {
        size = end - begin;
      }
      if (size < header) return {};
      const Box box{head[1], begin + header, size > end - begin ? end : begin + size};
      SPDLD_TRY(visit(box, depth));
      begin = box.end;
    }
    return {};
  }

  Status visit(const Box& box, int depth) {
    if (depth == 0 && box.type == tag("mdat")) {
      found_.media.push_back({box.begin, box.end});
      return {};
    }
    if (box.type == tag("cmov")) {
      return {Code::kInvalidArgument,
              "the mov file's header is compressed, which is not read; remux it: ffmpeg -i FILE "
              "-c copy NEW.mp4"};
    }
    if (box.type == tag("trak")) samples_ = edits_ = 0;
    if (holds_boxes(box.type)) return boxes(box.begin, box.end, depth + 1);
    if (box.type == tag("dref")) return references(box);
    if (box.type == tag("stsz") || box.type == tag("stz2")) return count(box, 2, samples_);
    if (box.type == tag("elst")) return count(box, 1, edits_);
    if (box.type == tag("trun")) return count(box, 1, samples_);
    return {};
  }

  // The number at `index` behind version and flags says how many entries a table has. Edits repeat
  // the samples of their track.
  Status count(const Box& box, std::size_t index, std::uint64_t& entries) {
    SPDLD_ASSIGN(const std::vector<std::uint32_t> head, numbers(box.begin, box.end, 3));
    if (head.size() <= index) return {};
    entries = head[index];
    if (&entries == &samples_) total_ += samples_;
    // FFmpeg's own table of samples is passed over once for each edit.
    constexpr std::uint64_t kEditsForFree = 4;
    const std::uint64_t claimed =
        std::max(total_, samples_ * (std::max(edits_, kEditsForFree) / kEditsForFree));
    if (claimed <= max_packets_) return {};
    return {Code::kResourceExhausted, "the mp4 file's header claims " + std::to_string(claimed) +
                                          " samples, over the limit of " +
                                          std::to_string(max_packets_) + " packets"};
  }

  Status references(const Box& box) {
    constexpr std::uint32_t kSelfContained = 1;
    std::uint64_t at = box.begin + 8;
    while (at + 12 <= box.end) {
      SPDLD_ASSIGN(const std::vector<std::uint32_t> head, numbers(at, box.end, 3));
      if (head.size() < 3 || head[0] < 12) return {};
      if ((head[2] & kSelfContained) == 0) {
        return {Code::kInvalidArgument,
                "the file says that its media stand in another file, which is never opened; make "
                "it self-contained: ffmpeg -i FILE -c copy NEW.mp4"};
      }
      at += head[0];
    }
    return {};
  }

  static constexpr std::uint64_t kMostBoxes = 2'000'000;

  ByteReader& reader_;
  const std::uint64_t max_packets_;
  MovBoxes found_;
  std::uint64_t samples_ = 0;  // of the track that is walked over
  std::uint64_t edits_ = 0;    // likewise
  std::uint64_t total_ = 0;
  std::uint64_t boxes_ = 0;
};

}  // namespace

Result<MovBoxes> walk_mov(ByteReader& reader, std::uint64_t max_packets) {
  BoxWalk walk(reader, max_packets);
  SPDLD_TRY(walk.run());
  return walk.take();
}

}  // namespace spdld::media
