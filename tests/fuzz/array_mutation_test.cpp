// SPDX-License-Identifier: Apache-2.0
// Damages good .npy and .npz files and JSON documents in every way that files get damaged, and sees
// that decode_npy and decode_json either give rows of what was declared, or fail with an error of
// the data's that is one short line. Deterministic: mutant n is the same everywhere.
// SPDLD_MUTATIONS says how many of each kind (5,000).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text/printable.h"
#include "base/text/utf8.h"
#include "media/record/decode_json.h"
#include "media/record/decode_npy.h"
#include "op/op.h"
#include "tests/unit/media/record/npy_maker.h"
#include "tests/unit/op/fake_sample.h"

namespace spdld::media {
namespace {

using testing::FakeOutput;
using testing::FakeSample;
using Packing = ZipMaker::Packing;
using Texts = std::vector<std::string>;

constexpr std::uint64_t kMaxRowBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kRoom = std::uint64_t{16} << 20;

int mutations() {
  const char* wanted = std::getenv("SPDLD_MUTATIONS");
  return wanted == nullptr ? 5000 : std::atoi(wanted);
}

std::size_t place(const std::string& bytes, KeyedRng& rng) { return rng.below(bytes.size() + 1); }

void flip_bits(std::string& bytes, KeyedRng& rng) {
  if (bytes.empty()) return;
  for (std::uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i) {
    char& at = bytes[rng.below(bytes.size())];
    at = static_cast<char>(static_cast<unsigned char>(at) ^ (1U << rng.below(8)));
  }
}

// A byte, or all of a number, becomes a telling one.
void scramble(std::string& bytes, KeyedRng& rng) {
  constexpr std::array<unsigned char, 8> kTelling = {0x00, 0x01, 0x06, 0x08,
                                                     0x7F, 0x80, 0xFE, 0xFF};
  if (bytes.empty()) return;
  for (std::uint64_t i = 0, count = 1 + rng.below(3); i < count; ++i) {
    const std::size_t from = rng.below(bytes.size());
    const std::size_t size = std::min<std::size_t>(1 + rng.below(8), bytes.size() - from);
    const auto value = static_cast<char>(kTelling[rng.below(kTelling.size())]);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), size, value);
  }
}

// What means something in a header, a directory or JSON.
void insert_sign(std::string& bytes, KeyedRng& rng) {
  static const Texts kSigns = {"'",
                               "\"",
                               "(",
                               ")",
                               ",",
                               "{",
                               "}",
                               "[",
                               "]",
                               ":",
                               "True",
                               "-1",
                               "999999",
                               "<f8",
                               ">f4",
                               "|O",
                               "\n",
                               " ",
                               "null",
                               "1e999",
                               "\\ud800",
                               "0.5",
                               "99999999999999999999",
                               "\xFF",
                               "/",
                               "~1",
                               "PK\1\2",
                               "PK\3\4",
                               "PK\5\6",
                               "PK\6\6",
                               "PK\6\7",
                               std::string(8, '\0')};
  for (std::uint64_t i = 0, count = 1 + rng.below(3); i < count; ++i)
    bytes.insert(place(bytes, rng), kSigns[rng.below(kSigns.size())]);
}

void insert_many(std::string& bytes, KeyedRng& rng) {
  static const Texts kSigns = {"[", "{\"a\":", "0,", "(", " ", "\"", "1"};
  const std::string& sign = kSigns[rng.below(kSigns.size())];
  std::string all;
  for (std::uint64_t i = 0, count = rng.below(3000); i < count; ++i) all += sign;
  bytes.insert(place(bytes, rng), all);
}

void cut_off(std::string& bytes, KeyedRng& rng) { bytes.resize(place(bytes, rng)); }

void cut_out(std::string& bytes, KeyedRng& rng) {
  bytes.erase(place(bytes, rng), 1 + rng.below(60));
}

void repeat_part(std::string& bytes, KeyedRng& rng) {
  const std::string part = bytes.substr(place(bytes, rng), rng.below(200));
  bytes.insert(place(bytes, rng), part);
}

std::string mutant_of(const Texts& good, KeyedRng& rng) {
  std::string bytes = good[rng.below(good.size())];
  using Mutation = void (*)(std::string&, KeyedRng&);
  constexpr std::array<Mutation, 7> kMutations = {flip_bits, scramble, insert_sign, insert_many,
                                                  cut_off,   cut_out,  repeat_part};
  for (std::uint64_t i = 0, count = 1 + rng.below(2); i < count; ++i)
    kMutations[rng.below(kMutations.size())](bytes, rng);
  return bytes;
}

// One op as it is planned for the field "part", and run.
class Decoding {
 public:
  Decoding(const OpInfo& info, std::map<std::string, ParamValue> params)
      : table_(fields(), nullptr) {
    params["field"] = std::string("part");
    op_ = *info.make(Params(std::move(params)));
    std::string doubt;
    EXPECT_TRUE(op_->plan(table_, {.name = info.name, .text = ""}, doubt).ok());
    task_ = *table_.find("part")->chain->finish("part");
    worker_ = task_->make_worker();
  }

  // What came of it, without numbers: mutants are counted by it.
  std::string outcome(const std::string& bytes) {
    sample_.bytes = bytes;
    FakeOutput output(*task_, kMaxRowBytes);
    const auto done = worker_->run(sample_, output.outputs(), kRoom);
    if (!done) return told(done.error());
    if (*done > 0) {
      EXPECT_GT(*done, kRoom);
      return "OK asks for memory";
    }
    for (std::size_t i = 0; i < task_->tensors().size(); ++i) check(output, i);
    return "OK";
  }

 private:
  static std::vector<Field> fields() {
    std::vector<Field> fields(1);
    fields[0].name = "part";
    return fields;
  }

  void check(const FakeOutput& output, std::size_t tensor) const {
    EXPECT_LE(output.bytes(tensor).size(), kMaxRowBytes);
    if (task_->tensors()[tensor].kind != FieldKind::kRagged) return;
    std::uint64_t bytes = wire::dtype_bytes(task_->tensors()[tensor].dtype);
    for (const std::int64_t extent : output.shape(tensor))
      bytes *= static_cast<std::uint64_t>(extent);
    EXPECT_EQ(bytes, output.bytes(tensor).size());
  }

  static std::string told(const Status& status) {
    const std::string& message = status.message();
    EXPECT_TRUE(status.code() == Code::kDataLoss || status.code() == Code::kResourceExhausted)
        << message;
    EXPECT_EQ(printable(message), message);
    EXPECT_LT(message.size(), 1000U);
    std::string words;
    for (const char c : message.substr(0, 70)) words += c >= '0' && c <= '9' ? '0' : c;
    return words;
  }

  FieldTable table_;
  std::unique_ptr<Op> op_;
  std::unique_ptr<FieldTask> task_;
  std::unique_ptr<FieldWorker> worker_;
  FakeSample sample_;
};

long peak_rss_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void expect_survived(const Texts& good, std::uint64_t seed, Decoding& decoding) {
  for (const std::string& bytes : good) EXPECT_EQ(decoding.outcome(bytes), "OK");
  const long before = peak_rss_kib();
  std::map<std::string, int> outcomes;
  for (int i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
    const std::string bytes = mutant_of(good, rng);
    const std::string outcome = decoding.outcome(bytes);
    // What a worker keeps changes nothing.
    EXPECT_EQ(decoding.outcome(bytes), outcome) << "mutant " << i;
    ++outcomes[outcome];
  }
  for (const auto& [outcome, count] : outcomes)
    std::cout << "  " << count << " " << outcome << '\n';
  // A run in which nothing failed, or everything, has tested nothing.
  EXPECT_GT(outcomes["OK"], 0);
  EXPECT_GT(outcomes.size(), 5U);
  // What ASan has quarantined counts, too.
  EXPECT_LT(peak_rss_kib() - before, 400 << 10);
}

Texts good_npy() {
  const std::string data = values<float>({1, 2, 3, 4, 5, 6});
  return {npy("<f4", "(2, 3)", data), npy(">f4", "(2, 3)", data, true, 2),
          npy("<f4", "(2, 0)", "", false, 3)};
}

TEST(ArrayMutation, OfNpyNeverBreaksTheDecoder) {
  Decoding ragged(decode_npy_op(), {{"dtype", std::string("float32")},
                                    {"shape", std::vector<std::int64_t>{-1, -1}}});
  expect_survived(good_npy(), 0x6e7079, ragged);
  Texts dense = good_npy();
  dense.pop_back();
  Decoding fixed(decode_npy_op(),
                 {{"dtype", std::string("float32")}, {"shape", std::vector<std::int64_t>{2, 3}}});
  expect_survived(dense, 0x6e7080, fixed);
}

TEST(ArrayMutation, OfNpzNeverBreaksTheDecoder) {
  Texts good;
  const std::string many =
      npy("<f4", "(100, 300)", values<float>(std::vector<float>(30'000, 0.5F)));
  for (const bool zip64 : {false, true}) {
    for (const Packing packing : {Packing::kStored, Packing::kDeflated}) {
      for (const std::string& file : good_npy())
        good.push_back(ZipMaker(zip64).add("b.npy", "x").add("a.npy", file, packing).archive());
    }
    good.push_back(ZipMaker(zip64).add("a.npy", many, Packing::kDeflated).archive("comment"));
  }
  Decoding decoding(decode_npy_op(), {{"dtype", std::string("float32")},
                                      {"array", std::string("a")},
                                      {"shape", std::vector<std::int64_t>{-1, -1}}});
  expect_survived(good, 0x6e707a, decoding);
}

TEST(ArrayMutation, OfJsonNeverBreaksTheDecoder) {
  const auto typed = [](const std::string& pointer, const std::string& type) {
    return std::map<std::string, std::string>{{"pointer", pointer}, {"type", type}};
  };
  const FieldMap fields = {{"caption", typed("/caption", "text")},
                           {"width", typed("/size/0", "int64")},
                           {"score", typed("/a~1b/score", "float64")},
                           {"good", typed("/good", "bool")},
                           {"boxes", typed("/objects/boxes", "float64_list")},
                           {"first", typed("/objects/boxes/0", "float64_list")},
                           {"ids", typed("/objects/ids", "int64_list")}};
  Decoding decoding(decode_json_op(),
                    {{"values", fields}, {"max_bytes", std::int64_t{1} << 24}, {"keep", true}});
  const Texts good = {
      R"({"caption": "\u00e4 \n", "size": [640, 480], "a/b": {"score": 1}, "good": true,
          "objects": {"boxes": [[1, 2, 3, 4], [5.5, 6, 7, 8]], "ids": [1, -2]},
          "more": [{"x": [[], {}, null, 1e3, "]}"]}]})",
      "{\"more\":\"\xE4\xB8\xAD\",\"good\":false,\"a/b\":{\"score\":-0.5e-3},\"size\":[1],"
      "\"objects\":{\"ids\":[],\"boxes\":[[]]},\"caption\":\"\",\"caption\":\"again\"}"};
  expect_survived(good, 0x6a736e, decoding);
}

}  // namespace
}  // namespace spdld::media
