// SPDX-License-Identifier: Apache-2.0
// Mutates sound tables, annotation files and conditions, and holds the readers to their promises:
// no crash, an error that is one short line, and the same outcome wherever reads of the file end.
// Each mutant is a pure function of its number. SPDLD_MUTATIONS says how many of each kind (5000).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text/printable.h"
#include "source/bytes/binary.h"
#include "source/listing/companions.h"
#include "source/select/where.h"
#include "source/table/coco_reader.h"
#include "source/table/table_reader.h"
#include "tests/unit/source/read_of.h"

namespace spdld::source {
namespace {

using Texts = std::vector<std::string>;

int mutations() {
  const char* wanted = std::getenv("SPDLD_MUTATIONS");
  return wanted == nullptr ? 5000 : std::atoi(wanted);
}

std::size_t place(const std::string& text, KeyedRng& rng) { return rng.below(text.size() + 1); }

void flip_bits(std::string& text, KeyedRng& rng) {
  if (text.empty()) return;
  for (std::uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i) {
    char& at = text[rng.below(text.size())];
    at = static_cast<char>(static_cast<unsigned char>(at) ^ (1U << rng.below(8)));
  }
}

// What means something in one of the languages.
void insert_sign(std::string& text, KeyedRng& rng) {
  static const Texts kSigns = {"\"",          "\"\"",       ",",
                               "\t",          "\n",         "\r",
                               "\r\n",        "[",          "]",
                               "{",           "}",          ":",
                               "\\",          "'",          "(",
                               ")",           " ",          "and ",
                               " or ",        "not ",       " in ",
                               "null",        "true",       "-",
                               "0",           "9",          ".",
                               "e9",          "1e999",      "99999999999999999999",
                               "\\u0000",     "\\ud800",    "\xEF\xBB\xBF",
                               "\xFF",        "\xC3",       std::string(1, '\0'),
                               "\"id\": 1, ", "\"n\": 1, ", "../",
                               "/",           "${",         "}"};
  for (std::uint64_t i = 0, count = 1 + rng.below(3); i < count; ++i) {
    text.insert(place(text, rng), kSigns[rng.below(kSigns.size())]);
  }
}

void insert_many(std::string& text, KeyedRng& rng) {
  static const Texts kSigns = {"[", "]", "{\"a\":", "(", "not ", "\"", ",", "0", "\n", "x", "[1,"};
  const std::string& sign = kSigns[rng.below(kSigns.size())];
  std::string all;
  for (std::uint64_t i = 0, count = rng.below(3000); i < count; ++i) all += sign;
  text.insert(place(text, rng), all);
}

void cut_off(std::string& text, KeyedRng& rng) { text.resize(place(text, rng)); }

void cut_out(std::string& text, KeyedRng& rng) {
  const std::size_t from = place(text, rng);
  text.erase(from, 1 + rng.below(20));
}

void repeat_part(std::string& text, KeyedRng& rng) {
  const std::size_t from = place(text, rng);
  const std::string part = text.substr(from, rng.below(80));
  text.insert(place(text, rng), part);
}

void splice(std::string& text, const Texts& good, KeyedRng& rng) {
  const std::string& other = good[rng.below(good.size())];
  const std::size_t from = place(other, rng);
  text.replace(place(text, rng), rng.below(20), other.substr(from, rng.below(60)));
}

std::string mutant_of(const Texts& good, KeyedRng& rng) {
  std::string text = good[rng.below(good.size())];
  using Mutation = void (*)(std::string&, KeyedRng&);
  constexpr std::array<Mutation, 6> kMutations = {flip_bits, insert_sign, insert_many,
                                                  cut_off,   cut_out,     repeat_part};
  for (std::uint64_t i = 0, count = 1 + rng.below(2); i < count; ++i) {
    const std::uint64_t which = rng.below(kMutations.size() + 1);
    if (which == kMutations.size()) {
      splice(text, good, rng);
    } else {
      kMutations[which](text, rng);
    }
  }
  return text;
}

// Either way all that a reader says: the columns' digest, or the error.
std::string outcome_of(const Result<Columns>& columns) {
  if (!columns) {
    const std::string& message = columns.error().message();
    EXPECT_TRUE(columns.error().code() == Code::kInvalidArgument ||
                columns.error().code() == Code::kResourceExhausted)
        << message;
    EXPECT_EQ(printable(message), message);
    EXPECT_LT(message.size(), 2500U);
    return message;
  }
  EXPECT_GE(columns->rows(), 1U);
  BinaryWriter out;
  columns->write(out);
  BinaryReader in(out.text());
  const std::optional<Columns> back = Columns::read(in);
  EXPECT_TRUE(back && back->digest() == columns->digest());
  return "OK " + columns->digest();
}

using Reader = std::function<Result<Columns>(const std::string& text, std::size_t part)>;

void expect_survived(const Texts& good, std::uint64_t seed, const Reader& read) {
  for (const std::string& text : good) {
    EXPECT_TRUE(outcome_of(read(text, 1000)).starts_with("OK")) << text;
  }
  std::map<std::string, int> outcomes;
  for (int i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
    const std::string text = mutant_of(good, rng);
    const std::string outcome = outcome_of(read(text, std::size_t{1} << 20));
    EXPECT_EQ(outcome_of(read(text, 1 + rng.below(40))), outcome) << "mutant " << i;
    ++outcomes[outcome.starts_with("OK") ? "OK" : "error"];
  }
  for (const auto& [outcome, count] : outcomes)
    std::cout << "  " << outcome << ": " << count << '\n';
  // A run in which nothing failed, or everything, has tested nothing.
  EXPECT_EQ(outcomes.size(), 2U);
}

TableSpec table(TableSpec::Format format, std::optional<ValueType> type) {
  return {.file = "/t",
          .format = format,
          .uris = {{.field = "image", .column = "path"}},
          .label = TableSpec::Label{.column = "label"},
          .values = {{.field = "n", .column = "n", .type = type},
                     {.field = "box", .column = "box"},
                     {.field = "say", .column = "say"}}};
}

Reader table_reader(const TableSpec& spec) {
  return [spec](const std::string& text, std::size_t part) -> Result<Columns> {
    SPDLD_ASSIGN(Table read, read_table(spec, read_of(text, part), {.first_read = part}));
    return std::move(read.columns);
  };
}

TEST(TableMutation, OfCsvNeverBreaksTheReader) {
  const Texts good = {"path,label,n,box,say\na.jpg,cat,1,\"[1,2.5]\",x\nb.jpg,dog,2,[],y\n",
                      "\xEF\xBB\xBFsay,box,n,label,path,more\r\n\"a, \"\"b\"\"\r\n c\","
                      "[1],-7,0,\"d/x\",\r\n\r\n\xE4\xB8\xAD,[2],9,1,e,z",
                      "n,say,path,label,box\n1,x,a,b,[-1e3]\n1,x,a,b,[nan]\n"};
  expect_survived(good, 0x637376, table_reader(table(TableSpec::Format::kCsv, std::nullopt)));
  expect_survived(good, 0x637377, table_reader(table(TableSpec::Format::kCsv, ValueType::kInt64)));
}

TEST(TableMutation, OfTsvNeverBreaksTheReader) {
  expect_survived({"path\tlabel\tn\tbox\tsay\na\tcat\t1\t[1, 2]\the said \"no\"\n"
                   "b\t7\t0.5\t[]\t\"x\ty\"\n"},
                  0x747376, table_reader(table(TableSpec::Format::kTsv, ValueType::kFloat64)));
}

TEST(TableMutation, OfJsonLinesNeverBreaksTheReader) {
  const Texts good = {
      "{\"path\": \"a\", \"label\": \"cat\", \"n\": 1, \"box\": [1, 2.5], \"say\": \"x\\n\"}\n"
      "{\"path\": \"b\", \"label\": \"dog\", \"n\": 2, \"box\": [], \"say\": \"\\u4e2d\"}\n",
      "{\"more\": {\"x\": [[1, \"]}\"], null, true]}, \"say\": \"\xE4\xB8\xAD\", \"box\": [3],\t"
      "\"n\": -1e3, \"label\": 7, \"path\": \"d/e\"}\r\n\n"};
  expect_survived(good, 0x6a736f, table_reader(table(TableSpec::Format::kJsonLines, {})));
  expect_survived(good, 0x6a7370,
                  table_reader(table(TableSpec::Format::kJsonLines, ValueType::kFloat64)));
}

TEST(TableMutation, OfCocoNeverBreaksTheReader) {
  const Texts good = {
      R"({"info": {"x": [1, "]"]}, "images": [{"id": 1, "file_name": "a", "width": 9, "height": 9},
          {"id": 2, "file_name": "b/c", "width": 9.0, "height": 9}], "annotations":
          [{"id": 5, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 1.5,
            "segmentation": [[1, 2.5], {"counts": "a\"]", "size": [1, 2]}], "iscrowd": 0},
           {"id": 6, "image_id": 2, "category_id": 9, "bbox": [0, 0, 1, 1], "iscrowd": true}],
          "categories": [{"id": 9, "name": "cat"}, {"id": 3, "name": "dog"}]})",
      R"({"categories":[],"annotations":[],"images":[{"id":1,"file_name":"a","width":9,"height":9}]})"};
  const CocoSpec spec = {.annotations = "/i.json", .root = "/"};
  for (const auto bad : {CocoOptions::BadBoxes::kFail, CocoOptions::BadBoxes::kDrop}) {
    expect_survived(
        good, 0x636f63, [&](const std::string& text, std::size_t part) -> Result<Columns> {
          SPDLD_ASSIGN(Coco coco, read_coco(spec, read_of(text, part), {.bad_boxes = bad}));
          return std::move(coco.columns);
        });
  }
}

TEST(TableMutation, OfConditionsNeverBreaksTheParser) {
  const Texts good = {"width >= 64 and not (split == 'te\\'st' or score < 0.5)",
                      "0.5 < score <= 1e3 != width or 'cat' in labels and 3 not in ids",
                      "label in ['cat', \"dog\",] and good == (width in [1, -2.5])",
                      "((good)) and True and not not false or split in []"};
  ColumnsBuilder builder({{.name = "width", .type = ValueType::kInt64},
                          {.name = "score", .type = ValueType::kFloat64},
                          {.name = "good", .type = ValueType::kBool},
                          {.name = "split", .type = ValueType::kText},
                          {.name = "ids", .type = ValueType::kInt64List},
                          {.name = "label", .type = ValueType::kInt64},
                          {.name = "labels", .type = ValueType::kInt64List}});
  const std::vector<std::int64_t> ids = {3, 1};
  for (std::int64_t row = 0; row < 3; ++row) {
    builder.add(0, row * 64);
    builder.add(1, 0.5 * static_cast<double>(row));
    builder.add(2, row == 1);
    builder.add(3, std::string_view("te'st"));
    builder.add(4, std::span<const std::int64_t>(ids).first(static_cast<std::size_t>(row)));
    builder.add(5, row);
    builder.add(6, std::span<const std::int64_t>(ids));
  }
  const Columns columns = std::move(builder).finish();
  // The rows that match, as a column.
  for (const std::string named : {"label", "labels"}) {
    const ClassNames classes = {{named}, {"cat", "dog", "eel", "fox"}};
    const auto read = [&](const std::string& text, std::size_t) -> Result<Columns> {
      SPDLD_ASSIGN(const Where where, Where::compile(text, columns, classes));
      ColumnsBuilder held({{.name = "held", .type = ValueType::kBool}});
      for (std::uint64_t row = 0; row < columns.rows(); ++row) {
        held.add(0, where.matches(columns, row));
      }
      return std::move(held).finish();
    };
    expect_survived(named == "label" ? Texts{good[0], good[2], good[3]} : Texts{good[0], good[1]},
                    0x776865, read);
  }
}

TEST(TableMutation, OfCompanionsNeverLeavesTheRoot) {
  const Texts patterns = {"masks/${subdir}/${stem}.png", "${dir}/${name}.${ext}",
                          "${top}/m${stem}"};
  const Texts items = {"images/train/a.b.jpg", "...x", "a", ".b/..c", "x/..."};
  int good = 0;
  for (int i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(0x636f6d, static_cast<std::uint64_t>(i)));
    const Result<CompanionPattern> pattern = CompanionPattern::parse(mutant_of(patterns, rng));
    if (!pattern) continue;
    for (const std::string& item : items) {
      const Result<std::string> uri = pattern->uri(item);
      if (!uri) continue;
      ++good;
      EXPECT_NE(uri->front(), '/');
      EXPECT_EQ(("/" + *uri + "/").find("/../"), std::string::npos) << *uri;
    }
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace spdld::source
