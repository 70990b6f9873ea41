// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/executor.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/fake_caller.h"
#include "tests/unit/engine/slot_reader.h"
#include "tests/unit/media/audio/wav_maker.h"
#include "tests/unit/media/format/png_maker.h"

// Ops on what a function of the user's has given back.
namespace spdld::engine {
namespace {

using testing::FakeSource;
using ::testing::HasSubstr;

constexpr std::uint64_t kBoxedItems = 40;
constexpr std::uint64_t kBoxedRows = 10;

constexpr const char* kAnySize = "uint8[-1,-1,3]";

// A stage that gives `field` and takes it back.
std::string python_of(const std::string& type, const std::string& field = "image",
                      const std::string& more = "") {
  return "  - python: {call: 'm:f', in: [" + field + "], out: {" + field + ": '" + type + "'}" +
         more + "}\n";
}

// Gives back what it was given.
Status unchanged(CallRow& row) {
  for (std::size_t i = 0; i < row.arguments.size(); ++i) {
    put(row.answers[i], row.arguments[i].bytes.data(), row.arguments[i].bytes.size());
    row.answers[i].shape = row.arguments[i].shape;
  }
  return {};
}

// Images of a palette, which can be masks, too, and of several sizes; each with two boxes.
class BoxedImages final : public FakeSource {
 public:
  BoxedImages() : FakeSource(images()) {}
  Value value(std::uint64_t, std::size_t) const override { return std::span<const double>(kBoxes); }

 private:
  static constexpr std::array<double, 8> kBoxes{2, 1, 20, 18, 6, 4, 30, 26};

  static std::vector<std::string> images() {
    std::vector<std::uint8_t> palette;
    for (unsigned i = 0; i < 48; ++i) palette.push_back(static_cast<std::uint8_t>(i * 37));
    std::vector<std::string> images;
    for (std::uint64_t i = 0; i < kBoxedItems; ++i) {
      const auto png = media::test::make_png({.width = static_cast<int>(36 + i % 7),
                                              .height = static_cast<int>(40 - i % 5),
                                              .color_type = 3,
                                              .bit_depth = 4,
                                              .palette = palette,
                                              .seed = i + 1});
      images.emplace_back(reinterpret_cast<const char*>(png.data()), png.size());
    }
    return images;
  }
};

// The mask is the image's own file.
std::vector<source::SourceField> boxed_fields() {
  return {{.name = "image"},
          {.name = "mask"},
          {.name = "boxes",
           .kind = source::SourceField::Kind::kValue,
           .type = ValueType::kFloat64List}};
}

class BehindCallsTest : public ::testing::TestWithParam<unsigned> {
 protected:
  // All rows of a run.
  struct Made {
    Status status = {};
    std::shared_ptr<const Plan> plan = {};
    std::shared_ptr<SlotReader> reader = {};
    std::shared_ptr<engine::Run> run = {};

    std::string row(std::uint64_t position, const std::string& field) const {
      for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
        if (plan->tensors[i].name != field) continue;
        return plan->tensors[i].kind == FieldKind::kDense ? reader->stacked(position, i)
                                                          : reader->row(position, i);
      }
      ADD_FAILURE() << "no field " << field;
      return {};
    }
  };

  std::shared_ptr<FakeCaller> caller(FakeCaller::Function function) {
    callers_.push_back(std::make_unique<FakeCaller>(GetParam(), std::move(function)));
    return {std::shared_ptr<void>(), callers_.back().get()};
  }

  Made make(const std::string& stages, RowCallers callers = {},
            std::uint64_t row_memory = std::uint64_t{1} << 30) {
    auto plan =
        testing::compile("  - fetch\n" + stages, "batch: {size: 10, max_bytes: 1MiB}\n", fields_);
    EXPECT_TRUE(plan) << plan.error().message();
    if (!plan) return {.status = plan.error()};
    Made made{.plan = *plan,
              .reader = std::make_shared<SlotReader>(*plan, kBoxedItems / kBoxedRows)};
    made.run =
        std::make_shared<engine::Run>(*plan, source_, source::Sampler(kBoxedItems, Shuffle{}, 1), 1,
                                      RunPool{.workers = 2, .row_memory_bytes = row_memory},
                                      RunLimits{}, clock_, nullptr, std::move(callers));
    executor_.open_stream(made.run, made.reader);
    while (made.reader->failed().ok() && made.reader->committed() < kBoxedItems / kBoxedRows)
      std::this_thread::yield();
    made.status = made.reader->failed();
    return made;
  }

  static void expect_same(const Made& is, const Made& wanted) {
    ASSERT_TRUE(is.status.ok()) << is.status.message();
    ASSERT_EQ(is.plan->tensors.size(), wanted.plan->tensors.size());
    for (const TensorSpec& tensor : wanted.plan->tensors) {
      const auto& tensors = is.plan->tensors;
      EXPECT_NE(std::find(tensors.begin(), tensors.end(), tensor), tensors.end()) << tensor.name;
      for (std::uint64_t row = 0; row < kBoxedItems; ++row)
        ASSERT_EQ(is.row(row, tensor.name), wanted.row(row, tensor.name))
            << tensor.name << " of " << row;
    }
  }

  SystemClock clock_;
  std::vector<std::unique_ptr<FakeCaller>> callers_;
  std::vector<source::SourceField> fields_ = boxed_fields();
  std::shared_ptr<FakeSource> source_ = std::make_shared<BoxedImages>();
  Executor executor_{ExecutorOptions{.threads = 2, .decode_memory_bytes = std::uint64_t{32} << 20}};
};

TEST_P(BehindCallsTest, OpsMakeOfPixelsWhatTheyMakeOfDecodedOnes) {
  const std::string ops =
      "  - random_resized_crop: 24\n  - random_horizontal_flip\n"
      "  - normalize: {mean: [0.4, 0.5, 0.6], std: [0.2, 0.2, 0.3]}\n";
  const Made wanted = make("  - decode_image\n" + ops);
  const Made made = make("  - decode_image\n" + python_of(kAnySize) + ops, {caller(unchanged)});
  expect_same(made, wanted);
  EXPECT_EQ(made.run->process_stats().tasks(), kBoxedItems);
  EXPECT_EQ(made.run->process_stats().snapshot().in_flight, 0U);
}

TEST_P(BehindCallsTest, OpsStandBetweenTwoFunctions) {
  const Made wanted = make(
      "  - decode_image\n  - random_crop: 24\n  - resize: [20, 18]\n"
      "  - random_horizontal_flip\n");
  const Made made = make("  - decode_image\n" + python_of(kAnySize) +
                             "  - random_crop: 24\n  - resize: [20, 18]\n" +
                             python_of("uint8[20,18,3]") + "  - random_horizontal_flip\n",
                         {caller(unchanged), caller(unchanged)});
  expect_same(made, wanted);
}

TEST_P(BehindCallsTest, PixelsOfOneSizeAreStacked) {
  const Made wanted =
      make("  - decode_image\n  - resize: [20, 18]\n  - to_dtype: {dtype: float32}\n");
  const Made made = make("  - decode_image\n  - resize: [20, 18]\n" + python_of("uint8[20,18,3]") +
                             "  - to_dtype: {dtype: float32}\n",
                         {caller(unchanged)});
  expect_same(made, wanted);
}

TEST_P(BehindCallsTest, AMaskThatTheFunctionIsNotGivenIsMovedWithItsImage) {
  const std::string decode = "  - decode_image\n  - decode_image: {field: mask, mode: index}\n";
  const std::string ops = "  - random_resized_crop: 24\n  - random_horizontal_flip\n";
  expect_same(make(decode + python_of(kAnySize) + ops, {caller(unchanged)}), make(decode + ops));
}

TEST_P(BehindCallsTest, AMaskThatTheFunctionGivesBackIsOne) {
  const std::string decode = "  - decode_image: {field: mask, mode: index}\n";
  const std::string ops = "  - resize: {size: [23, 19], interpolation: bicubic}\n";
  expect_same(make(decode + python_of("uint8[-1,-1,1]", "mask") + ops, {caller(unchanged)}),
              make(decode + ops));
}

TEST_P(BehindCallsTest, BoxesAreMovedWithTheImage) {
  const std::string boxes = "  - bounding_boxes\n";
  const std::string ops = "  - random_resized_crop: 24\n  - random_horizontal_flip\n";
  const Made wanted = make("  - decode_image\n" + boxes + ops);
  expect_same(make("  - decode_image\n" + boxes + python_of(kAnySize) + ops, {caller(unchanged)}),
              wanted);
  expect_same(make("  - decode_image\n" + python_of(kAnySize) + boxes + ops, {caller(unchanged)}),
              wanted);
  const auto as_boxes = caller([](CallRow& row) -> Status {
    SPDLD_TRY(unchanged(row));
    row.answers[1].shape = {2, 4};
    return {};
  });
  expect_same(make("  - decode_image\n"
                   "  - python: {call: 'm:f', in: [image, boxes], out: {image: 'uint8[-1,-1,3]', "
                   "boxes: 'float64[-1,4]'}}\n" +
                       boxes + ops,
                   {as_boxes}),
              wanted);
}

TEST_P(BehindCallsTest, BytesThatComeBackAreDecodedAsThoseThatAreFetched) {
  const std::string ops =
      "  - decode_image: {field: mask, mode: index}\n"
      "  - random_resized_crop: 24\n  - random_horizontal_flip\n";
  const Made wanted = make("  - decode_image\n" + ops);
  expect_same(make(python_of("bytes") + "  - decode_image\n" + ops, {caller(unchanged)}), wanted);
  expect_same(make(python_of("bytes", "mask") + "  - decode_image\n" + ops, {caller(unchanged)}),
              wanted);
}

TEST_P(BehindCallsTest, BytesThatComeBackAndAreNoImageAreTheFaultOfTheItem) {
  const auto spoils = caller([](CallRow& row) {
    const bool bad = row.item == 3;
    put(row.answers[0], bad ? "no image" : static_cast<const void*>(row.arguments[0].bytes.data()),
        bad ? 8 : row.arguments[0].bytes.size());
    return Status();
  });
  const Made made = make(python_of("bytes") + "  - decode_image\n  - resize: [8, 8]\n", {spoils});
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  EXPECT_EQ(spoils->calls, static_cast<int>(kBoxedItems) + 1) << "another item took its place";
}

// Each of another length, of two channels.
std::vector<std::string> sounds() {
  std::vector<std::string> sounds;
  for (std::uint64_t i = 0; i < kBoxedItems; ++i) {
    media::test::WavRecipe recipe{.channels = 2, .rate = 16000, .frame_bytes = 4};
    recipe.data.clear();
    for (std::uint64_t frame = 0; frame < 2 * (900 + 31 * i); ++frame)
      recipe.data += media::test::little(mix64(i, frame) & 0x3FFF, 2);
    const auto wav = media::test::make_wav(recipe);
    sounds.emplace_back(reinterpret_cast<const char*>(wav.data()), wav.size());
  }
  return sounds;
}

TEST_P(BehindCallsTest, OpsMakeOfSamplesWhatTheyMakeOfDecodedOnes) {
  source_ = std::make_shared<FakeSource>(sounds());
  fields_ = {{.name = "audio"}};
  const std::string decode = "  - decode_audio: {sample_rate: 16000, channels: 2}\n";
  const std::string call =
      "  - python: {call: 'm:f', in: [audio], out: {audio: {type: 'float32[2,-1]', sample_rate: "
      "16000}}}\n";
  for (const char* const ops :
       {"  - gain: {gain_db: [-6, 6]}\n  - resample: {sample_rate: 8000}\n  - pad_or_trim: "
        "{samples: 700}\n",
        "  - pad_or_trim: {samples: 1600}\n  - mel_spectrogram: {n_fft: 400, n_mels: 20}\n"})
    expect_same(make(decode + call + ops, {caller(unchanged)}), make(decode + ops));
}

TEST_P(BehindCallsTest, ARowThatIsRejectedIsMadeOfItsSubstitute) {
  const std::string ops = "  - resize: [20, 18]\n";
  const auto picky = caller([](CallRow& row) -> Status {
    row.rejected = row.item % 10 == 7;
    return row.rejected ? Status() : unchanged(row);
  });
  const auto blames = caller([](CallRow& row) -> Status {
    if (row.item % 10 == 3) return {Code::kDataLoss, "it is blurred"};
    return unchanged(row);
  });
  const Made wanted = make("  - decode_image\n" + ops);
  const Made made =
      make("  - decode_image\n" + python_of(kAnySize) + ops + python_of("uint8[20,18,3]"),
           {picky, blames});
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  for (std::uint64_t row = 0; row < kBoxedItems; ++row) {
    const std::uint64_t item = made.reader->item(row);
    EXPECT_NE(item % 10, 7U);
    EXPECT_NE(item % 10, 3U);
    EXPECT_EQ(item == row, row % 10 != 7 && row % 10 != 3) << row;
    // The batch has the one as [3, 20, 18] and the other as it is declared.
    std::string pixels = wanted.row(item, "image");
    std::string stacked;
    for (std::size_t at = 0; at < 20 * 18; ++at) {
      for (std::size_t channel = 0; channel < 3; ++channel)
        stacked += pixels[channel * 20 * 18 + at];
    }
    EXPECT_EQ(made.row(row, "image"), stacked) << row;
  }
}

TEST_P(BehindCallsTest, ARowThatIsRejectedAndStaysHasNothing) {
  const auto picky = caller([](CallRow& row) -> Status {
    row.rejected = row.item % 10 == 7;
    return row.rejected ? Status() : unchanged(row);
  });
  const auto second = caller(unchanged);
  const std::string ops = "  - decode_image: {field: mask}\n  - decode_image\n" +
                          python_of(kAnySize, "image", ", rejected: invalid") +
                          "  - resize: {size: [20, 18], fields: image}\n" +
                          python_of("uint8[20,18,3]") +
                          "  - to_dtype: {dtype: float32, fields: image}\n" +
                          "  - resize: {size: [9, 9], fields: mask}\n";
  const Made made = make(ops, {picky, second});
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  const auto is_zero = [](const std::string& row) {
    return std::all_of(row.begin(), row.end(), [](char value) { return value == 0; });
  };
  for (std::uint64_t row = 0; row < kBoxedItems; ++row) {
    EXPECT_EQ(made.reader->valid(row), row % 10 != 7);
    EXPECT_EQ(is_zero(made.row(row, "image")), row % 10 == 7) << row;
    EXPECT_FALSE(is_zero(made.row(row, "mask")));
  }
  EXPECT_EQ(second->calls, static_cast<int>(kBoxedItems - kBoxedItems / 10));
}

TEST_P(BehindCallsTest, ARowThatMetATransientErrorKeepsWhatItHas) {
  std::atomic<int> left = 3;
  const auto flaky = caller([&](CallRow& row) -> Status {
    if (row.item == 5 && left.fetch_sub(1) > 0) return {Code::kUnavailable, "TimeoutError"};
    return unchanged(row);
  });
  const auto first = caller(unchanged);
  const std::string ops = "  - resize: [20, 18]\n  - random_horizontal_flip\n";
  expect_same(make("  - decode_image\n" + python_of(kAnySize) + "  - resize: [20, 18]\n" +
                       python_of("uint8[20,18,3]") + "  - random_horizontal_flip\n",
                   {first, flaky}),
              make("  - decode_image\n" + ops));
  EXPECT_EQ(first->calls, static_cast<int>(kBoxedItems));
  EXPECT_EQ(flaky->calls, static_cast<int>(kBoxedItems) + 3);
}

// The picture between two resizes takes 24 MiB, which one row in two has to wait for.
constexpr const char* kLargeBetween =
    "  - resize: [2896, 2896]\n  - random_horizontal_flip\n  - resize: [20, 18]\n";

TEST_P(BehindCallsTest, RowsWaitForMemory) {
  const auto calls = caller(unchanged);
  expect_same(make("  - decode_image\n" + python_of(kAnySize) + kLargeBetween, {calls}),
              make("  - decode_image\n" + std::string(kLargeBetween)));
  EXPECT_EQ(calls->calls, static_cast<int>(kBoxedItems));
  EXPECT_GT(executor_.most_decode_memory(), std::uint64_t{24} << 20);
}

TEST_P(BehindCallsTest, ARowThatTakesTooMuchMemoryIsRefused) {
  const Made made = make("  - decode_image\n" + python_of(kAnySize) + kLargeBetween,
                         {caller(unchanged)}, std::uint64_t{20} << 20);
  EXPECT_THAT(made.status.message(),
              HasSubstr("'resize + random_horizontal_flip + resize' would take"));
  EXPECT_THAT(made.status.message(), HasSubstr("limits.row_memory is 20971520"));
}

TEST_P(BehindCallsTest, ARowWithoutPixelsIsRefused) {
  const auto empty = caller([](CallRow& row) -> Status {
    put(row.answers[0], nullptr, 0);
    row.answers[0].shape = {0, 8, 3};
    return {};
  });
  const Made made =
      make("  - decode_image\n" + python_of(kAnySize) + "  - resize: [20, 18]\n", {empty});
  EXPECT_THAT(made.status.message(), HasSubstr("came back from 'python' without pixels"));
}

INSTANTIATE_TEST_SUITE_P(AnsweredBy, BehindCallsTest, ::testing::Values(0U, 1U, 3U),
                         [](const auto& threads) {
                           return threads.param == 0 ? std::string("TheCallItself")
                                                     : std::to_string(threads.param) + "Threads";
                         });

}  // namespace
}  // namespace spdld::engine
