// SPDX-License-Identifier: Apache-2.0
// Damages good tar shards in every way that files get damaged, with headers whose checksums are
// made right again, and sees that an index either is made, all of it inside the shard, or is
// refused for a reason. Deterministic: mutant n is the same everywhere. SPDLD_MUTATIONS says how
// many (5,000).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "source/tar/shard_scan.h"
#include "source/tar/tar_index.h"
#include "source/tar/tar_reader.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/bytes/memory_file.h"

namespace spdld::source {
namespace {

using test::TarBlock;
using test::TarWriter;

std::uint64_t mutations() {
  const char* wanted = std::getenv("SPDLD_MUTATIONS");
  return wanted == nullptr ? 5000 : std::strtoull(wanted, nullptr, 10);
}

std::string small_shard() {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("comment", "made by a test"), 'g').directory("d/");
  for (const std::string key : {"d/a", "d/b"}) {
    tar.file(key + ".cls", "7").file(key + ".jpg", std::string(700, 'j'));
    tar.file(key + ".json", R"({"width": 640, "size": [1, 2.5], "name": "x"})");
  }
  tar.gnu_long('L', "d/" + std::string(120, 'n') + ".cls").gnu_long('K', "to").file("cut", "1");
  tar.pax(TarWriter::pax_record("path", "d/" + std::string(120, 'n') + ".jpg") +
          TarWriter::pax_record("size", "3"));
  tar.member({.name = "cut"}, "jpg");
  tar.pax(TarWriter::pax_record("path", "d/" + std::string(120, 'n') + ".json"));
  tar.file("cut", R"({"width": 1, "size": [], "name": "\u00e4"})");
  std::string field("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12);
  tar.member({.name = "e.jpg", .size_field = field, .form = TarBlock::Form::kGnu}, "12345");
  tar.file("e.cls", "1").file("e.json", R"({"width": 2, "size": [0], "name": ""})");
  return tar.archive();
}

std::size_t place(const std::string& bytes, KeyedRng& rng) { return rng.below(bytes.size()); }

// Of the block at `at`, as if it were a header.
void mend(std::string& bytes, std::size_t at) {
  if (at + 512 > bytes.size()) return;
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at + 148), 8, ' ');
  unsigned sum = 0;
  for (std::size_t i = at; i < at + 512; ++i) sum += static_cast<unsigned char>(bytes[i]);
  char octal[8];
  std::snprintf(octal, sizeof octal, "%06o", sum);
  bytes.replace(at + 148, 7, octal, 7);
}

void flip_bits(std::string& bytes, KeyedRng& rng) {
  for (std::uint64_t i = 0, count = 1 + rng.below(8); i < count; ++i)
    bytes[place(bytes, rng)] ^= static_cast<char>(1U << rng.below(8));
}

// A byte of a header becomes a telling one, and the checksum is made right again.
void change_header(std::string& bytes, KeyedRng& rng) {
  constexpr std::string_view kTelling("\0 /.0179=xgLKS\x7f\x80\xff", 17);
  constexpr std::array<std::size_t, 8> kFields{0, 1, 124, 130, 135, 156, 257, 345};
  for (std::uint64_t i = 0, count = 1 + rng.below(3); i < count; ++i) {
    const std::size_t at = place(bytes, rng) / 512 * 512;
    const std::size_t field =
        rng.below(2) == 0 ? kFields[rng.below(kFields.size())] : rng.below(512);
    if (at + field >= bytes.size()) continue;
    bytes[at + field] = kTelling[rng.below(kTelling.size())];
    mend(bytes, at);
  }
}

// Texts are a small part of a shard, and have most of what can be wrong.
void change_text(std::string& bytes, KeyedRng& rng) {
  constexpr std::string_view kTelling("\0\n =0199{}[]\",-e.\xff", 18);
  const std::size_t at = place(bytes, rng) / 512 * 512;
  for (std::uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i)
    bytes[std::min(at + rng.below(48), bytes.size() - 1)] = kTelling[rng.below(kTelling.size())];
}

void cut(std::string& bytes, KeyedRng& rng) { bytes.resize(place(bytes, rng)); }

void cut_out_blocks(std::string& bytes, KeyedRng& rng) {
  bytes.erase(place(bytes, rng) / 512 * 512, 512 * (1 + rng.below(4)));
}

void cut_out(std::string& bytes, KeyedRng& rng) {
  bytes.erase(place(bytes, rng), 1 + rng.below(600));
}

void repeat_blocks(std::string& bytes, KeyedRng& rng) {
  const std::string part = bytes.substr(place(bytes, rng) / 512 * 512, 512 * (1 + rng.below(6)));
  bytes.insert(place(bytes, rng) / 512 * 512, part);
}

void zero_part(std::string& bytes, KeyedRng& rng) {
  const std::size_t from = place(bytes, rng);
  const std::size_t count = std::min<std::size_t>(rng.below(1024) + 1, bytes.size() - from);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), count, '\0');
}

std::string mutant_of(const std::string& good, KeyedRng& rng) {
  using Mutation = void (*)(std::string&, KeyedRng&);
  constexpr std::array<Mutation, 10> kMutations{
      flip_bits, change_header,  change_header, change_header, change_text,
      cut,       cut_out_blocks, cut_out,       repeat_blocks, zero_part};
  std::string bytes = good;
  for (std::uint64_t i = 0, count = 1 + rng.below(2); i < count && !bytes.empty(); ++i)
    kMutations[rng.below(kMutations.size())](bytes, rng);
  return bytes;
}

// A message without what differs from mutant to mutant: names, numbers and texts.
std::string reason_of(const std::string& message) {
  std::string reason;
  bool inside = false;
  for (const char c : message.substr(std::min(message.size(), message.find(": ")))) {
    if (c == '\'') inside = !inside;
    if (!inside && (c < '0' || c > '9') && c != '\'') reason += c;
  }
  return reason.substr(0, 100);
}

IndexQuery query() {
  return IndexQuery::make({.parts = {{.field = "image", .suffixes = {"jpg"}}},
                           .labels = {{.field = "label", .suffixes = {"cls"}}},
                           .index = {{.field = "width", .suffix = "json", .pointer = "/width"},
                                     {.field = "size", .suffix = "json", .pointer = "/size"},
                                     {.field = "name", .suffix = "json", .pointer = "/name"}},
                           .missing = WebdatasetSpec::Missing::kSkip},
                          {})
      .value();
}

// All that an index says must lie in the file.
void expect_sound(const TarIndex& index, MemoryFile& file) {
  std::vector<TarPart> parts(index.parts());
  for (std::uint64_t item = 0; item < index.size(); ++item) {
    const TarIndex::Place at = index.find(item, parts);
    const auto key = key_at(file, at.header_offset);
    EXPECT_TRUE(key) << key.error().message();
    for (const TarPart& part : parts) EXPECT_LE(part.offset + part.size, file.size());
  }
  EXPECT_EQ(index.values().rows(), index.size());
}

Status outcome_of(MemoryFile& file, const IndexQuery& query) {
  ScanMeter meter;
  Result<ShardIndex> shard = scan_shard(file, query, {.meter = &meter, .max_samples = 1'000'000});
  if (!shard) return shard.error();
  shard->stamp.size_bytes = file.size();
  std::vector<ShardIndex> shards;
  shards.push_back(std::move(*shard));
  const Result<TarIndex> index = TarIndex::make(query, std::move(shards));
  if (!index) return index.error();
  expect_sound(*index, file);
  return {};
}

std::uint64_t peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss);
}

TEST(TarMutation, NeverBreaksAnIndex) {
  const std::string good = small_shard();
  const IndexQuery asked = query();
  {
    MemoryFile file(good);
    const Status status = outcome_of(file, asked);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::map<std::string, int> outcomes;
  const std::uint64_t before_kib = peak_kib();
  for (std::uint64_t i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(0x746172, i));
    MemoryFile file(mutant_of(good, rng));
    const Status status = outcome_of(file, asked);
    ++outcomes[std::string(code_name(status.code())) + " " + reason_of(status.message())];
    EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss ||
                status.code() == Code::kInvalidArgument ||
                status.code() == Code::kResourceExhausted)
        << "mutant " << i << ": " << status.message();
    // A header is read once, and a name of each sample once more or twice.
    EXPECT_LT(file.reads, 200U) << "mutant " << i;
    EXPECT_LE(file.largest_read, FileWindow::kMaxView) << "mutant " << i;
  }
  for (const auto& [outcome, count] : outcomes)
    std::cout << "  " << count << " " << outcome << '\n';
  // Where few reasons came up, little was tested.
  EXPECT_GE(outcomes.size(), 15U);
  // A sanitizer holds back what is freed.
  std::uint64_t most_kib = 32U << 10;
#ifdef SPDLD_SANITIZED
  most_kib = 1U << 20;
#endif
  EXPECT_LT(peak_kib() - before_kib, most_kib);
}

TEST(TarMutation, NeverBreaksTheReaderOfContents) {
  const std::string good = small_shard();
  for (std::uint64_t i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(0x726561, i));
    MemoryFile file(mutant_of(good, rng));
    TarReader reader(file);
    std::uint64_t members = 0;
    for (TarMember member;; ++members) {
      const Result<bool> found = reader.next(member);
      if (!found || !*found) break;
      EXPECT_LE(member.data_offset + member.size, file.size());
      const auto content = reader.content(member, 1 << 20);
      EXPECT_TRUE(content) << content.error().message();
    }
    EXPECT_LE(members * kTarBlock, file.size());
    EXPECT_LE(reader.warnings().size(), 2U);
  }
}

}  // namespace
}  // namespace spdld::source
