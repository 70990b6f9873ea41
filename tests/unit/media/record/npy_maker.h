// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spdld::media {

inline std::string little(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

template <typename T>
std::string values(const std::vector<T>& all) {
  std::string bytes(all.size() * sizeof(T), '\0');
  if (!all.empty()) std::memcpy(bytes.data(), all.data(), bytes.size());
  return bytes;
}

// An .npy file whose header is this text.
inline std::string npy_of(std::string header, const std::string& data, int version = 1) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' +
         little(header.size(), length_bytes) + header + data;
}

inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                       bool fortran = false, int version = 1) {
  return npy_of("{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                    ", 'shape': " + shape + ", }",
                data, version);
}

// A zip archive, such as an .npz.
class ZipMaker {
 public:
  enum class Packing { kStored, kDeflated };

  // With `zip64` all numbers of the directory stand in its extra fields, as those of 4 GiB do.
  explicit ZipMaker(bool zip64 = false) : zip64_(zip64) {}

  ZipMaker& add(const std::string& name, const std::string& content,
                Packing packing = Packing::kStored) {
    const std::string packed = packing == Packing::kStored ? content : deflated(content);
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const std::uint64_t method = packing == Packing::kStored ? 0 : 8;
    const std::uint64_t offset = bytes_.size();
    const std::string same = little(method, 2) + little(0, 4) + little(crc, 4);
    bytes_ += "PK\3\4" + little(20, 2) + little(0, 2) + same + little(packed.size(), 4) +
              little(content.size(), 4) + little(name.size(), 2) + little(4, 2) + name +
              little(0x1234, 2) + little(0, 2) + packed;
    std::string extra = little(0x1234, 2) + little(3, 2) + "abc";
    const std::uint64_t kSaturated = 0xFFFFFFFF;
    if (zip64_)
      extra += little(1, 2) + little(24, 2) + little(content.size(), 8) + little(packed.size(), 8) +
               little(offset, 8);
    directory_ += "PK\1\2" + little(45, 2) + little(45, 2) + little(0, 2) + same +
                  little(zip64_ ? kSaturated : packed.size(), 4) +
                  little(zip64_ ? kSaturated : content.size(), 4) + little(name.size(), 2) +
                  little(extra.size(), 2) + little(2, 2) + little(0, 2) + little(0, 2) +
                  little(0, 4) + little(zip64_ ? kSaturated : offset, 4) + name + extra + "xy";
    ++entries_;
    return *this;
  }

  std::string archive(const std::string& comment = "") const {
    const std::uint64_t at = bytes_.size();
    std::string all = bytes_ + directory_;
    if (zip64_) {
      const std::uint64_t end = all.size();
      all += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 4) +
             little(0, 4) + little(entries_, 8) + little(entries_, 8) +
             little(directory_.size(), 8) + little(at, 8);
      all += "PK\6\7" + little(0, 4) + little(end, 8) + little(1, 4);
    }
    return all + "PK\5\6" + little(0, 4) + little(zip64_ ? 0xFFFF : entries_, 2) +
           little(zip64_ ? 0xFFFF : entries_, 2) +
           little(zip64_ ? 0xFFFFFFFF : directory_.size(), 4) +
           little(zip64_ ? 0xFFFFFFFF : at, 4) + little(comment.size(), 2) + comment;
  }

 private:
  static std::string deflated(const std::string& content) {
    z_stream stream{};
    deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string packed(deflateBound(&stream, content.size()) + 16, '\0');
    std::string input = content;
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = static_cast<uInt>(input.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    return packed;
  }

  const bool zip64_;
  std::string bytes_;
  std::string directory_;
  std::uint64_t entries_ = 0;
};

}  // namespace spdld::media
