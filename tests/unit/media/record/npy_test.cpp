// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "media/record/decode_npy.h"
#include "media/record/npy_header.h"
#include "media/record/npy_task.h"
#include "op/op.h"
#include "tests/unit/media/record/npy_maker.h"
#include "tests/unit/op/fake_sample.h"

namespace spdld::media {
namespace {

using ::testing::ElementsAre;
using testing::FakeOutput;
using testing::FakeSample;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ints = std::vector<std::int64_t>;
using Packing = ZipMaker::Packing;

constexpr std::uint64_t kNpyRoom = std::uint64_t{16} << 20;

Result<NpyHeader> header_of(const std::string& file) {
  return read_npy_header(std::as_bytes(std::span(file)));
}

std::string refusal_of(const std::string& header) {
  const Result<NpyHeader> read = header_of(npy_of(header, ""));
  EXPECT_FALSE(read) << header;
  return read ? "" : read.error().message();
}

TEST(NpyHeader, IsReadInEveryFormat) {
  for (const int version : {1, 2, 3}) {
    const auto header = header_of(npy("<f4", "(3, 4)", std::string(48, 'x'), false, version));
    ASSERT_TRUE(header) << header.error().message();
    EXPECT_EQ(header->dtype, DType::kFloat32);
    EXPECT_THAT(header->shape, ElementsAre(3, 4));
    EXPECT_EQ(header->data_bytes, 48U);
    EXPECT_EQ(header->data_offset % 64, 0U);
    EXPECT_FALSE(header->big_endian || header->fortran_order);
  }
}

TEST(NpyHeader, KnowsEveryDtypeThatTensorsHave) {
  const auto dtype = [](const std::string& descr) {
    const auto header = header_of(npy(descr, "()", ""));
    return header ? header->dtype : DType::kBFloat16;
  };
  EXPECT_EQ(dtype("|b1"), DType::kBool);
  EXPECT_EQ(dtype("|u1"), DType::kUInt8);
  EXPECT_EQ(dtype("|i1"), DType::kInt8);
  EXPECT_EQ(dtype(">i2"), DType::kInt16);
  EXPECT_EQ(dtype("<i4"), DType::kInt32);
  EXPECT_EQ(dtype("=i8"), DType::kInt64);
  EXPECT_EQ(dtype("<f2"), DType::kFloat16);
  EXPECT_EQ(dtype("f8"), DType::kFloat64);
  EXPECT_TRUE(header_of(npy(">f8", "()", ""))->big_endian);
}

TEST(NpyHeader, TakesKeysInAnyOrderAndAsPython2WroteThem) {
  const auto header =
      header_of(npy_of(R"({ "shape":(5L,),"fortran_order" :True,'descr':'<i8'})", ""));
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_THAT(header->shape, ElementsAre(5));
  EXPECT_TRUE(header->fortran_order);
}

TEST(NpyHeader, RefusesValuesThatNoTensorHasByTheirName) {
  const std::string rest = ", 'fortran_order': False, 'shape': (1,), }";
  EXPECT_THAT(refusal_of("{'descr': '|O'" + rest),
              HasSubstr("dtype '|O', object, which are pickled"));
  for (const char* descr : {"<c8", "<U3", "|S4", "<M8[ns]", "<u4", "<f16", "|V2", "", "i3", "f1"})
    EXPECT_THAT(refusal_of("{'descr': '" + std::string(descr) + "'" + rest),
                HasSubstr("dtype '" + std::string(descr) + "', which no tensor has"));
  EXPECT_THAT(refusal_of("{'descr': [('a', '<f4')]" + rest), HasSubstr("records of several"));
}

TEST(NpyHeader, RefusesWhatIsNoHeader) {
  EXPECT_THAT(refusal_of("no"), HasSubstr("no dictionary"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': False}"), HasSubstr("lacks"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}"),
              HasSubstr("neither True nor False"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
              HasSubstr("no extent"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2"),
              HasSubstr("shape does not end"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': 3}"),
              HasSubstr("no tuple"));
  EXPECT_THAT(refusal_of("{'shape': (1,1,1,1,1,1,1,1,1)}"), HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(refusal_of("{'extra': 1}"), HasSubstr("holds 'extra'"));
  EXPECT_THAT(refusal_of("{'shape': ()} x"), HasSubstr("something follows"));
  EXPECT_THAT(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99999999)}"),
              HasSubstr("more than any memory holds"));
}

TEST(NpyHeader, RefusesAFileThatEndsInIt) {
  const std::string whole = npy("<f4", "(2,)", "");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(header_of(whole.substr(0, size))) << size;
  EXPECT_THAT(header_of("\x93NUMPY\x04" + std::string(20, '\0')).error().message(),
              HasSubstr("its format is 4.0"));
  EXPECT_THAT(
      header_of("\x93NUMPY\x02" + std::string(1, '\0') + "\xff\xff\xff\x7f").error().message(),
      HasSubstr("its header takes 2147483647 bytes"));
}

// decode_npy as it is planned and run.
struct NpyDecoding {
  explicit NpyDecoding(const std::string& dtype, Ints shape = {-1}, const std::string& array = "") {
    std::map<std::string, ParamValue> params{
        {"field", std::string("emb")}, {"dtype", dtype}, {"shape", std::move(shape)}};
    if (!array.empty()) params["array"] = array;
    op = *decode_npy_op().make(Params(std::move(params)));
    std::string doubt;
    const Status planned = op->plan(table, {.name = "decode_npy", .text = ""}, doubt);
    EXPECT_TRUE(planned.ok()) << planned.message();
    task = *table.find("emb")->chain->finish("emb");
    worker = task->make_worker();
  }

  static std::vector<Field> fields() {
    std::vector<Field> fields(1);
    fields[0].name = "emb";
    fields[0].max_bytes = 500;
    return fields;
  }

  Status run(const std::string& file, std::uint64_t max_bytes = 1 << 20) {
    sample.bytes = file;
    output = std::make_unique<FakeOutput>(*task, max_bytes);
    const Result<std::uint64_t> done = worker->run(sample, output->outputs(), kNpyRoom);
    if (!done) return done.error();
    EXPECT_EQ(*done, 0U);
    return {};
  }
  template <typename T>
  std::vector<T> row() const {
    const auto bytes = output->bytes(0);
    std::vector<T> all(bytes.size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  std::string refusal(const std::string& file) {
    const Status status = run(file);
    EXPECT_FALSE(status.ok());
    return status.message();
  }

  FieldTable table{fields(), nullptr};
  std::unique_ptr<Op> op;
  std::unique_ptr<FieldTask> task;
  std::unique_ptr<FieldWorker> worker;
  FakeSample sample;
  std::unique_ptr<FakeOutput> output;
};

TEST(DecodeNpy, DeclaresRowsOfOneShapeOrOfMany) {
  const NpyDecoding dense("float32", {3, 4});
  EXPECT_EQ(dense.task->tensors()[0].kind, FieldKind::kDense);
  EXPECT_THAT(dense.task->tensors()[0].shape, ElementsAre(3, 4));
  const NpyDecoding ragged("int64", {-1, 4});
  EXPECT_EQ(ragged.task->tensors()[0].kind, FieldKind::kRagged);
  EXPECT_EQ(ragged.task->tensors()[0].max_row_bytes, 500U);
  EXPECT_EQ(NpyDecoding("int64", {-1, 4}, "a").task->tensors()[0].max_row_bytes, 0U);
}

TEST(DecodeNpy, TakesValuesAsTheyAre) {
  NpyDecoding array("float32");
  ASSERT_TRUE(array.run(npy("<f4", "(3,)", values<float>({1, 2.5, -3}))).ok());
  EXPECT_THAT(array.row<float>(), ElementsAre(1, 2.5, -3));
  EXPECT_THAT(array.output->shape(0), ElementsAre(3));
  ASSERT_TRUE(array.run(npy("<f4", "(0,)", "")).ok());
  EXPECT_THAT(array.row<float>(), IsEmpty());
}

TEST(DecodeNpy, TakesAScalar) {
  NpyDecoding array("int64", {});
  ASSERT_TRUE(array.run(npy("<i8", "()", values<std::int64_t>({-7}))).ok());
  EXPECT_THAT(array.row<std::int64_t>(), ElementsAre(-7));
}

TEST(DecodeNpy, ConvertsBigEndianValues) {
  NpyDecoding array("int32");
  ASSERT_TRUE(array.run(npy(">i4", "(2,)", std::string("\0\0\1\2\xff\xff\xff\xfe", 8))).ok());
  EXPECT_THAT(array.row<std::int32_t>(), ElementsAre(258, -2));
}

TEST(DecodeNpy, ConvertsFortranOrder) {
  NpyDecoding array("int16", {2, 3, 2});
  std::vector<std::int16_t> in_c;
  std::vector<std::int16_t> in_fortran(12);
  for (std::int16_t i = 0; i < 12; ++i) in_c.push_back(i);
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (int c = 0; c < 2; ++c)
        in_fortran[static_cast<std::size_t>(a + 2 * b + 6 * c)] =
            in_c[static_cast<std::size_t>((a * 3 + b) * 2 + c)];
    }
  }
  ASSERT_TRUE(array.run(npy("<i2", "(2, 3, 2)", values(in_fortran), true)).ok());
  EXPECT_EQ(array.row<std::int16_t>(), in_c);
  NpyDecoding packed("int16", {-1, -1, -1}, "x");
  const std::string file =
      ZipMaker()
          .add("x.npy", npy("<i2", "(2, 3, 2)", values(in_fortran), true), Packing::kDeflated)
          .archive();
  ASSERT_TRUE(packed.run(file).ok());
  EXPECT_EQ(packed.row<std::int16_t>(), in_c);
}

TEST(DecodeNpy, TakesAnyBoolThatIsNotZeroForTrue) {
  NpyDecoding array("bool");
  ASSERT_TRUE(array.run(npy("|b1", "(3,)", std::string("\0\1\2", 3))).ok());
  EXPECT_THAT(array.row<std::uint8_t>(), ElementsAre(0, 1, 1));
}

TEST(DecodeNpy, TakesOneArrayOfAnArchive) {
  std::vector<float> many(60'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 100);
  for (const bool zip64 : {false, true}) {
    for (const Packing packing : {Packing::kStored, Packing::kDeflated}) {
      const std::string file =
          ZipMaker(zip64)
              .add("other.npy", npy("<f4", "(1,)", values<float>({9})), packing)
              .add("emb.npy", npy("<f4", "(60000,)", values(many)), packing)
              .add("none.npy", npy("<f4", "(0,)", ""), packing)
              .archive("a comment");
      NpyDecoding array("float32", {-1}, "emb");
      ASSERT_TRUE(array.run(file).ok()) << array.run(file).message();
      EXPECT_EQ(array.row<float>(), many);
      NpyDecoding none("float32", {-1}, "none");
      ASSERT_TRUE(none.run(file).ok());
      EXPECT_THAT(none.row<float>(), IsEmpty());
    }
  }
}

TEST(DecodeNpy, NamesTheArraysThereAre) {
  ZipMaker zip;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"})
    zip.add(std::string(name) + ".npy", "");
  NpyDecoding array("float32", {-1}, "x");
  EXPECT_THAT(array.refusal(zip.archive()),
              HasSubstr("its field 'emb' has no array 'x'; there are 'a', 'b', 'c', 'd', 'e' and "
                        "2 more"));
  EXPECT_THAT(array.refusal(ZipMaker().archive()), HasSubstr("it is empty"));
}

TEST(DecodeNpy, TellsAnArrayFromAnArchive) {
  NpyDecoding one("float32");
  EXPECT_THAT(one.refusal(ZipMaker().add("a.npy", "").archive()),
              HasSubstr("write 'decode_npy: {array: NAME}'"));
  EXPECT_THAT(one.refusal("\xff\xd8\xff"), HasSubstr("neither an .npy nor an .npz"));
  EXPECT_THAT(one.refusal(""), HasSubstr("neither an .npy nor an .npz"));
  NpyDecoding many("float32", {-1}, "a");
  EXPECT_THAT(many.refusal(npy("<f4", "(0,)", "")), HasSubstr("leave 'array' out"));
}

TEST(DecodeNpy, RefusesAnotherDtypeAndAnotherShape) {
  NpyDecoding array("float32", {2, -1});
  EXPECT_THAT(array.refusal(npy("<f8", "(2, 1)", std::string(16, 'x'))),
              HasSubstr("its field 'emb' has values of dtype float64, and decode_npy.dtype is "
                        "float32"));
  EXPECT_THAT(array.refusal(npy("<f4", "(3, 1)", std::string(12, 'x'))),
              HasSubstr("has the shape [3, 1], and decode_npy.shape is [2, -1]"));
  EXPECT_THAT(array.refusal(npy("<f4", "(2,)", std::string(8, 'x'))), HasSubstr("[2], and"));
}

TEST(DecodeNpy, RefusesAHeaderThatPromisesMoreThanThereIs) {
  NpyDecoding array("float32");
  EXPECT_THAT(
      array.refusal(npy("<f4", "(1000000000,)", "1234")),
      HasSubstr("is cut off: its header promises 4000000000 bytes of values, and 4 follow"));
  NpyDecoding packed("float32", {-1}, "a");
  const std::string member = npy("<f4", "(1000000000,)", "1234");
  EXPECT_THAT(packed.refusal(ZipMaker().add("a.npy", member, Packing::kDeflated).archive()),
              HasSubstr("promises 4000000000 bytes"));
  EXPECT_THAT(packed.refusal(ZipMaker().add("a.npy", npy("<f4", "(1,)", "12345678")).archive()),
              HasSubstr("something follows the array"));
}

TEST(DecodeNpy, RefusesARowBeyondItsBound) {
  NpyDecoding array("float32");
  const Status status = array.run(npy("<f4", "(3,)", std::string(12, 'x')), 8);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("its field 'emb' takes 12 bytes"));
}

TEST(DecodeNpy, RefusesArchivesThatAreCutOffOrChanged) {
  const std::string data = values<float>(std::vector<float>(100, 1.5F));
  for (const Packing packing : {Packing::kStored, Packing::kDeflated}) {
    const std::string whole =
        ZipMaker().add("a.npy", npy("<f4", "(100,)", data), packing).archive();
    NpyDecoding array("float32", {-1}, "a");
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(array.run(whole.substr(0, size)).ok()) << size;
    ASSERT_TRUE(array.run(whole).ok());
    // A byte of the values, or of what they are packed to.
    std::string changed = whole;
    changed[packing == Packing::kStored ? 300 : 80] ^= 1;
    EXPECT_FALSE(array.run(changed).ok());
  }
}

TEST(DecodeNpy, RefusesArchivesInWhichAnArrayCannotBeRead) {
  const std::string whole = ZipMaker().add("a.npy", npy("<f4", "(0,)", "")).archive();
  const std::size_t directory = whole.find("PK\1\2");
  NpyDecoding array("float32", {-1}, "a");
  std::string changed = whole;
  changed[directory + 8] = 1;
  EXPECT_THAT(array.refusal(changed), HasSubstr("holds 'a.npy' encrypted"));
  changed = whole;
  changed[directory + 10] = 14;
  EXPECT_THAT(array.refusal(changed), HasSubstr("packed by method 14"));
  changed = whole;
  changed[directory + 42] = 1;
  EXPECT_THAT(array.refusal(changed), HasSubstr("not where the directory says"));
  changed = whole;
  changed[directory + 23] = 1;
  EXPECT_THAT(array.refusal(changed), HasSubstr("reaches beyond its end"));
}

TEST(DecodeNpy, RefusesShapesThatAreNone) {
  const auto made = decode_npy_op().make(
      Params({{"field", std::string("x")}, {"dtype", std::string("int8")}, {"shape", Ints{2, 0}}}));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("shape is [2, 0]"));
}

}  // namespace
}  // namespace spdld::media
