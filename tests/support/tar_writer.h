// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace spdld::test {

// One header block of a tar archive, field by field.
struct TarBlock {
  std::string name = {};
  char type = '0';
  std::uint64_t size = 0;
  std::string link = {};
  std::string prefix = {};
  std::string size_field = {};  // in place of `size` in octal
  enum class Form { kV7, kUstar, kGnu };
  Form form = Form::kUstar;
  bool signed_checksum = false;

  std::string bytes() const {
    std::string block(512, '\0');
    const auto put = [&block](std::size_t at, std::string_view text) {
      block.replace(at, text.size(), text);
    };
    put(0, name.substr(0, 100));
    put(100, "0000644");
    put(108, "0001750");
    put(116, "0001750");
    char octal[16];
    std::snprintf(octal, sizeof octal, "%011llo", static_cast<unsigned long long>(size));
    put(124, size_field.empty() ? std::string_view(octal) : std::string_view(size_field));
    put(136, "14000000000");
    put(148, "        ");
    block[156] = type;
    put(157, link.substr(0, 100));
    if (form == Form::kUstar) put(257, std::string_view("ustar\00000", 8));
    if (form == Form::kGnu) put(257, std::string_view("ustar  \0", 8));
    put(345, prefix.substr(0, 155));
    std::int64_t sum = 0;
    for (const char c : block)
      sum += signed_checksum ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
    std::snprintf(octal, sizeof octal, "%06llo", static_cast<unsigned long long>(sum));
    put(148, std::string_view(octal, 7));
    return block;
  }
};

// A tar archive in memory, member by member.
class TarWriter {
 public:
  TarWriter& file(const std::string& name, const std::string& content) {
    return member({.name = name, .size = content.size()}, content);
  }
  TarWriter& directory(const std::string& name) { return member({.name = name, .type = '5'}, ""); }
  TarWriter& member(const TarBlock& header, const std::string& content) {
    bytes_ += header.bytes();
    bytes_ += content;
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }
  // As GNU tar writes what does not fit: 'L' for a name, 'K' for a link.
  TarWriter& gnu_long(char type, const std::string& name) {
    return member({.name = "././@LongLink",
                   .type = type,
                   .size = name.size() + 1,
                   .form = TarBlock::Form::kGnu},
                  name + std::string(1, '\0'));
  }
  // 'x' for the next member, 'g' for all that follow.
  TarWriter& pax(const std::string& records, char type = 'x') {
    return member({.name = "PaxHeaders/x", .type = type, .size = records.size()}, records);
  }
  static std::string pax_record(const std::string& keyword, const std::string& value) {
    const std::size_t rest = keyword.size() + value.size() + 3;
    std::size_t length = rest + std::to_string(rest).size();
    if (rest + std::to_string(length).size() != length) ++length;
    return std::to_string(length) + " " + keyword + "=" + value + "\n";
  }
  TarWriter& zero_blocks(int count) {
    bytes_.resize(bytes_.size() + static_cast<std::size_t>(count) * 512);
    return *this;
  }
  TarWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  std::uint64_t offset() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  // With the end marker.
  std::string archive() const { return bytes_ + std::string(1024, '\0'); }

 private:
  std::string bytes_;
};

}  // namespace spdld::test
