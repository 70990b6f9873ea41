// SPDX-License-Identifier: Apache-2.0
#include "source/python_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "source/bytes/binary.h"
#include "source/item/columns.h"
#include "source/kept/kept_datasets.h"
#include "tests/unit/source/item/fake_sink.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A user's processes: answers at once, or never.
class Processes final : public RowCaller {
 public:
  using Answer = std::function<Status(CallRow& row)>;
  explicit Processes(Answer answer) : answer_(std::move(answer)) {}
  ~Processes() override {
    if (sink_ != nullptr) sink_->called(token_, {Code::kCancelled, "let go"});
  }

  void call(CallRow& row, CallSink& sink, std::uint64_t token) override {
    EXPECT_TRUE(row.describes);
    if (answer_) return sink.called(token, answer_(row));
    sink_ = &sink;
    token_ = token;
  }
  void look_for_dropped() override {}
  std::string waits_for() const override { return answer_ ? "" : "start them by 'runner'"; }
  std::string wanted() const override { return answer_ ? "" : "pool"; }

 private:
  const Answer answer_;
  CallSink* sink_ = nullptr;
  std::uint64_t token_ = 0;
};

std::string description(const std::vector<std::string>& names, std::uint64_t rows,
                        const std::vector<std::string>& classes = {}) {
  std::vector<Columns::Info> infos;
  for (const std::string& name : names) infos.push_back({.name = name});
  ColumnsBuilder columns(std::move(infos));
  for (std::uint64_t row = 0; row < rows && !names.empty(); ++row)
    for (std::size_t column = 0; column < names.size(); ++column)
      columns.add(column, static_cast<std::int64_t>(100 * column + row));
  BinaryWriter out;
  if (names.empty()) {  // as a dataset without columns() is told
    out.number(rows);
    out.number<std::uint64_t>(0);
  } else {
    std::move(columns).finish().write(out);
  }
  out.number<std::uint64_t>(classes.size());
  for (const std::string& name : classes) out.string(name);
  return out.text();
}

class PythonSourceTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Source>> open(Processes::Answer answer, const std::string& dataset = "") {
    SourceOptions options(io_);
    options.kept = kept_.get();
    options.dataset = dataset;
    options.stop = stop_.get_token();
    options.may_wait_for_runners = may_wait_;
    options.open_call = [&, answer](const CallSpec&) -> Result<std::shared_ptr<RowCaller>> {
      ++asked_;
      return std::make_shared<Processes>(answer);
    };
    options.wait_for_runners = [this](const std::string& what,
                                      const std::vector<std::string>& pools) {
      waited_for_ = what;
      pools_ = pools;
      stop_.request_stop();
    };
    return open_python(spec_, std::move(options));
  }
  Result<std::unique_ptr<Source>> open_described(const std::string& text,
                                                 const std::string& dataset = "") {
    return open(
        [text](CallRow& row) {
          row.description = text;
          return Status();
        },
        dataset);
  }
  std::string refusal(const std::string& text) {
    const auto opened = open_described(text);
    return opened ? "none" : opened.error().message();
  }

  TempDir dir_;
  IoPool io_{{.threads = 1}};
  std::unique_ptr<KeptDatasets> kept_ = std::make_unique<KeptDatasets>(dir_.path("listings"));
  DatasetSpec spec_{.call = {.call = "/home/ann/data.py:Pets",
                             .in = {{.name = "index", .kind = CallField::Kind::kInt64},
                                    {.name = "items", .kind = CallField::Kind::kInt64}}}};
  std::stop_source stop_;
  bool may_wait_ = true;
  int asked_ = 0;
  std::string waited_for_;
  std::vector<std::string> pools_;
};

TEST_F(PythonSourceTest, HasAsManyItemsAsItsProcessesSayAndTheirColumnsAsValues) {
  const auto source = open_described(description({"length", "label"}, 5, {"cat", "dog"}));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ((*source)->size(), 5U);
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(3, 0)), 3) << "its index";
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(3, 1)), 5) << "how many there are";
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(3, 2)), 3);
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(3, 3)), 103);
  EXPECT_THAT((*source)->classes(), ElementsAre("cat", "dog"));
  EXPECT_TRUE((*source)->fields().back().classes);
  EXPECT_EQ((*source)->uri(3), "data.py:Pets[3]");
}

TEST_F(PythonSourceTest, BringsNothingByItself) {
  const auto source = open_described(description({}, 5));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ((*source)->size(), 5U);
  FetchedItem item;
  FakeSink sink;
  const auto state = (*source)->fetch(2, {}, item, sink, 1);
  ASSERT_TRUE(state);
  EXPECT_EQ(*state, FetchState::kReady);
  EXPECT_EQ(item.parts(), 0U);
}

TEST_F(PythonSourceTest, IsOpenedAgainAsItWasWithoutAskingAnybody) {
  const auto first = open_described(description({"length"}, 5, {"cat"}));
  ASSERT_TRUE(first) << first.error().message();
  const std::string dataset = (*first)->dataset();
  kept_ = std::make_unique<KeptDatasets>(dir_.path("listings"));
  const auto again = open_described("", dataset);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ((*again)->size(), 5U);
  EXPECT_EQ((*again)->listing_digest(), (*first)->listing_digest());
  EXPECT_EQ((*again)->values_digest(), (*first)->values_digest());
  EXPECT_THAT((*again)->classes(), ElementsAre("cat"));
}

TEST_F(PythonSourceTest, WhatWasKeptAndIsLostIsAskedForAgainAndMustBeTheSame) {
  const auto first = open_described(description({"length"}, 5));
  ASSERT_TRUE(first) << first.error().message();
  const std::string dataset = (*first)->dataset();
  kept_ = std::make_unique<KeptDatasets>(dir_.path("lost"));
  EXPECT_TRUE(open_described(description({"length"}, 5), dataset));
  kept_ = std::make_unique<KeptDatasets>(dir_.path("lost again"));
  const auto other = open_described(description({"length"}, 6), dataset);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kDataLoss);
  EXPECT_THAT(other.error().message(), HasSubstr("has other items by now"));
}

TEST_F(PythonSourceTest, AnotherNumberOfItemsIsAnotherListing) {
  const auto five = open_described(description({}, 5));
  const auto six = open_described(description({}, 6));
  ASSERT_TRUE(five && six);
  EXPECT_NE((*five)->listing_digest(), (*six)->listing_digest());
  EXPECT_NE((*five)->dataset(), (*six)->dataset());
}

TEST_F(PythonSourceTest, WhatItsProcessesSayIsHeldAgainstItsForm) {
  const std::string good = description({"length"}, 5, {"cat"});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THAT(refusal(good.substr(0, size)), HasSubstr("nothing of its items that can be read"))
        << size;
  EXPECT_THAT(refusal(good + "x"), HasSubstr("nothing of its items that can be read"));
  EXPECT_THAT(refusal(description({}, 0)), HasSubstr("it has no items"));
  EXPECT_THAT(refusal(description({}, std::uint64_t{1} << 60)), HasSubstr("more than the"));
  EXPECT_THAT(refusal(description({"index"}, 5)), HasSubstr("there is a column 'index' already"));
  EXPECT_THAT(refusal(description({"a", "a"}, 5)), HasSubstr("there is a column 'a' already"));
}

TEST_F(PythonSourceTest, WhatADatasetRaisesIsTold) {
  const auto opened = open([](CallRow&) {
    return Status(Code::kFailedPrecondition, "data.py:Pets raised\nKeyError: 'root'");
  });
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(), HasSubstr("KeyError: 'root'"));
}

TEST_F(PythonSourceTest, WhoeverWaitsHearsWhichProcessesAreMissingAndMayGiveUp) {
  const auto opened = open(nullptr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kCancelled);
  EXPECT_EQ(waited_for_, "start them by 'runner'");
  EXPECT_THAT(pools_, ElementsAre("pool"));
}

TEST_F(PythonSourceTest, WhereNobodyWouldStartProcessesTheCommandIsAnError) {
  may_wait_ = false;
  const auto opened = open(nullptr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(opened.error().message(), HasSubstr("start them by 'runner'"));
}

}  // namespace
}  // namespace spdld::source
