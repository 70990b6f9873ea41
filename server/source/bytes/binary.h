// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// How the files of state_dir are written and read: little-endian numbers, and strings as a u32 of
// bytes and these.
namespace spdld::source {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

class BinaryWriter {
 public:
  template <typename T>
  void number(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
  }
  void string(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    text_.append(value);
  }
  void raw(std::string_view value) { text_.append(value); }
  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Never reads beyond the text: a read that would makes it !ok() and gives zeros from then on.
class BinaryReader {
 public:
  explicit BinaryReader(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return text_.size(); }
  std::string_view raw(std::uint64_t size) {
    ok_ = ok_ && size <= text_.size();
    if (!ok_) return {};
    const std::string_view value = text_.substr(0, size);
    text_.remove_prefix(size);
    return value;
  }
  template <typename T>
  T number() {
    T value{};
    const std::string_view bytes = raw(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string string() { return std::string(raw(number<std::uint32_t>())); }
  // How many elements follow, each of at least `element_bytes`: what cannot be there is not
  // reserved.
  std::size_t count(std::size_t element_bytes) {
    const auto value = number<std::uint64_t>();
    ok_ = ok_ && value <= text_.size() / element_bytes;
    return ok_ ? value : 0;
  }

 private:
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace spdld::source
