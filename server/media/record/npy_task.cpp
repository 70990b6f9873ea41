// SPDX-License-Identifier: Apache-2.0
#include "media/record/npy_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/memory/byte_buffer.h"
#include "base/text/counted.h"
#include "media/bytes/zip_member.h"
#include "media/record/npy_header.h"

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

// Values of `Size` bytes that lie in Fortran's order, in C's.
template <std::size_t Size>
void to_c_order(const std::byte* in, const std::vector<std::int64_t>& shape, std::byte* out) {
  const std::size_t rank = shape.size();
  std::array<std::int64_t, wire::kMaxRank> strides{};
  std::array<std::int64_t, wire::kMaxRank> at{};
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  const std::int64_t last = shape[rank - 1];
  for (std::int64_t done = 0; done < stride; done += last) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i + 1 < rank; ++i) from += at[i] * strides[i];
    for (std::int64_t i = 0; i < last; ++i, from += strides[rank - 1], out += Size)
      std::memcpy(out, in + static_cast<std::size_t>(from) * Size, Size);
    for (std::size_t i = rank - 1; i > 0 && ++at[i - 1] == shape[i - 1]; --i) at[i - 1] = 0;
  }
}

void to_c_order(const NpyHeader& header, const std::byte* in, std::byte* out) {
  switch (wire::dtype_bytes(header.dtype)) {
    case 1: return to_c_order<1>(in, header.shape, out);
    case 2: return to_c_order<2>(in, header.shape, out);
    case 4: return to_c_order<4>(in, header.shape, out);
    default: return to_c_order<8>(in, header.shape, out);
  }
}

void swap_bytes(std::byte* values, std::uint64_t bytes, std::uint64_t size) {
  for (std::byte* at = values; at != values + bytes; at += size) std::reverse(at, at + size);
}

class NpyWorker final : public FieldWorker {
 public:
  explicit NpyWorker(const NpyTask& task) : task_(task) {}

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override {
    const Bytes part = sample.part(task_.request);
    return is_npy(part) ? run_npy(part, out.front(), room_bytes)
                        : run_npz(part, out.front(), room_bytes);
  }

  std::uint64_t kept_bytes() const override {
    return head_.capacity() + data_.capacity() + sizeof(ZipReader);
  }

 private:
  // What the bytes of the field are or lack.
  std::string its() const { return "its field '" + task_.name + "' "; }
  tl::unexpected<Status> bad(const std::string& what) const {
    return error(Code::kDataLoss, its() + what);
  }
  template <typename T>
  Result<T> named(Result<T> read) const {
    if (read) return read;
    return bad(read.error().message());
  }

  Result<std::uint64_t> run_npy(Bytes part, RowOutput& out, std::uint64_t room_bytes) const {
    if (!task_.array.empty())
      return bad(
          "is an .npy, which is one array: leave 'array' out of "
          "'decode_npy'");
    SPDLD_ASSIGN(const NpyHeader header, named(read_npy_header(part)));
    SPDLD_TRY(check(header, part.size() - header.data_offset));
    SPDLD_TRY(out.check(header.shape));
    const std::uint64_t taken = out.resize_bytes(header.shape);
    if (taken > room_bytes) return taken;
    SPDLD_ASSIGN(std::byte* const to, out.resize(header.shape));
    if (header.data_bytes == 0) return 0;
    put(header, part.data() + header.data_offset, to);
    return 0;
  }

  Result<std::uint64_t> run_npz(Bytes part, RowOutput& out, std::uint64_t room_bytes) {
    if (!is_zip(part)) return bad("is neither an .npy nor an .npz");
    if (task_.array.empty())
      return bad(
          "is an .npz, which may hold several arrays: write "
          "'decode_npy: {array: NAME}'");
    SPDLD_ASSIGN(const ZipMember member, named(find_array(part, task_.array)));
    zip_.begin(member);
    const std::span<std::byte> head(head_.resize(kMaxNpyHeader), kMaxNpyHeader);
    SPDLD_ASSIGN(const std::size_t read, named(zip_.read(head)));
    SPDLD_ASSIGN(const NpyHeader header, named(read_npy_header(head.first(read))));
    SPDLD_TRY(check(header, member.bytes - header.data_offset));
    if (header.data_bytes != member.bytes - header.data_offset)
      return bad("is no sound .npz: something follows the array");
    // What has to be put into another order is unpacked beside the row.
    const bool turned = is_turned(header);
    SPDLD_TRY(out.check(header.shape));
    const std::uint64_t taken =
        out.resize_bytes(header.shape) + (turned ? ByteBuffer::grown(header.data_bytes) : 0);
    if (taken > room_bytes) return taken;
    SPDLD_ASSIGN(std::byte* const to, out.resize(header.shape));
    if (header.data_bytes == 0) return 0;
    std::byte* const unpacked = turned ? data_.resize(header.data_bytes) : to;
    const std::size_t begun = read - header.data_offset;
    if (begun > 0) std::memcpy(unpacked, head.data() + header.data_offset, begun);
    if (begun < header.data_bytes) {
      const auto rest = zip_.read({unpacked + begun, header.data_bytes - begun});
      if (!rest) return bad(rest.error().message());
    }
    put(header, unpacked, to);
    return 0;
  }

  static bool is_turned(const NpyHeader& header) {
    return header.fortran_order && header.shape.size() > 1;
  }

  Status check(const NpyHeader& header, std::uint64_t data_bytes) const {
    if (header.dtype != task_.dtype)
      return {Code::kDataLoss,
              its() + "has values of dtype " + std::string(dtype_name(header.dtype)) +
                  ", and decode_npy.dtype is " + std::string(dtype_name(task_.dtype))};
    const bool fits = std::equal(header.shape.begin(), header.shape.end(), task_.shape.begin(),
                                 task_.shape.end(), [](std::int64_t extent, std::int64_t declared) {
                                   return declared < 0 || extent == declared;
                                 });
    if (!fits)
      return {Code::kDataLoss, its() + "has the shape " + shape_text(header.shape) +
                                   ", and decode_npy.shape is " + shape_text(task_.shape)};
    if (header.data_bytes > data_bytes)
      return {Code::kDataLoss, its() + "is cut off: its header promises " +
                                   counted(header.data_bytes, "byte") + " of values, and " +
                                   std::to_string(data_bytes) + " follow"};
    return {};
  }

  // `in` may be `out` where nothing is turned.
  static void put(const NpyHeader& header, const std::byte* in, std::byte* out) {
    if (is_turned(header)) {
      to_c_order(header, in, out);
    } else if (in != out) {
      std::memcpy(out, in, header.data_bytes);
    }
    const std::uint64_t size = wire::dtype_bytes(header.dtype);
    if (header.big_endian && size > 1) swap_bytes(out, header.data_bytes, size);
    if (header.dtype != DType::kBool) return;
    for (std::byte* at = out; at != out + header.data_bytes; ++at)
      *at = *at == std::byte{0} ? std::byte{0} : std::byte{1};
  }

  const NpyTask& task_;
  ZipReader zip_;
  ByteBuffer head_;  // what is unpacked to see the header
  ByteBuffer data_;
};

}  // namespace

std::unique_ptr<FieldWorker> NpyTask::make_worker() const {
  return std::make_unique<NpyWorker>(*this);
}

}  // namespace spdld::media
