// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "posix/unique_fd.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/bytes/memory_file.h"

namespace spdld::source {
namespace {

using test::TarBlock;
using test::TarWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Reading {
  std::vector<TarMember> members;
  Status status;
  std::vector<std::string> warnings;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const TarMember& member : members) names.push_back(member.name);
    return names;
  }
};

Reading read_all(FileBytes& file) {
  Reading reading;
  TarReader reader(file);
  for (TarMember member;;) {
    const Result<bool> found = reader.next(member);
    if (!found) reading.status = found.error();
    if (!found || !*found) break;
    reading.members.push_back(member);
  }
  reading.warnings = reader.warnings();
  return reading;
}

Reading read_all(const std::string& bytes) {
  MemoryFile file(bytes);
  return read_all(file);
}

void expect_damaged(const std::string& bytes, const std::string& why) {
  const Reading reading = read_all(bytes);
  EXPECT_EQ(reading.status.code(), Code::kDataLoss) << why;
  EXPECT_THAT(reading.status.message(),
              AllOf(HasSubstr("/data/train-000.tar: at byte "), HasSubstr(why)));
}

std::string content_of(FileBytes& file, const std::string& name) {
  TarReader reader(file);
  for (TarMember member; reader.next(member).value();) {
    if (member.name == name) return std::string(reader.content(member, 1 << 20).value());
  }
  ADD_FAILURE() << "no member " << name;
  return {};
}

TEST(TarReader, TellsWhereMembersLie) {
  TarWriter tar;
  tar.file("a.txt", "hello").file("b.bin", std::string(1000, 'b')).file("c", "");
  const Reading reading = read_all(tar.archive());
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  EXPECT_THAT(reading.names(), ElementsAre("a.txt", "b.bin", "c"));
  EXPECT_EQ(reading.members[0].header_offset, 0u);
  EXPECT_EQ(reading.members[0].data_offset, 512u);
  EXPECT_EQ(reading.members[0].size, 5u);
  EXPECT_EQ(reading.members[1].header_offset, 1024u);
  EXPECT_EQ(reading.members[1].size, 1000u);
  EXPECT_EQ(reading.members[2].header_offset, 2560u);
  EXPECT_EQ(reading.members[2].size, 0u);
  EXPECT_THAT(reading.warnings, IsEmpty());
}

TEST(TarReader, GivesTheContentOfSmallAndLargeMembers) {
  const std::string large(700'000, 'x');
  TarWriter tar;
  tar.file("a", "hello").file("large", large).file("b", "bye");
  MemoryFile file(tar.archive());
  EXPECT_EQ(content_of(file, "a"), "hello");
  EXPECT_EQ(content_of(file, "large"), large);
  EXPECT_EQ(content_of(file, "b"), "bye");
}

TEST(TarReader, RefusesContentBeyondTheBound) {
  TarWriter tar;
  tar.file("a", "hello");
  MemoryFile file(tar.archive());
  TarReader reader(file);
  TarMember member;
  ASSERT_TRUE(reader.next(member).value());
  const auto content = reader.content(member, 4);
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(content.error().message(),
              HasSubstr("/data/train-000.tar: at byte 512, member 'a': it has 5 bytes"));
}

TEST(TarReader, JoinsThePrefixOfUstarNames) {
  TarWriter tar;
  tar.member({.name = "name.jpg", .prefix = std::string(155, 'p')}, "");
  tar.member({.name = std::string(100, 'n')}, "");
  EXPECT_THAT(read_all(tar.archive()).names(),
              ElementsAre(std::string(155, 'p') + "/name.jpg", std::string(100, 'n')));
}

TEST(TarReader, TakesNoPrefixFromGnuAndV7Headers) {
  TarWriter tar;
  tar.member({.name = "gnu", .prefix = "12345670", .form = TarBlock::Form::kGnu}, "");
  tar.member({.name = "v7", .type = '\0', .prefix = "rest", .form = TarBlock::Form::kV7}, "");
  const Reading reading = read_all(tar.archive());
  EXPECT_THAT(reading.names(), ElementsAre("gnu", "v7"));
  EXPECT_EQ(reading.members[1].type, TarMember::Type::kFile);
}

TEST(TarReader, TakesSignedChecksums) {
  TarWriter tar;
  tar.member({.name = "\xfc\xfc\xfc.jpg", .size = 2, .signed_checksum = true}, "ab");
  const Reading reading = read_all(tar.archive());
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  EXPECT_THAT(reading.names(), ElementsAre("\xfc\xfc\xfc.jpg"));
}

TEST(TarReader, TellsTypes) {
  using Type = TarMember::Type;
  TarWriter tar;
  tar.directory("d/")
      .member({.name = "hard", .type = '1', .size = 9, .link = "a"}, "")
      .member({.name = "sym", .type = '2', .link = "../a"}, "")
      .member({.name = "char", .type = '3'}, "")
      .member({.name = "block", .type = '4'}, "")
      .member({.name = "fifo", .type = '6'}, "")
      .member({.name = "contiguous", .type = '7', .size = 1}, "x")
      .member({.name = "old/", .type = '\0', .form = TarBlock::Form::kV7}, "")
      .member({.name = "volume", .type = 'V'}, "")
      .member({.name = "vendor", .type = 'Z', .size = 3}, "abc")
      .file("last", "");
  const Reading reading = read_all(tar.archive());
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  std::vector<Type> types;
  for (const TarMember& member : reading.members) types.push_back(member.type);
  EXPECT_THAT(types, ElementsAre(Type::kDirectory, Type::kHardLink, Type::kSymlink, Type::kDevice,
                                 Type::kDevice, Type::kFifo, Type::kFile, Type::kDirectory,
                                 Type::kOther, Type::kOther, Type::kFile));
  EXPECT_EQ(reading.members[1].link, "a");
  EXPECT_EQ(reading.members[1].size, 0u);
  EXPECT_EQ(reading.members[2].link, "../a");
}

TEST(TarReader, TakesGnuLongNamesAndLinks) {
  const std::string name = "d/" + std::string(300, 'n') + ".jpg";
  const std::string link = std::string(400, 'l');
  TarWriter tar;
  tar.gnu_long('K', link).gnu_long('L', name);
  tar.member({.name = "cut", .type = '2', .form = TarBlock::Form::kGnu}, "");
  const std::uint64_t next = tar.offset();
  tar.file("short", "");
  const Reading reading = read_all(tar.archive());
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  EXPECT_THAT(reading.names(), ElementsAre(name, "short"));
  EXPECT_EQ(reading.members[0].link, link);
  // The headers that belong to a member begin with its long names'.
  EXPECT_EQ(reading.members[0].header_offset, 0u);
  EXPECT_EQ(reading.members[1].header_offset, next);
}

TEST(TarReader, TakesPaxPathSizeAndLink) {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("mtime", "1.5") + TarWriter::pax_record("path", "ä/long.jpg") +
          TarWriter::pax_record("size", "5") + TarWriter::pax_record("linkpath", "to"));
  tar.member({.name = "short", .size_field = "        "}, "hello");
  tar.file("next", "x");
  const Reading reading = read_all(tar.archive());
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  EXPECT_THAT(reading.names(), ElementsAre("ä/long.jpg", "next"));
  EXPECT_EQ(reading.members[0].size, 5u);
  EXPECT_EQ(reading.members[0].link, "to");
  EXPECT_EQ(reading.members[1].size, 1u);
}

TEST(TarReader, PrefersPaxPathsToGnuLongNames) {
  TarWriter tar;
  tar.gnu_long('L', "gnu").pax(TarWriter::pax_record("path", "pax")).file("short", "");
  tar.pax(TarWriter::pax_record("path", "")).file("short", "");
  EXPECT_THAT(read_all(tar.archive()).names(), ElementsAre("pax", "short"));
}

TEST(TarReader, TakesNamesAsBytesWhateverTheirCharset) {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("hdrcharset", "BINARY") + TarWriter::pax_record("charset", "x") +
          TarWriter::pax_record("path", "\xff\xfe.jpg"));
  tar.file("a", "");
  EXPECT_THAT(read_all(tar.archive()).names(), ElementsAre("\xff\xfe.jpg"));
}

TEST(TarReader, AppliesGlobalHeadersToAllThatFollow) {
  TarWriter tar;
  tar.file("a", "").pax(TarWriter::pax_record("size", "3"), 'g');
  tar.member({.name = "b", .size = 600}, "123").member({.name = "c"}, "123");
  tar.pax(TarWriter::pax_record("size", "1")).file("d", "x");
  MemoryFile file(tar.archive());
  TarReader reader(file);
  std::vector<std::uint64_t> sizes;
  for (TarMember member; reader.next(member).value();) sizes.push_back(member.size);
  EXPECT_THAT(sizes, ElementsAre(0, 3, 3, 1));
  EXPECT_TRUE(reader.has_global_names());
}

TEST(TarReader, TakesGlobalCommentsAlsoAsTheLastHeader) {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("comment", "commit 0123"), 'g').file("a", "");
  tar.pax(TarWriter::pax_record("comment", "the end"), 'g');
  MemoryFile file(tar.archive());
  TarReader reader(file);
  TarMember member;
  EXPECT_TRUE(reader.next(member).value());
  EXPECT_FALSE(reader.next(member).value());
  EXPECT_FALSE(reader.has_global_names());
}

TEST(TarReader, TakesMembersBeyondEightGigabytes) {
  constexpr std::uint64_t kSize = (std::uint64_t{9} << 30) + 1;
  std::string field(12, '\0');
  field[0] = '\x80';
  for (int i = 0; i < 8; ++i) field[11 - i] = static_cast<char>(kSize >> (8 * i));
  const std::uint64_t second = 512 + tar_padded(kSize);
  const std::string record = TarWriter::pax_record("size", std::to_string(kSize));
  TarWriter pax;
  pax.pax(record).member({.name = "b"}, "");
  const std::uint64_t third = second + pax.offset() + tar_padded(kSize);
  TarWriter tail;
  tail.file("c", "end");
  MemoryFile file(third + tail.archive().size());
  file.put(0, TarBlock{.name = "a", .size_field = field, .form = TarBlock::Form::kGnu}.bytes());
  file.put(second, pax.bytes());
  file.put(third, tail.archive());
  const Reading reading = read_all(file);
  ASSERT_TRUE(reading.status.ok()) << reading.status.message();
  EXPECT_THAT(reading.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(reading.members[0].size, kSize);
  EXPECT_EQ(reading.members[1].size, kSize);
  EXPECT_EQ(reading.members[2].header_offset, third);
  EXPECT_LT(file.bytes_read, 200'000u);
}

TEST(TarReader, ReadsManySmallMembersInFewReads) {
  TarWriter tar;
  for (int i = 0; i < 10'000; ++i) tar.file(std::to_string(i) + ".cls", "7");
  MemoryFile file(tar.archive());
  EXPECT_THAT(read_all(file).members, SizeIs(10'000));
  EXPECT_LT(file.reads, 60u);
  EXPECT_LT(file.bytes_read, file.size() + file.size() / 8);
}

TEST(TarReader, PassesOverLargeMembers) {
  TarWriter tar;
  for (int i = 0; i < 100; ++i)
    tar.file(std::to_string(i) + ".jpg", std::string(100'000, 'j'))
        .file(std::to_string(i) + ".cls", "7");
  MemoryFile file(tar.archive());
  EXPECT_THAT(read_all(file).members, SizeIs(200));
  EXPECT_LT(file.reads, 120u);
  EXPECT_LT(file.bytes_read, file.size() / 10);
}

TEST(TarReader, GivesTheNameOfAMemberByItsOffset) {
  TarWriter tar;
  tar.file("a", "1");
  const std::uint64_t at = tar.offset();
  tar.pax(TarWriter::pax_record("path", "long/name.jpg")).file("b", "2");
  MemoryFile file(tar.archive());
  EXPECT_EQ(member_name_at(file, at).value(), "long/name.jpg");
  EXPECT_EQ(member_name_at(file, 512).error().code(), Code::kDataLoss);
  EXPECT_EQ(member_name_at(file, tar.offset()).error().code(), Code::kDataLoss);
  EXPECT_EQ(member_name_at(file, 1 << 30).error().code(), Code::kDataLoss);
}

TEST(TarReader, EndsAtTwoZeroBlocksWhateverFollows) {
  TarWriter tar;
  tar.file("a", "1").zero_blocks(2);
  EXPECT_THAT(read_all(tar.bytes() + std::string(8192, '\0')).warnings, IsEmpty());
  tar.file("b", "2");
  const Reading reading = read_all(tar.archive());
  EXPECT_TRUE(reading.status.ok());
  EXPECT_THAT(reading.names(), ElementsAre("a"));
  ASSERT_THAT(reading.warnings, SizeIs(1));
  EXPECT_THAT(
      reading.warnings[0],
      HasSubstr("the archive ends at byte 1024, and what follows from byte 2048 on is not read"));
}

// So do GNU tar, with a warning, and Python's tarfile, without.
TEST(TarReader, EndsAtOneZeroBlockWithAWarning) {
  TarWriter tar;
  tar.file("a", "1").zero_blocks(1).file("b", "2");
  const Reading reading = read_all(tar.archive());
  EXPECT_TRUE(reading.status.ok());
  EXPECT_THAT(reading.names(), ElementsAre("a"));
  ASSERT_THAT(reading.warnings, SizeIs(1));
  EXPECT_THAT(reading.warnings[0],
              AllOf(HasSubstr("with one zero block in place of two"), HasSubstr("--ignore-zeros")));
}

TEST(TarReader, EndsAtTheEndOfTheFileWithAWarning) {
  TarWriter tar;
  tar.file("a", "1");
  const Reading reading = read_all(tar.bytes());
  EXPECT_TRUE(reading.status.ok());
  EXPECT_THAT(reading.names(), ElementsAre("a"));
  ASSERT_THAT(reading.warnings, SizeIs(1));
  EXPECT_THAT(reading.warnings[0], HasSubstr("has no end marker"));
  EXPECT_TRUE(read_all(tar.bytes() + std::string(512, '\0')).status.ok());
}

TEST(TarReader, TakesAnArchiveWithoutMembers) {
  const Reading reading = read_all(std::string(10240, '\0'));
  EXPECT_TRUE(reading.status.ok());
  EXPECT_THAT(reading.members, IsEmpty());
}

TEST(TarReader, RefusesAnEmptyFile) {
  const Reading reading = read_all("");
  EXPECT_EQ(reading.status.code(), Code::kDataLoss);
  EXPECT_THAT(reading.status.message(), HasSubstr("/data/train-000.tar: it is empty"));
}

TEST(TarReader, RefusesWhatIsNoTar) {
  expect_damaged("no tar", "it is no tar archive");
  expect_damaged(std::string(5000, 'x'), "it is no tar archive");
}

TEST(TarReader, RefusesCompressedArchivesWithTheCommand) {
  const std::vector<std::pair<std::string, std::string>> heads{
      {std::string("\x1f\x8b\x08\0", 4),
       "name '/data/train-000-plain.tar' as the shard: gunzip -c '/data/train-000.tar' > "
       "'/data/train-000-plain.tar'"},
      {"\x28\xb5\x2f\xfd", "zstd -dc"},
      {"BZh9", "bunzip2 -c"},
      {std::string("\xfd\x37zXZ\0", 6), "unxz -c"},
      {"\x04\x22\x4d\x18", "lz4 -dc"},
      {"PK\x03\x04", "tar --sort=name"}};
  for (const auto& [head, command] : heads) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{5000}}) {
      const Reading reading = read_all(head + std::string(size, '\x55'));
      EXPECT_EQ(reading.status.code(), Code::kInvalidArgument);
      EXPECT_THAT(reading.status.message(), HasSubstr(command));
    }
  }
}

TEST(TarReader, TakesAMemberNamedLikeACompressedFile) {
  TarWriter tar;
  tar.file("BZh9.txt", "x");
  EXPECT_THAT(read_all(tar.archive()).names(), ElementsAre("BZh9.txt"));
}

TEST(TarReader, RefusesSparseMembersByName) {
  TarWriter old_gnu;
  old_gnu.file("a", "1").member(
      {.name = "hole.bin", .type = 'S', .size = 10, .form = TarBlock::Form::kGnu}, "0123456789");
  expect_damaged(old_gnu.archive(), "at byte 1024, member 'hole.bin': it is a sparse file");
  TarWriter pax;
  pax.pax(TarWriter::pax_record("GNU.sparse.major", "1") +
          TarWriter::pax_record("GNU.sparse.name", "hole.bin"));
  pax.file("GNUSparseFile.1/hole.bin", "x");
  expect_damaged(pax.archive(), "member 'hole.bin': it is a sparse file");
  expect_damaged(pax.archive(), "without 'tar --sparse'");
}

TEST(TarReader, RefusesMembersOfOtherVolumes) {
  TarWriter tar;
  tar.member({.name = "rest", .type = 'M', .size = 3}, "abc");
  expect_damaged(tar.archive(), "it goes on from another volume");
}

TEST(TarReader, RefusesHeadersThatAreDamaged) {
  TarWriter tar;
  tar.file("a.jpg", "1");
  const std::uint64_t second = tar.offset();
  tar.file("b.jpg", "2");
  std::string bytes = tar.archive();
  bytes[second + 3] ^= 1;
  expect_damaged(bytes, "at byte 1024, behind member 'a.jpg': what follows is no header");
}

TEST(TarReader, RefusesSizesThatAreNoNumbers) {
  std::string negative(12, '\xff');
  std::string huge(12, '\x7f');
  huge[0] = '\x80';
  for (const std::string& field :
       {std::string("12 45678901"), std::string("9"), std::string(12, ' '), negative, huge,
        std::string("777777777777"), std::string("-1")}) {
    TarWriter tar;
    tar.member({.name = "a", .size_field = field}, "");
    const Reading reading = read_all(tar.archive());
    EXPECT_EQ(reading.status.code(), field == "12 45678901" ? Code::kOk : Code::kDataLoss) << field;
  }
}

TEST(TarReader, RefusesMalformedPaxHeaders) {
  const auto refused = [](const std::string& records, const std::string& why) {
    TarWriter tar;
    tar.file("first", "").pax(records).file("a", "");
    expect_damaged(tar.archive(), "at byte 512, behind member 'first': " + why);
  };
  refused("path=a\n", "a record of its pax header begins with 'path=a\\n', which is no length");
  refused("99 path=a\n", "a record of its pax header says that it has 99 bytes");
  refused("2 path=a\n", "a record of its pax header says that it has 2 bytes");
  refused("99999999999999999999 path=a\n", "a record of its pax header begins with");
  refused("9 path=ab", "the record 'path=ab' of its pax header is no KEYWORD=VALUE");
  refused("8 patha\n", "the record 'patha\\n' of its pax header is no KEYWORD=VALUE");
  refused(TarWriter::pax_record("path", std::string("a\0b", 3)),
          "the path of its pax header holds a zero byte");
  refused(TarWriter::pax_record("size", "-1"), "the size of its pax header is '-1'");
  refused(TarWriter::pax_record("size", "9223372036854775808"),
          "the size of its pax header is '9223");
}

TEST(TarReader, BoundsHeadersAndNames) {
  TarWriter pax;
  pax.member({.name = "x", .type = 'x', .size = (std::uint64_t{8} << 30) - 1}, "");
  expect_damaged(pax.archive(), "a long name or pax header has 8589934591 bytes");
  TarWriter name;
  name.gnu_long('L', std::string(5000, 'n')).file("a", "");
  expect_damaged(name.archive(), "its name has 5000 bytes");
}

TEST(TarReader, ReadsPaxHeadersUpToTheBound) {
  TarWriter tar;
  tar.pax(TarWriter::pax_record("SCHILY.xattr.user.x", std::string(1'000'000, 'x')) +
          TarWriter::pax_record("path", "named"));
  tar.file("a", "");
  EXPECT_THAT(read_all(tar.archive()).names(), ElementsAre("named"));
}

TEST(TarReader, RefusesZeroBytesWithinLongNames) {
  TarWriter tar;
  tar.gnu_long('L', std::string("a\0b", 3)).file("x", "");
  expect_damaged(tar.archive(), "the long name 'a' is followed by more than zero bytes");
}

TEST(TarReader, RefusesHeadersOfNoMember) {
  TarWriter tar;
  tar.file("a", "").gnu_long('L', "b");
  expect_damaged(tar.archive(), "a header that names a member is followed by none");
  expect_damaged(tar.bytes(), "a header that names a member is the last");
}

TEST(TarReader, RefusesSizesBeyondTheFile) {
  TarWriter tar;
  tar.member({.name = "a", .size = 6000}, "short");
  expect_damaged(tar.archive(),
                 "at byte 0, member 'a': it is cut off: it has 6000 bytes, and only 1536");
}

TEST(TarReader, SeesThatTheFileShrinksWhileItIsRead) {
  TarWriter tar;
  for (int i = 0; i < 50; ++i) tar.file(std::to_string(i), std::string(50'000, 'x'));
  MemoryFile file(tar.archive());
  TarReader reader(file);
  TarMember member;
  ASSERT_TRUE(reader.next(member).value());
  file.shrink(60'000);
  Result<bool> found = true;
  while (found && *found) found = reader.next(member);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kDataLoss);
}

TEST(TarReader, PassesOnWhatReadingFailsWith) {
  TarWriter tar;
  tar.file("a", "");
  MemoryFile file(tar.archive());
  file.fail(Status(Code::kUnavailable, "the disk is gone"));
  EXPECT_EQ(read_all(file).status, Status(Code::kUnavailable, "the disk is gone"));
}

TEST(OpenFileBytes, EndWhereTheFileEnds) {
  const test::ScratchDir dir;
  const std::string path = dir.write("a", "0123456789");
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out(8, '.');
  OpenFileBytes file(fd.get(), path, 10);
  EXPECT_EQ(file.read(4, out).value(), 6u);
  EXPECT_EQ(out, "456789..");
  EXPECT_EQ(file.read(10, out).value(), 0u);
  EXPECT_EQ(file.read(1 << 20, out).value(), 0u);
  // It has grown since, or become shorter.
  EXPECT_EQ(OpenFileBytes(fd.get(), path, 5).read(4, out).value(), 1u);
  EXPECT_EQ(OpenFileBytes(fd.get(), path, 20).read(8, out).value(), 2u);
}

TEST(OpenFileBytes, NameTheFileThatCannotBeRead) {
  std::string out(8, '.');
  const auto count = OpenFileBytes(-1, "/data/a.tar", 10).read(0, out);
  ASSERT_FALSE(count);
  EXPECT_THAT(count.error().message(), HasSubstr("cannot read /data/a.tar"));
}

TEST(TarReader, EndsWithAnErrorWhereverTheFileIsCutOff) {
  TarWriter tar;
  tar.file("a.txt", "hello").gnu_long('L', "d/" + std::string(120, 'n')).file("cut", "x");
  const std::uint64_t second = 1024;
  const std::uint64_t third = tar.offset();
  tar.pax(TarWriter::pax_record("path", "c.bin"))
      .member({.name = "c", .size = 700}, std::string(700, 'c'));
  const std::string archive = tar.archive();
  for (std::size_t size = 0; size < archive.size(); ++size) {
    const Reading reading = read_all(archive.substr(0, size));
    const bool between =
        size == second || size == third || size == tar.offset() || size == tar.offset() + 512;
    if (between) {
      EXPECT_TRUE(reading.status.ok()) << size << ": " << reading.status.message();
      continue;
    }
    EXPECT_EQ(reading.status.code(), Code::kDataLoss) << size;
    EXPECT_THAT(reading.status.message(), HasSubstr("/data/train-000.tar")) << size;
    const std::size_t whole = size < second ? 0 : size < third ? 1 : size < tar.offset() ? 2 : 3;
    EXPECT_THAT(reading.members, SizeIs(whole)) << size;
  }
}

}  // namespace
}  // namespace spdld::source
