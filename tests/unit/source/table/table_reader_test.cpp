// SPDX-License-Identifier: Apache-2.0
#include "source/table/table_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "posix/unique_fd.h"
#include "tests/unit/source/table/table_maker.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Integers = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

Table read(const TableSpec& spec, const std::string& text, const TableOptions& options = {}) {
  Result<Table> table = read_table(spec, read_of(text), options);
  EXPECT_TRUE(table) << table.error().message();
  return table ? std::move(*table) : Table();
}

std::vector<std::string> texts(const Table& table, const std::string& name = "image") {
  return column_of<std::string>(table.columns, name);
}

TEST(Csv, GivesRowsInTheOrderOfTheFileAndRepeatedOnesAgain) {
  EXPECT_THAT(texts(read(table_spec(), "path,x\nb.jpg,1\na.jpg,2\nb.jpg,1\n")),
              ElementsAre("b.jpg", "a.jpg", "b.jpg"));
}

TEST(Csv, ReadsQuotesAsRfc4180Has) {
  const Table table = read(spec_with_values("/t.csv", {{.field = "caption", .column = "say"}}),
                           "say,path\n\"a, b\",1.jpg\n\"two\r\nlines\",2.jpg\n"
                           "\"he said \"\"no\"\", twice \"\"\"\"\",3.jpg\n\"\",\"4.jpg\"\n");
  EXPECT_THAT(texts(table), ElementsAre("1.jpg", "2.jpg", "3.jpg", "4.jpg"));
  EXPECT_THAT(texts(table, "caption"),
              ElementsAre("a, b", "two\r\nlines", "he said \"no\", twice \"\"", ""));
}

TEST(Csv, TakesLinesThatEndInAnyWayAndLeavesOutEmptyOnes) {
  for (const std::string text :
       {"path,n\na,1\nb,2\n", "path,n\r\na,1\r\nb,2\r\n", "path,n\n\na,1\r\n\r\n\nb,2",
        "\xEF\xBB\xBFpath,n\na,1\nb,2\n\n\n", "path,n\na,1\nb,2\r"}) {
    EXPECT_THAT(texts(read(table_spec(), text)), ElementsAre("a", "b")) << text;
  }
}

TEST(Csv, LeavesSpacesToTextsAlone) {
  const Table table = read(
      spec_with_values("/t.csv", {{.field = "n", .column = "n"}, {.field = "t", .column = "t"}}),
      "path,n,t\na, 1, x \nb,2 ,y\n");
  EXPECT_THAT(column_of<std::int64_t>(table.columns, "n"), ElementsAre(1, 2));
  EXPECT_THAT(texts(table, "t"), ElementsAre(" x ", "y"));
}

// Every place of the text is the end of a part that was read at once.
TEST(Csv, IsTheSameWhereverReadsEnd) {
  const std::string text =
      "\xEF\xBB\xBFpath,caption,box\r\n\"a.jpg\",\"x \"\"y\"\"\r\nz\",\"[1, "
      "2]\"\r\n\r\nb.jpg,\xE4\xB8\xAD,[]\r\n";
  const TableSpec spec = spec_with_values(
      "/t.csv", {{.field = "caption", .column = "caption"}, {.field = "box", .column = "box"}});
  const std::string whole = read(spec, text).columns.digest();
  for (std::size_t part = 1; part <= text.size(); ++part) {
    for (const std::size_t first : {std::size_t{1}, part, std::size_t{64}}) {
      const Result<Table> table = read_table(spec, read_of(text, part), {.first_read = first});
      ASSERT_TRUE(table) << table.error().message();
      EXPECT_EQ(table->columns.digest(), whole) << part << " " << first;
    }
  }
}

TEST(Csv, TakesRowsLongerThanOneRead) {
  const std::string longest(3 << 20, 'x');
  const Table table = read(spec_with_values("/t.csv", {{.field = "c", .column = "c"}}),
                           "c,path\n\"" + longest + "\",a\n" + longest + ",b\n");
  EXPECT_THAT(texts(table), ElementsAre("a", "b"));
  EXPECT_THAT(texts(table, "c"), ElementsAre(longest, longest));
}

TEST(Csv, SettlesTypesByAllRows) {
  const std::string text =
      "path,int,float,bool,ints,floats,text,code,mixed\n"
      "a,1,1,true,\"[1, 2]\",[],x,007,1\n"
      "b,-9223372036854775808,-2.5e3,False,[],\"[1,2.5]\",y,12,true\n"
      "c,9223372036854775807,nan,TRUE,[3],\"[ -1e-3 ]\",,1,[1]\n";
  std::vector<TableSpec::Value> values;
  for (const char* name : {"int", "float", "bool", "ints", "floats", "text", "code", "mixed"}) {
    values.push_back({.field = name, .column = name});
  }
  const Columns columns = read(spec_with_values("/t.csv", values), text).columns;
  EXPECT_THAT(column_of<std::int64_t>(columns, "int"),
              ElementsAre(1, std::numeric_limits<std::int64_t>::min(),
                          std::numeric_limits<std::int64_t>::max()));
  const auto floats = column_of<double>(columns, "float");
  EXPECT_EQ(floats[0], 1);
  EXPECT_EQ(floats[1], -2500);
  EXPECT_TRUE(std::isnan(floats[2]));
  EXPECT_THAT(column_of<bool>(columns, "bool"), ElementsAre(true, false, true));
  EXPECT_THAT(column_of<Integers>(columns, "ints"),
              ElementsAre(Integers{1, 2}, Integers{}, Integers{3}));
  EXPECT_THAT(column_of<Numbers>(columns, "floats"),
              ElementsAre(Numbers{}, Numbers{1, 2.5}, Numbers{-1e-3}));
  EXPECT_THAT(column_of<std::string>(columns, "text"), ElementsAre("x", "y", ""));
  EXPECT_THAT(column_of<std::string>(columns, "code"), ElementsAre("007", "12", "1"));
  EXPECT_THAT(column_of<std::string>(columns, "mixed"), ElementsAre("1", "true", "[1]"));
}

TEST(Csv, TakesDeclaredTypesAsTheyAre) {
  const Columns columns =
      read(spec_with_values("/t.csv",
                            {{.field = "t", .column = "n", .type = ValueType::kText},
                             {.field = "f", .column = "n", .type = ValueType::kFloat64},
                             {.field = "i", .column = "code", .type = ValueType::kInt64},
                             {.field = "l", .column = "list", .type = ValueType::kFloat64List}}),
           "path,n,code,list\na,1,007,[1]\n")
          .columns;
  EXPECT_THAT(column_of<std::string>(columns, "t"), ElementsAre("1"));
  EXPECT_THAT(column_of<double>(columns, "f"), ElementsAre(1));
  EXPECT_THAT(column_of<std::int64_t>(columns, "i"), ElementsAre(7));
  EXPECT_THAT(column_of<Numbers>(columns, "l"), ElementsAre(Numbers{1}));
}

TEST(Csv, TakesHugeIntegersWhereTheColumnIsNoInteger) {
  const auto with = [](const std::string& second, std::optional<ValueType> type) {
    return read(spec_with_values("/t.csv", {{.field = "n", .column = "n", .type = type}}),
                "path,n\na,99999999999999999999\nb," + second + "\n")
        .columns;
  };
  EXPECT_THAT(column_of<double>(with("1.5", {}), "n"), ElementsAre(1e20, 1.5));
  EXPECT_THAT(column_of<std::string>(with("x", {}), "n"), ElementsAre("99999999999999999999", "x"));
  EXPECT_THAT(column_of<double>(with("1", ValueType::kFloat64), "n"), ElementsAre(1e20, 1));
}

TEST(Tsv, TakesQuotesWithinCellsAsTheyStand) {
  const Table table = read(spec_with_values("/t.tsv", {{.field = "c", .column = "c"}}),
                           "c\tpath\na \"b\" c, d\t1\n\"x\ty\"\t2\n");
  EXPECT_THAT(texts(table, "c"), ElementsAre("a \"b\" c, d", "x\ty"));
}

TEST(JsonLines, ReadsObjectsByTheirKeys) {
  const Table table = read(
      spec_with_values("/t.jsonl", {{.field = "caption", .column = "say"},
                                    {.field = "width", .column = "w"},
                                    {.field = "good", .column = "good"},
                                    {.field = "box", .column = "box"},
                                    {.field = "ids", .column = "ids"}}),
      "{\"path\": \"a\", \"say\": \"x\\ty \\u4e2d\", \"w\": 1, \"good\": true, \"box\": [1, 2.5],"
      " \"ids\": [7], \"more\": {\"path\": [[{\"say\": 1}], \"]\\\"}\", NaN]}}\r\n\n  \n"
      "{\"ids\": [], \"box\": [], \"good\": false, \"w\": 2.5, \"say\": \"\", \"path\": \"b\"}");
  EXPECT_THAT(texts(table), ElementsAre("a", "b"));
  EXPECT_THAT(texts(table, "caption"), ElementsAre("x\ty \xE4\xB8\xAD", ""));
  EXPECT_THAT(column_of<double>(table.columns, "width"), ElementsAre(1, 2.5));
  EXPECT_THAT(column_of<bool>(table.columns, "good"), ElementsAre(true, false));
  EXPECT_THAT(column_of<Numbers>(table.columns, "box"), ElementsAre(Numbers{1, 2.5}, Numbers{}));
  EXPECT_THAT(column_of<Integers>(table.columns, "ids"), ElementsAre(Integers{7}, Integers{}));
}

TEST(JsonLines, IsTheSameWhereverReadsEnd) {
  const std::string text =
      "\xEF\xBB\xBF{\"path\": \"a\", \"n\": [1, 2], \"x\": \"\\\\\"}\r\n\n{\"n\": [3], \"path\": "
      "\"b\"}";
  const TableSpec spec = spec_with_values("/t.jsonl", {{.field = "n", .column = "n"}});
  const std::string whole = read(spec, text).columns.digest();
  for (std::size_t part = 1; part <= text.size(); ++part) {
    const Result<Table> table = read_table(spec, read_of(text, part), {.first_read = part});
    ASSERT_TRUE(table) << table.error().message();
    EXPECT_EQ(table->columns.digest(), whole) << part;
  }
}

TEST(JsonLines, WidensListsOfIntegersOnceOneHasAFraction) {
  const Table table = read(spec_with_values("/t.jsonl", {{.field = "b", .column = "b"}}),
                           "{\"path\":\"a\",\"b\":[]}\n{\"path\":\"a\",\"b\":[1]}\n"
                           "{\"path\":\"a\",\"b\":[0.5]}\n{\"path\":\"a\",\"b\":[2]}\n");
  EXPECT_THAT(column_of<Numbers>(table.columns, "b"),
              ElementsAre(Numbers{}, Numbers{1}, Numbers{0.5}, Numbers{2}));
}

TEST(TableLabels, AreTheSortedDistinctNamesOfTheColumn) {
  const Table table = read(spec_with_label("/t.csv"), "path,label\na,dog\nb,cat\nc,dog\nd,7\n");
  EXPECT_THAT(table.classes, ElementsAre("7", "cat", "dog"));
  EXPECT_THAT(column_of<std::int64_t>(table.columns, "label"), ElementsAre(2, 1, 2, 0));
}

TEST(TableLabels, AreNumbersWhereTheColumnHasIntegers) {
  for (const auto& [file, text] :
       {std::pair{"/t.csv", "path,label\na,3\nb,-1\nc,3\n"},
        std::pair{"/t.jsonl",
                  "{\"path\":\"a\",\"label\":3}\n{\"path\":\"a\",\"label\":-1}\n"
                  "{\"path\":\"a\",\"label\":3}\n"}}) {
    const Table table = read(spec_with_label(file), text);
    EXPECT_THAT(table.classes, IsEmpty());
    EXPECT_THAT(column_of<std::int64_t>(table.columns, "label"), ElementsAre(3, -1, 3));
  }
}

TEST(TableLabels, OfJsonTextsAreNamesEvenIfTheyAreDigits) {
  const Table table = read(spec_with_label("/t.jsonl"),
                           "{\"path\":\"a\",\"label\":\"3\"}\n{\"path\":\"a\",\"label\":\"12\"}\n");
  EXPECT_THAT(table.classes, ElementsAre("12", "3"));
}

TEST(TableLabels, AreLookedUpInGivenClassesByNameOrIndex) {
  const Table table = read(spec_with_label("/t.csv"), "path,label\na,dog\nb,cat\nc,1\n",
                           {.classes = {{"cat", "dog", "eel"}}});
  EXPECT_THAT(table.classes, ElementsAre("cat", "dog", "eel"));
  EXPECT_THAT(column_of<std::int64_t>(table.columns, "label"), ElementsAre(1, 0, 1));
  // A class whose name is a number is not mixed up with an index.
  EXPECT_THAT(
      column_of<std::int64_t>(
          read(spec_with_label("/t.csv"), "path,label\na,1\n", {.classes = {{"2", "1"}}}).columns,
          "label"),
      ElementsAre(1));
}

TEST(TableUris, AreRelativeToTheRootAlsoWhereTheTableHasWholePaths) {
  TableSpec spec = table_spec("/data/lists/t.csv");
  EXPECT_EQ(table_root(spec), "/data/lists");
  EXPECT_THAT(texts(read(spec, "path\nx/a.jpg\n/data/lists/b.jpg\n")),
              ElementsAre("x/a.jpg", "b.jpg"));
  spec.root = "/";
  EXPECT_THAT(texts(read(spec, "path\n//data/b..jpg\n")), ElementsAre("data/b..jpg"));
}

TEST(TableUris, MayBeOptionalBesideOthersOfTheColumn) {
  TableSpec spec = table_spec("/t.jsonl");
  spec.uris = {{.field = "a", .column = "p", .optional = true}, {.field = "b", .column = "q"}};
  const Result<Table> table =
      read_table(spec, read_of("{\"q\": \"1\"}\n{\"p\": null, \"q\": \"2\"}\n"
                               "{\"p\": \"3\", \"q\": \"4\"}\n"));
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_THAT(column_of<std::string>(table->columns, "a"), ElementsAre("", "", "3"));
  EXPECT_THAT(column_of<bool>(table->columns, "a_present"), ElementsAre(false, false, true));
  EXPECT_THAT(column_of<std::string>(table->columns, "b"), ElementsAre("1", "2", "4"));
  // A column that another field needs is in each row.
  spec.uris[1].column = "p";
  EXPECT_THAT(table_error(spec, "{\"p\": null}\n"), HasSubstr("'p' is null; each row needs"));
}

TableSpec with_json(const std::string& file, bool optional = false) {
  return spec_with_values(file, {{.field = "n",
                                  .column = "n",
                                  .type = ValueType::kText,
                                  .is_json = true,
                                  .optional = optional}});
}

TEST(TableJson, IsTheTextThatStandsInTheRow) {
  std::string lines;
  const std::vector<std::string> values = {
      R"([{"from": "human", "value": "<image>\n\"Hm\" }]"}, {"n": [1.50, null, true]}])",
      "{}",
      "[]",
      R"({ "a" : { "n" : [ [ ] , { } ] } })",
      "1.50",
      "-0",
      "true",
      "null",
      R"("a \u00e9 \" }")",
      R"("plain")",
      "12345678901234567890"};
  std::vector<std::string> wanted;
  for (const std::string& value : values) {
    lines += R"({"path": "a", "n" : )" + value + "}\n";
    lines += R"({"x": {"n": 2}, "n":)" + value + " , \"path\":\"b\"}\r\n";
    wanted.insert(wanted.end(), {value, value});
  }
  const Table table = read(with_json("/t.jsonl"), lines);
  EXPECT_EQ(texts(table, "n"), wanted);
}

TEST(TableJson, IsAbsentWhereARowHasNullOrNothing) {
  const Table table = read(with_json("/t.jsonl", /*optional=*/true),
                           "{\"path\": \"a\", \"n\": null}\n{\"path\": \"a\"}\n"
                           "{\"path\": \"a\", \"n\": [null]}\n");
  EXPECT_THAT(texts(table, "n"), ElementsAre("", "", "[null]"));
  EXPECT_THAT(column_of<bool>(table.columns, "n_present"), ElementsAre(false, false, true));
}

TEST(TableJson, IsReadOutOfCells) {
  const Table table = read(with_json("/t.csv"), "path,n\na,\"{\"\"k\"\": [1, 2]}\"\nb, 7\n");
  EXPECT_THAT(texts(table, "n"), ElementsAre("{\"k\": [1, 2]}", " 7"));
  EXPECT_THAT(table_error(with_json("/t.csv"), "path,n\na,{k: 1}\n"),
              HasSubstr("/t.csv:2:3: 'n': holds '{k: 1}' where JSON is wanted: "));
}

TEST(TableJson, MustBeJson) {
  EXPECT_THAT(table_error(with_json("/t.jsonl"), "{\"path\": \"a\", \"n\": {k: 1}}\n"),
              HasSubstr("/t.jsonl:1:2"));
  std::string deep = "{\"path\": \"a\", \"n\": ";
  deep += std::string(100, '[') + std::string(100, ']') + "}\n";
  EXPECT_THAT(table_error(with_json("/t.jsonl"), deep), HasSubstr("/t.jsonl:1:"));
}

TEST(TableText, IsAnIntegersDigitsWhereItIsDeclared) {
  TableSpec spec = table_spec("/t.jsonl");
  spec.values = {{.field = "n", .column = "n", .type = ValueType::kText}};
  const Table table =
      read(spec, "{\"path\": \"a\", \"n\": -7}\n{\"path\": \"a\", \"n\": \"x7\"}\n");
  EXPECT_THAT(texts(table, "n"), ElementsAre("-7", "x7"));
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\", \"n\": 0.5}\n"),
              HasSubstr("'n': holds float64 where text is wanted; as its text, {column: NAME, "
                        "type: json} takes whatever a row has"));
}

TEST(TableJson, IsOneTypeForAllFieldsOfAColumn) {
  TableSpec spec = with_json("/t.jsonl");
  spec.values.push_back({.field = "m", .column = "n"});
  EXPECT_THAT(table_error(spec, "{\"path\": \"a\", \"n\": 1}\n"),
              HasSubstr("two fields of the table are the column 'n', and one of them alone has the "
                        "type json"));
}

TEST(TableUris, MayBeSeveral) {
  TableSpec spec = table_spec();
  spec.uris.push_back({.field = "mask", .column = "seg"});
  const Table table = read(spec, "seg,path\nm.png,a.jpg\n");
  EXPECT_EQ(table.columns.info(0).name, "image");
  EXPECT_THAT(texts(table, "mask"), ElementsAre("m.png"));
}

TEST(TableFile, IsReadFromADescriptorWithinItsBounds) {
  const TempDir dir;
  dir.file("t.csv", "path\na\nb\n");
  const std::string path = dir.path("t.csv");
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Result<Table> table = read_table(table_spec(path), read_descriptor(fd.get(), path, 9));
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_THAT(texts(*table), ElementsAre("a", "b"));

  const UniqueFd again(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Result<Table> large = read_table(table_spec(path), read_descriptor(again.get(), path, 8));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(large.error().message(), HasSubstr("t.csv has more than 8 bytes"));

  const Result<Table> broken = read_table(table_spec(path), read_descriptor(-1, path, 8));
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message(), HasSubstr("cannot read " + path));

  std::stop_source stop;
  stop.request_stop();
  const Result<Table> stopped =
      read_table(table_spec(path), read_descriptor(fd.get(), path, 8, stop.get_token()));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace spdld::source
