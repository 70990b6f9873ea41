// SPDX-License-Identifier: Apache-2.0
#include "media/record/npy_header.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/text/printable.h"

namespace spdld::media {
namespace {

constexpr std::size_t kShown = 100;
// An array of more is none that anybody could bring; it also keeps products from overflowing.
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 44;

tl::unexpected<Status> broken_npy(const std::string& what) {
  return error(Code::kDataLoss, "is no sound .npy: " + what);
}

std::string shown(std::string_view text) { return "'" + printable(text.substr(0, kShown)) + "'"; }

// Reads the header's text, a literal of Python: {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool ended() {
    skip_space();
    return at_ == text_.size();
  }
  // A text in quotes, without escapes.
  std::optional<std::string_view> quoted() {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == text_.npos) return std::nullopt;
    const std::string_view found = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return found;
  }
  std::optional<bool> truth() {
    skip_space();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    return std::nullopt;
  }
  std::optional<std::int64_t> count() {
    skip_space();
    std::int64_t number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, wrong] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (wrong != std::errc() || number < 0) return std::nullopt;
    at_ += static_cast<std::size_t>(end - begin);
    take('L');  // as Python 2 wrote them
    return number;
  }
  bool begins_with(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// "<f4": byte order, kind, bytes of a value.
Status set_dtype(std::string_view descr, NpyHeader& header) {
  const auto refuse = [&](const std::string& why) -> Status {
    return {Code::kDataLoss, "has values of dtype " + shown(descr) + ", " + why};
  };
  std::string_view rest = descr;
  char order = '=';
  if (!rest.empty() && std::string_view("<>|=").find(rest[0]) != std::string_view::npos) {
    order = rest[0];
    rest.remove_prefix(1);
  }
  if (rest.starts_with('O'))
    return refuse("object, which are pickled: save them as an array of numbers");
  std::string name;
  if (rest == "b1") name = "bool";
  if (rest == "i1" || rest == "i2" || rest == "i4" || rest == "i8") name = "int";
  if (rest == "u1" || rest == "u2" || rest == "u4" || rest == "u8") name = "uint";
  if (rest == "f2" || rest == "f4" || rest == "f8") name = "float";
  if (name == "int" || name == "uint" || name == "float")
    name += std::to_string(8 * (rest[1] - '0'));
  const Result<DType> dtype = parse_dtype(name);
  if (name.empty() || !dtype) return refuse("which no tensor has: save them as another one");
  header.dtype = *dtype;
  header.big_endian = order == '>';
  return {};
}

Result<std::vector<std::int64_t>> read_shape(Literal& literal) {
  std::vector<std::int64_t> shape;
  if (!literal.take('(')) return broken_npy("its shape is no tuple");
  while (!literal.take(')')) {
    const auto extent = literal.count();
    if (!extent) return broken_npy("its shape holds what is no extent");
    shape.push_back(*extent);
    if (shape.size() > wire::kMaxRank)
      return error(Code::kDataLoss,
                   "has more than " + std::to_string(wire::kMaxRank) + " dimensions");
    if (literal.take(',')) continue;
    if (!literal.take(')')) return broken_npy("its shape does not end");
    break;
  }
  return shape;
}

Status read_literal(std::string_view text, NpyHeader& header) {
  Literal literal(text);
  bool has_descr = false;
  bool has_order = false;
  bool has_shape = false;
  if (!literal.take('{')) return broken_npy("its header is no dictionary").value();
  while (!literal.take('}')) {
    const auto key = literal.quoted();
    if (!key || !literal.take(':')) return broken_npy("its header does not end").value();
    if (*key == "descr") {
      if (literal.begins_with('['))
        return {Code::kDataLoss,
                "holds records of several fields: save each field as an array of its own"};
      const auto descr = literal.quoted();
      if (!descr) return broken_npy("its 'descr' is no text").value();
      SPDLD_TRY(set_dtype(*descr, header));
      has_descr = true;
    } else if (*key == "fortran_order") {
      const auto order = literal.truth();
      if (!order) return broken_npy("its 'fortran_order' is neither True nor False").value();
      header.fortran_order = *order;
      has_order = true;
    } else if (*key == "shape") {
      SPDLD_ASSIGN(header.shape, read_shape(literal));
      has_shape = true;
    } else {
      return broken_npy("its header holds " + shown(*key)).value();
    }
    if (literal.take(',')) continue;
    if (!literal.take('}')) return broken_npy("its header does not end").value();
    break;
  }
  if (!literal.ended()) return broken_npy("something follows in its header").value();
  if (!has_descr || !has_order || !has_shape)
    return broken_npy("its header lacks 'descr', 'fortran_order' or 'shape'").value();
  return {};
}

}  // namespace

Result<NpyHeader> read_npy_header(std::span<const std::byte> bytes) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  constexpr std::size_t kVersion = 6;
  if (!is_npy(bytes)) return broken_npy("it does not begin as one");
  if (bytes.size() < kVersion + 2) return broken_npy("it ends in its header");
  const std::size_t major = at(kVersion);
  if (major < 1 || major > 3 || at(kVersion + 1) != 0)
    return broken_npy("its format is " + std::to_string(major) + "." +
                      std::to_string(at(kVersion + 1)) + ", and 1.0 to 3.0 are read");
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_at = kVersion + 2 + length_bytes;
  if (bytes.size() < text_at) return broken_npy("it ends in its header");
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i > 0; --i) length = length << 8 | at(kVersion + 1 + i);
  if (length > kMaxNpyHeader - text_at)
    return broken_npy("its header takes " + std::to_string(length) + " bytes, and one may take " +
                      std::to_string(kMaxNpyHeader - text_at));
  if (bytes.size() < text_at + length) return broken_npy("it ends in its header");
  NpyHeader header;
  header.data_offset = text_at + length;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + text_at, length);
  SPDLD_TRY(read_literal(text, header));
  std::uint64_t elements = 1;
  for (const std::int64_t extent : header.shape) {
    const auto count = static_cast<std::uint64_t>(extent);
    if (count > kMostElements || (count != 0 && elements > kMostElements / count))
      return error(Code::kDataLoss, "has the shape " + shape_text(header.shape) +
                                        ", which is more than any memory holds");
    elements *= count;
  }
  header.data_bytes = elements * wire::dtype_bytes(header.dtype);
  return header;
}

}  // namespace spdld::media
