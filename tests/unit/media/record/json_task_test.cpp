// SPDX-License-Identifier: Apache-2.0
#include "media/record/json_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "media/record/decode_json.h"
#include "op/op.h"
#include "tests/unit/op/fake_sample.h"

namespace spdld::media {
namespace {

using ::testing::ElementsAre;
using testing::FakeOutput;
using testing::FakeSample;
using ::testing::HasSubstr;

using Keys = std::map<std::string, std::string>;

constexpr std::uint64_t kJsonRoom = std::uint64_t{16} << 20;

Keys typed(const std::string& pointer, const std::string& type) {
  return {{"pointer", pointer}, {"type", type}};
}

Result<std::unique_ptr<Op>> make(FieldMap values, bool keep = false,
                                 std::int64_t max_bytes = 1 << 20) {
  return decode_json_op().make(Params({{"field", std::string("meta")},
                                       {"values", std::move(values)},
                                       {"max_bytes", max_bytes},
                                       {"keep", keep}}));
}

std::vector<Field> fields() {
  std::vector<Field> fields(3);
  fields[0].name = "image";
  fields[1].name = "meta";
  fields[1].index = 1;
  fields[2].name = "label";
  fields[2].kind = Field::Kind::kValue;
  fields[2].index = 4;
  return fields;
}

// decode_json as it is planned on a table, and run.
struct JsonDecoding {
  explicit JsonDecoding(FieldMap values, bool keep = false, std::int64_t max_bytes = 1 << 20)
      : table(fields(), nullptr), op(*make(std::move(values), keep, max_bytes)) {
    std::string doubt;
    const Status planned = op->plan(table, {.name = "decode_json", .text = ""}, doubt);
    EXPECT_TRUE(planned.ok()) << planned.message();
    task = *table.find("meta")->chain->finish("meta");
    worker = task->make_worker();
  }

  Status run(const std::string& document) {
    sample.bytes = document;
    output = std::make_unique<FakeOutput>(*task);
    const Result<std::uint64_t> done = worker->run(sample, output->outputs(), kJsonRoom);
    if (!done) return done.error();
    EXPECT_EQ(*done, 0U);
    return {};
  }
  const Value& value(const std::string& field) {
    return sample.values.at(table.find(field)->index);
  }
  std::string refusal(const std::string& document) {
    const Status status = run(document);
    EXPECT_FALSE(status.ok());
    return status.message();
  }

  FieldTable table;
  std::unique_ptr<Op> op;
  std::unique_ptr<FieldTask> task;
  std::unique_ptr<FieldWorker> worker;
  FakeSample sample;
  std::unique_ptr<FakeOutput> output;
};

TEST(DecodeJson, MakesTypedFieldsOfADocument) {
  JsonDecoding json({{"caption", typed("/caption", "text")},
                     {"width", typed("/size/0", "int64")},
                     {"score", typed("/score", "float64")},
                     {"good", typed("/good", "bool")},
                     {"ids", typed("/ids", "int64_list")},
                     {"boxes", typed("/boxes", "float64_list")}});
  ASSERT_TRUE(json.run(R"({"caption": "\u00e4", "size": [640, 480], "score": 3, "good": true,
                           "ids": [7, 8], "boxes": [[1, 2, 3, 4], [5.5, 6, 7, 8]]})")
                  .ok());
  EXPECT_EQ(std::get<std::string_view>(json.value("caption")), "ä");
  EXPECT_EQ(std::get<std::int64_t>(json.value("width")), 640);
  EXPECT_EQ(std::get<double>(json.value("score")), 3.0);
  EXPECT_TRUE(std::get<bool>(json.value("good")));
  EXPECT_THAT(std::get<std::span<const std::int64_t>>(json.value("ids")), ElementsAre(7, 8));
  EXPECT_THAT(std::get<std::span<const double>>(json.value("boxes")),
              ElementsAre(1, 2, 3, 4, 5.5, 6, 7, 8));
}

TEST(DecodeJson, PutsItsFieldsBehindTheDocumentAndNumbersThemBehindOthers) {
  JsonDecoding json({{"a", typed("/a", "int64")}, {"b", typed("/b", "int64")}});
  EXPECT_EQ(json.table.names(), "'image', 'meta', 'a', 'b', 'label'");
  EXPECT_EQ(json.table.first_made_value(), 5U);
  EXPECT_EQ(json.table.made_values().size(), 2U);
  EXPECT_EQ(json.table.find("a")->index, 5U);
  EXPECT_TRUE(json.task->tensors().empty());
}

TEST(DecodeJson, KeepsTheDocumentIfAskedTo) {
  JsonDecoding json({{"a", typed("/a", "int64")}}, true);
  ASSERT_EQ(json.task->tensors().size(), 1U);
  EXPECT_EQ(json.task->tensors()[0].name, "meta");
  EXPECT_TRUE(json.task->tensors()[0].text);
  ASSERT_TRUE(json.run("{\"a\": 1}").ok());
  const auto bytes = json.output->bytes(0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "{\"a\": 1}");
}

TEST(DecodeJson, NamesWhatIsMissingAndGoesOn) {
  JsonDecoding json({{"width", typed("/size/w", "int64")}});
  EXPECT_EQ(json.refusal("{\"size\": {\"h\": 2}}"),
            "its field 'meta' has nothing at '/size/w' for the field 'width'");
  EXPECT_THAT(json.refusal("{\"size\": {\"w\": null}}"), HasSubstr("has nothing at '/size/w'"));
  EXPECT_TRUE(json.run("{\"size\": {\"w\": 2}}").ok());
}

TEST(DecodeJson, NamesTheTypeThatIsAnother) {
  JsonDecoding json({{"width", typed("/width", "int64")}});
  EXPECT_EQ(json.refusal("{\"a\": 1,\n \"width\": \"640\"}"),
            "its field 'meta' at '/width' (line 2, column 15) is text, and the field 'width' is "
            "declared int64");
  EXPECT_THAT(json.refusal("{\"width\": 640.5}"), HasSubstr("is float64"));
  EXPECT_THAT(json.refusal("{\"width\": [640]}"), HasSubstr("is list of int64"));
  EXPECT_THAT(json.refusal("{\"width\": {}}"), HasSubstr("at '/width' is an object"));
  EXPECT_THAT(json.refusal("{\"width\": 99999999999999999999}"), HasSubstr("no int64"));
}

TEST(DecodeJson, NamesWhereADocumentIsNoJson) {
  JsonDecoding json({{"a", typed("/a", "int64")}});
  EXPECT_THAT(json.refusal("{\"a\": 1"), HasSubstr("its field 'meta' cannot be read"));
  EXPECT_THAT(json.refusal(""), HasSubstr("cannot be read"));
  EXPECT_THAT(json.refusal("{\"a\": 1, \"b\": \"\n\xff\"}"),
              HasSubstr("is no text at line 2, column 1: the byte \\xff belongs to no character"));
  EXPECT_THAT(json.refusal(std::string("{\"a\": 1}\0", 9)), HasSubstr("NUL"));
  std::string deep = "{\"a\": ";
  for (int i = 0; i < 70; ++i) deep += "[";
  EXPECT_THAT(json.refusal(deep), HasSubstr("in it"));
  deep = "{\"b\": ";
  for (int i = 0; i < 70; ++i) deep += "[";
  EXPECT_THAT(json.refusal(deep), HasSubstr("nested deeper than 64"));
}

TEST(DecodeJson, RefusesADocumentBeyondItsBound) {
  JsonDecoding json({{"a", typed("/a", "int64")}}, false, 10);
  const Status status = json.run("{\"a\":     1}");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("has 12 bytes, and decode_json.max_bytes is 10"));
}

TEST(DecodeJson, AsksForMemoryBeforeItReadsALargeDocument) {
  JsonDecoding json({{"a", typed("/a", "int64_list")}}, false, 1 << 24);
  json.sample.bytes = "{\"a\": [1]}" + std::string(2'000'000, ' ');
  FakeOutput output(*json.task);
  const auto asked = json.worker->run(json.sample, output.outputs(), kJsonRoom);
  ASSERT_TRUE(asked);
  EXPECT_EQ(*asked, json.sample.bytes.size() * 16);
  EXPECT_TRUE(json.sample.values.empty());
  EXPECT_EQ(*json.worker->run(json.sample, output.outputs(), *asked), 0U);
}

TEST(DecodeJson, RefusesFieldsThatAreThere) {
  FieldTable table(fields(), nullptr);
  std::string doubt;
  const auto op = make({{"label", typed("/a", "int64")}});
  const Status status = (*op)->plan(table, {.name = "decode_json", .text = ""}, doubt);
  EXPECT_THAT(status.message(), HasSubstr("there is a field 'label' already"));
}

TEST(DecodeJson, RefusesWhatIsNoPointer) {
  EXPECT_THAT(make({{"a", typed("a", "int64")}}).error().message(),
              HasSubstr("values.a: 'a' is no JSON pointer"));
  EXPECT_THAT(make({}).error().message(), HasSubstr("must name 1 to 64 fields"));
}

TEST(DecodeJson, IsDoneOncePerField) {
  JsonDecoding json({{"a", typed("/a", "int64")}});
  std::string doubt;
  const auto again = make({{"b", typed("/b", "int64")}});
  EXPECT_THAT((*again)->plan(json.table, {.name = "decode_json", .text = ""}, doubt).message(),
              HasSubstr("'meta' is decoded already"));
}

}  // namespace
}  // namespace spdld::media
