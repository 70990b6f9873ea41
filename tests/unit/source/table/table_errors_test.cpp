// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/source/table/table_maker.h"

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TableSpec csv_below_data(const std::vector<TableSpec::Value>& values) {
  TableSpec spec = spec_with_values("/t.csv", values);
  spec.root = "/data";
  return spec;
}

struct WrongTable {
  std::string text;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const WrongTable& wrong) {
  return out << wrong.message;
}

class CsvErrors : public ::testing::TestWithParam<WrongTable> {};

TEST_P(CsvErrors, SayWhatIsWrongWhere) {
  EXPECT_EQ(table_error(csv_below_data({{.field = "n", .column = "n", .type = ValueType::kInt64}}),
                        GetParam().text),
            GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Tables, CsvErrors,
    ::testing::Values(
        WrongTable{"", "/t.csv is empty; its first line must name the columns"},
        WrongTable{"\n\r\n", "/t.csv is empty; its first line must name the columns"},
        WrongTable{"path,n\n", "/t.csv has no rows"},
        WrongTable{"path,n\n\n", "/t.csv has no rows"},
        WrongTable{
            "path,n,path\n",
            "/t.csv:1:8: the column 'path' is named twice; the first line must name each column "
            "once"},
        WrongTable{"pth,n\na,1\n",
                   "/t.csv:1:1: the first line names no column 'path'; did you mean 'pth'?"},
        WrongTable{"a.jpg,3\nb.jpg,4\n",
                   "/t.csv:1:1: the first line names no column 'path'; there are: 'a.jpg', '3'; "
                   "the table is a table without a line of names, which has a row where the names "
                   "of its columns must stand: put a line such as 'path,label' before it, with a "
                   "comma between cells, here and in the rows, or in a .tsv a tab"},
        WrongTable{"path,n\na,1\nb\n",
                   "/t.csv:3:1: the row has 1 cells, and the first line names 2 columns"},
        WrongTable{"path,n\na,1,x\n",
                   "/t.csv:2:5: the row has more cells than the first line names columns, 2"},
        WrongTable{"path,n\n\"a\nb\xC3\xA9\",x\n",
                   "/t.csv:3:5: 'n': holds 'x' where int64 is wanted"},
        WrongTable{"path,n\na,\n", "/t.csv:2:3: 'n': holds '' where int64 is wanted"},
        WrongTable{"path,n\na,1.5\n", "/t.csv:2:3: 'n': holds '1.5' where int64 is wanted"},
        WrongTable{
            "path,n\na,9223372036854775808\n",
            "/t.csv:2:3: 'n': this integer is beyond int64; give the column the type float64, "
            "which rounds it, or in CSV text"},
        WrongTable{"path,n\n\"\",1\n", "/t.csv:2:1: 'path': the name of the item's file is empty"},
        WrongTable{"path,n\n,1\n", "/t.csv:2:1: 'path': the name of the item's file is empty"},
        WrongTable{"path,n\na,1\n\"b,2\nc,3\n",
                   "/t.csv:3:1: the quote that opens here does not close"},
        WrongTable{
            "path,n\na,1\nb, \"2\"\n",
            "/t.csv:3:4: a quote within a cell that does not begin with one; put the cell in "
            "quotes, and write those within it twice"},
        WrongTable{
            "path,n\n\"a\"b,1\n",
            "/t.csv:2:4: text behind the quote that closes the cell; within a cell a quote is "
            "written twice"},
        WrongTable{
            "path,n\na\rb,1\n",
            "/t.csv:2:2: a carriage return that no line feed follows; lines end with LF or CRLF, "
            "and a cell that holds one stands in quotes"},
        WrongTable{"path,n\na\xE4z,1\n",
                   "/t.csv:2:2: the byte \\xe4 belongs to no character of UTF-8; save the file as "
                   "UTF-8"},
        WrongTable{std::string("path,n\na\0,1\n", 12),
                   "/t.csv:2:2: a NUL byte; the file is no text, or cut off"},
        WrongTable{"\xFF\xFEp", "/t.csv: it is UTF-16, and not UTF-8; save it as UTF-8"},
        WrongTable{
            "path,n\n/elsewhere/a,1\n",
            "/t.csv:2:1: 'path': '/elsewhere/a' does not lie below root, /data; set root to a "
            "directory above all items"},
        WrongTable{"path,n\n/dataset/a,1\n",
                   "/t.csv:2:1: 'path': '/dataset/a' does not lie below root, /data; set root to a "
                   "directory above all items"},
        WrongTable{
            "path,n\na/../../b,1\n",
            "/t.csv:2:1: 'path': 'a/../../b' has '..' as a part; set root to a directory above "
            "all items"},
        WrongTable{"path,n\nhttps://x.org/a,1\n",
                   "/t.csv:2:1: 'path': 'https://x.org/a' is an address, and items are files below "
                   "root: copy them to this machine"},
        WrongTable{"path,n\na/,1\n", "/t.csv:2:1: 'path': 'a/' names a directory, and no file"}));

class JsonErrors : public ::testing::TestWithParam<WrongTable> {};

TEST_P(JsonErrors, SayWhatIsWrongWhere) {
  EXPECT_EQ(
      table_error(spec_with_values("/t.jsonl", {{.field = "n", .column = "n"}}), GetParam().text),
      GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Tables, JsonErrors,
    ::testing::Values(
        WrongTable{"", "/t.jsonl has no rows"}, WrongTable{" \n\n", "/t.jsonl has no rows"},
        WrongTable{"{\"path\": \"a\", \"m\": 1}\n",
                   "/t.jsonl:1:1: the object has no column 'n'; there are: 'path', 'm'; name "
                   "the field under 'optional' if rows need not have it"},
        WrongTable{"{\"path\": \"a\", \"n\": 1}\n{\"pth\": \"a\", \"n\": 1}\n",
                   "/t.jsonl:2:1: the object has no column 'path'; did you mean 'pth'? Or name the "
                   "field under 'optional' if rows need not have it"},
        WrongTable{"{\"path\": \"a\", \"n\": 1}\n{\"a file\": \"a\", \"n\": 1}\n",
                   "/t.jsonl:2:1: the object has no column 'path'; there are: 'a file', 'n'; "
                   "name the field under 'optional' if rows need not have it"},
        WrongTable{"{}",
                   "/t.jsonl:1:1: the object has no column 'path'; there are none; name the field "
                   "under 'optional' if rows need not have it"},
        WrongTable{
            "{\"path\": \"a\", \"n\": 1}\n\n{\"path\": \"b\", \"n\": \"x\"}\n",
            "/t.jsonl:3:20: 'n': holds text where int64 is what the rows before hold; give the "
            "column the type text, {column: NAME, type: text}, which integers are, too"},
        WrongTable{
            "{\"path\": \"a\", \"n\": true}\n{\"path\": \"b\", \"n\": 1}\n",
            "/t.jsonl:2:20: 'n': holds int64 where bool is what the rows before hold; as its "
            "text, {column: NAME, type: json} takes whatever a row has"},
        WrongTable{"{\"path\": 7, \"n\": 1}\n",
                   "/t.jsonl:1:10: 'path': holds int64 where the name of a file is wanted"},
        WrongTable{"{\"path\": \"\", \"n\": 1}\n",
                   "/t.jsonl:1:10: 'path': the name of the item's file is empty"},
        WrongTable{"{\"path\": \"a\", \"n\" :\tnull}\n",
                   "/t.jsonl:1:21: 'n' is null; each row needs a value: leave such rows out, or "
                   "name the field under 'optional'"},
        WrongTable{
            "{\"path\": \"\xC3\xA9\", \"n\": {\"a\": 1}}\n",
            "/t.jsonl:1:20: 'n' is an object; columns hold single values or lists of numbers, "
            "and all else as its text, for a loop to parse: {column: NAME, type: json}"},
        WrongTable{
            "{\"path\": \"a\", \"n\": [1, \"2\"]}\n",
            "/t.jsonl:1:20: 'n' is a list that holds a text; columns hold single values or lists "
            "of numbers, and all else as its text, for a loop to parse: {column: NAME, type: "
            "json}. If these are files of the row, each wants a column, which may be 'optional', "
            "or a part of a sample in tar shards"},
        WrongTable{
            "{\"path\": \"a\", \"n\": [[1]]}\n",
            "/t.jsonl:1:20: 'n' is a list of lists; columns hold single values or lists of "
            "numbers, and all else as its text, for a loop to parse: {column: NAME, type: json}"},
        WrongTable{
            "{\"path\": [], \"n\": 1}\n",
            "/t.jsonl:1:10: 'path': holds a list where the name of one file is wanted: a field is "
            "one file of each row. Columns of their own make several, {first: COLUMN, second: "
            "COLUMN}, "
            "which may be 'optional'; or tar shards, where each image is a part of its sample"},
        WrongTable{
            "{\"path\": \"a\", \"n\": 18446744073709551616}\n",
            "/t.jsonl:1:20: 'n': this integer is beyond int64; give the column the type float64, "
            "which rounds it, or in CSV text"},
        WrongTable{
            "{\"path\": \"a\", \"n\": 9223372036854775808}\n",
            "/t.jsonl:1:20: 'n': this integer is beyond int64; give the column the type float64, "
            "which rounds it, or in CSV text"},
        WrongTable{"{\"path\": \"a\", \"n\": 1, \"path\": \"b\"}\n",
                   "/t.jsonl:1:31: 'path' is there twice in one object"},
        WrongTable{"{\"path\": \"a\", \"x\": 1, \"n\": 1, \"x\": 2}\n",
                   "/t.jsonl:1:31: the key 'x' is there twice in one object"},
        WrongTable{"[1]\n",
                   "/t.jsonl:1:1: the line holds a list, and no object: {\"column\": value, ...}; "
                   "of a list "
                   "of objects jq makes lines: jq -c '.[]' FILE > FILE.jsonl"},
        WrongTable{
            "7\n",
            "/t.jsonl:1:1: the line holds an integer, and no object: {\"column\": value, ...}"},
        WrongTable{"{\"path\": \"a\\u0000\", \"n\": 1}\n",
                   "/t.jsonl:1:10: 'path' holds a NUL character"},
        WrongTable{
            "{\"path\": \"a\xE4\", \"n\": 1}\n",
            "/t.jsonl:1:12: the byte \\xe4 belongs to no character of UTF-8; save the file as "
            "UTF-8"}));

TEST(JsonLinesErrors, NameTheLineOfWhatIsNoJson) {
  const TableSpec spec = table_spec("/t.jsonl");
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\"}\n{\"path\" \"a\"}\n"),
              StartsWith("/t.jsonl:2:11: this is no JSON: "));
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\"} x\n"),
              StartsWith("/t.jsonl:1:15: this is no JSON: "));
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\", \"b\"\n"), StartsWith("/t.jsonl:1:"));
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\", \"b\": [1\n"), StartsWith("/t.jsonl:1:"));
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\", \"b\": }\n"),
              StartsWith("/t.jsonl:1:20: this is no JSON: "));
}

TEST(JsonLinesErrors, RefuseNestingBeyondItsBound) {
  const auto nested = [](int depth) {
    return "{\"path\": \"a\", \"x\": " + std::string(depth, '[') + std::string(depth, ']') + "}\n";
  };
  const TableSpec spec = table_spec("/t.jsonl");
  EXPECT_TRUE(read_table(spec, read_of(nested(63))));
  EXPECT_THAT(table_error(spec, nested(64)),
              HasSubstr("objects and arrays are nested deeper than 64"));
  EXPECT_THAT(table_error(spec, nested(1'000'000)),
              HasSubstr("objects and arrays are nested deeper than 64"));
}

TEST(TableErrors, RefuseRecordsBeyondTheirBound) {
  const std::string large((std::size_t{16} << 20) + 1, 'x');
  EXPECT_EQ(table_error(table_spec("/t.csv"), "path\na\n" + large),
            "/t.csv:3:1: the row has more than 16 MiB");
  EXPECT_EQ(table_error(table_spec("/t.csv"), "path,n\na,\"" + large),
            "/t.csv:2:3: the quote that opens here does not close within 16 MiB");
  EXPECT_EQ(table_error(table_spec("/t.jsonl"), "{\"path\": \"a\"}\n{" + large),
            "/t.jsonl:2:1: the line has more than 16 MiB");
}

TEST(TableErrors, RefuseMoreColumnsAndCellsThanAnyoneNeeds) {
  EXPECT_EQ(table_error(table_spec("/t.csv"), std::string(70000, ',')),
            "/t.csv:1:65537: more than 65536 columns");
  EXPECT_THAT(table_error(table_spec("/t.csv"), "path\n" + std::string(1 << 20, ',')),
              HasSubstr("/t.csv:2:2: the row has more cells"));
}

TEST(TableErrors, BoundWhatIsKept) {
  std::string rows = "path\n";
  for (int i = 0; i < 1000; ++i) rows += "a\n";
  EXPECT_EQ(table_error(table_spec("/t.csv"), rows, {.max_bytes = 900}),
            "/t.csv: the columns that are asked for take more than 900 bytes by row 101; ask for "
            "fewer, or split the table");
}

TEST(TableErrors, StayShortWhateverTheTableHolds) {
  std::string header;
  for (int i = 0; i < 3000; ++i) header += (i == 0 ? "" : ",") + std::string(i + 100, 'c');
  EXPECT_LT(table_error(table_spec("/t.csv"), header + "\n").size(), 3000U);
  EXPECT_LT(table_error(csv_below_data({}), "path\n/" + std::string(100000, 'x') + "\n").size(),
            300U);
  EXPECT_EQ(table_error(csv_below_data({{.field = "n", .column = "n", .type = ValueType::kBool}}),
                        "path,n\na,\"\x1b[2J\n\"\n"),
            "/t.csv:2:3: 'n': holds '\\x1b[2J\\n' where bool is wanted");
}

TEST(TableErrors, NameIntegersThatOnlyAllRowsShowToBeTooLarge) {
  EXPECT_EQ(table_error(csv_below_data({{.field = "n", .column = "n"}}),
                        "path,n\na,1\nb,99999999999999999999\nc,2\n"),
            "/t.csv:3:3: 'n': this integer is beyond int64; give the column the type float64, "
            "which rounds it, or in CSV text");
}

TEST(TableErrors, KnowOtherFormatsByTheirContent) {
  const std::string parquet = "PAR1\x15\x04\x15" + std::string(400, '\0');
  for (const char* const name : {"/t.csv", "/t.tsv", "/t.jsonl"})
    EXPECT_THAT(table_error(table_spec(name), parquet),
                HasSubstr(std::string(name) + " is no table that is read, but Parquet, which"));
  EXPECT_THAT(
      table_error(table_spec("/t.csv"), "version https://git-lfs.github.com/spec/v1\noid x\n"),
      HasSubstr("a pointer of Git LFS, which stands for a file that is not there yet"));
  EXPECT_THAT(table_error(table_spec("/t.jsonl"), "[{\"path\": \"a\"}]"),
              HasSubstr("of a list of objects jq makes lines: jq -c '.[]' FILE > FILE.jsonl"));
  // The names of columns may be the first bytes of others.
  EXPECT_THAT(table_error(table_spec("/t.csv"), "FORM,file\n1,a\n"),
              HasSubstr("the first line names no column 'path'"));
}

TEST(TableErrors, KnowTheTablesOfOtherLibraries) {
  EXPECT_THAT(table_error(table_spec("/t.jsonl"), "{\"audio_filepath\": \"a\", \"text\": \"x\"}"),
              AllOf(HasSubstr("the object has no column 'path'; there are: 'audio_filepath', "
                              "'text'; the table is NeMo's manifest, which names sound in "
                              "audio_filepath: write 'uri: {audio: audio_filepath}'"),
                    HasSubstr("; name the field under 'optional'")));
  EXPECT_THAT(table_error(table_spec("/t.tsv"), "/data/LibriSpeech\na.flac\t160000\n"),
              HasSubstr("the table is fairseq's manifest, which begins with a folder: write that "
                        "folder as 'root'"));
  EXPECT_THAT(table_error(table_spec("/t.csv"), "pth,youtube_id\na,x\n"),
              EndsWith("did you mean 'pth'?"))
      << "a column of nearly the name is told of first";
  EXPECT_THAT(table_error(table_spec("/wav.scp"), "a a.wav\n"),
              HasSubstr("/wav.scp is no table that is read, but a list of Kaldi's, which has no "
                        "line that names its columns"));
}

TEST(TableErrors, SayWhatToDoWithSeveralFilesOfARow) {
  for (const char* const list : {"[]", "[1, 2]"})
    EXPECT_THAT(
        table_error(table_spec("/t.jsonl"), "{\"path\": " + std::string(list) + "}\n"),
        HasSubstr("/t.jsonl:1:10: 'path': holds a list where the name of one file is wanted"));
}

TEST(TableErrors, RefuseFilesOfUnknownFormat) {
  EXPECT_THAT(table_error(table_spec("/t.parquet"), ""),
              HasSubstr("/t.parquet is no table that is read, but Parquet, which holds rows"));
  EXPECT_THAT(table_error(table_spec("/t.csv.gz"), ""),
              HasSubstr("but gzip, which is not read in place: unpack it"));
  EXPECT_THAT(table_error(table_spec("/t.dat"), ""), HasSubstr("also compressed ones"));
  EXPECT_THAT(table_error(table_spec("/t.json"), ""),
              AllOf(HasSubstr("jq -c '.[]' FILE > FILE.jsonl"), HasSubstr("'source: {coco: ")));
  EXPECT_EQ(*table_format(table_spec("/T.CSV")), TableSpec::Format::kCsv);
  EXPECT_EQ(*table_format(table_spec("/t.ndjson")), TableSpec::Format::kJsonLines);
}

TEST(TableErrors, RefuseFieldsThatAreNamedTwice) {
  TableSpec spec = spec_with_values("/t.csv", {{.field = "image", .column = "n"}});
  EXPECT_THAT(table_error(spec, "path,n\na,1\n"), HasSubstr("have the same name"));
  spec = spec_with_label("/t.csv");
  spec.values = {{.field = "label", .column = "label"}};
  EXPECT_THAT(table_error(spec, "path,label\na,1\n"), HasSubstr("have the same name"));
  EXPECT_THAT(table_error({.file = "/t.csv"}, "path\na\n"), HasSubstr("no column is named"));
}

TEST(LabelErrors, NameWhatIsNoClass) {
  const TableOptions pets = {.classes = {{"cat", "dog"}}};
  EXPECT_EQ(table_error(spec_with_label("/t.csv"), "path,label\na,dgo\n", pets),
            "/t.csv:2:3: 'label': 'dgo' is none of the 2 classes; did you mean 'dog'?");
  EXPECT_EQ(table_error(spec_with_label("/t.csv"), "path,label\na,2\n", pets),
            "/t.csv:2:3: 'label': class 2 is beyond the 2 classes, which are numbered from 0");
  EXPECT_EQ(table_error(spec_with_label("/t.csv"), "path,label\na,0\n", {.classes = {{"1", "2"}}}),
            "/t.csv:2:3: 'label': '0' is none of the 2 classes");
  EXPECT_EQ(table_error(spec_with_label("/t.csv"), "path,label\na,\n"),
            "/t.csv:2:3: 'label': the label is empty");
  EXPECT_THAT(table_error(spec_with_label("/t.csv"), "path,label\na,1\nb,99999999999999999999\n"),
              StartsWith("/t.csv:3:3: 'label': this integer is beyond int64"));
  EXPECT_THAT(table_error(spec_with_label("/t.jsonl"), "{\"path\":\"a\",\"label\":0.5}\n"),
              HasSubstr("holds float64, and no label"));
  EXPECT_THAT(table_error(spec_with_label("/t.jsonl"),
                          "{\"path\":\"a\",\"label\":1}\n{\"path\":\"a\",\"label\":\"1\"}\n"),
              HasSubstr("/t.jsonl:2:21: 'label': holds text where the rows before hold int64"));
}

}  // namespace
}  // namespace spdld::source
