// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "tests/unit/delivery/runners/runner_fixture.h"

namespace spdld::delivery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RunnerTest, ValuesOfEveryKindGoInAndComeBack) {
  start();
  CallSpec spec = text_call(
      "def f(image, blob, text, count, score, flag, scale):\n"
      "    assert not image.flags.writeable and image.shape == (2, 3) and type(blob) is bytes\n"
      "    assert type(count) is int and type(score) is float and flag is True\n"
      "    return {'flag': not flag, 'image': image.astype(np.float32) * scale, 'blob': "
      "blob[::-1],\n"
      "            'text': text.upper(), 'count': count + 1, 'score': score / 2}\n");
  using Kind = CallField::Kind;
  spec.args = R"({"scale": 2})";
  spec.in = {array_field("image", DType::kUInt8, {-1, 3}),
             field_of("blob", Kind::kBytes),
             field_of("text", Kind::kText),
             field_of("count", Kind::kInt64),
             field_of("score", Kind::kFloat64),
             field_of("flag", Kind::kBool)};
  spec.out = spec.in;
  spec.out[0] = array_field("image", DType::kFloat32, {-1, 3});
  const auto caller = open(spec);
  start_supervisor(*caller);
  TestRow row{.row = {},
              .bytes = {std::string("\1\2\3\4\5\6"), std::string("a\0b", 3), "grün",
                        bytes_of_number<std::int64_t>(-5), bytes_of_number(3.0), std::string("\1")},
              .shapes = {{2, 3}}};
  row.point();
  caller->call(row.row, sink_, 0);
  sink_.wait(1);
  ASSERT_TRUE(sink_.status(0).ok()) << sink_.status(0).message();
  ASSERT_EQ(row.row.answers.size(), 6u);
  EXPECT_FALSE(row.row.rejected);
  std::string floats;
  for (int i = 1; i <= 6; ++i) floats += bytes_of_number(2.0F * static_cast<float>(i));
  EXPECT_EQ(row.answer(0), floats);
  EXPECT_EQ(row.row.answers[0].shape[0], 2);
  EXPECT_EQ(row.row.answers[0].shape[1], 3);
  EXPECT_EQ(row.answer(1), std::string("b\0a", 3));
  EXPECT_EQ(row.answer(2), "GRÜN");
  EXPECT_EQ(row.answer(3), bytes_of_number<std::int64_t>(-4));
  EXPECT_EQ(row.answer(4), bytes_of_number(1.5));
  EXPECT_EQ(row.answer(5), std::string(1, '\0'));
}

TEST_F(RunnerTest, WhatARowLacksIsNone) {
  start();
  CallSpec spec = text_call(
      "def f(image, text, count):\n"
      "    return ','.join('none' if x is None else 'some' for x in (image, text, count))\n");
  using Kind = CallField::Kind;
  spec.in = {array_field("image", DType::kUInt8, {-1, 3}), field_of("text", Kind::kText),
             field_of("count", Kind::kInt64)};
  for (CallField& field : spec.in) field.optional = true;
  const auto caller = open(spec);
  start_supervisor(*caller);
  const std::array<std::string, 5> told{"none,none,none", "some,none,none", "none,some,none",
                                        "none,none,some", "some,some,some"};
  for (std::uint64_t token = 0; token < told.size(); ++token) {
    TestRow& row = rows_.emplace_back();
    row.bytes = {"", "", bytes_of_number<std::int64_t>(0)};  // an empty one is there
    row.point();
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (token == 4 || token == i + 1) continue;
      row.row.arguments[i] = {.bytes = {}, .absent = true};
    }
    caller->call(row.row, sink_, token);
  }
  wait();
  for (std::uint64_t token = 0; token < told.size(); ++token) {
    ASSERT_TRUE(sink_.status(token).ok()) << sink_.status(token).message();
    EXPECT_EQ(rows_[token].answer(), told[token]);
  }
}

TEST_F(RunnerTest, ManyRowsComeBackEachOnce) {
  start();
  const auto caller = open(text_call("def f(x): return x + '!'\n", 2));
  start_supervisor(*caller);
  std::vector<std::string> texts(2000);
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = std::to_string(i);
  call(*caller, texts);
  wait();
  EXPECT_TRUE(sink_.each_once());
  for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(rows_[i].answer(), texts[i] + "!");
  const auto views = server_->runners();
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].rows + views[1].rows, 2000u);
  EXPECT_EQ(views[0].times.total().first, views[0].rows);
  EXPECT_LT(views[0].calls + views[1].calls, 2000u) << "rows that wait go together";
  EXPECT_EQ(caller->waits_for(), "");
}

TEST_F(RunnerTest, TellsWhatARowTakesInTheFunction) {
  start();
  for (const std::string kind : {"", "async "}) {
    const std::string sleeps = kind.empty() ? "time.sleep" : "await asyncio.sleep";
    const auto caller =
        open(text_call(kind + "def f(x):\n    if x: " + sleeps + "(0.05)\n    return x\n"));
    const std::string key = key_of(*caller);
    start_supervisor(key);
    call(*caller, {"a", "b", ""});
    wait();
    for (const RunnerView& view : server_->runners()) {
      if (view.key != key) continue;
      EXPECT_EQ(view.times.total().first, 3u);
      EXPECT_GE(view.times.percentile(0.5), std::chrono::milliseconds(40)) << kind;
    }
  }
}

TEST_F(RunnerTest, NoneRejectsTheRow) {
  start();
  const auto caller = open(text_call("def f(x): return x if x == 'a' else None\n"));
  start_supervisor(*caller);
  call(*caller, {"a", "b"});
  wait();
  EXPECT_TRUE(sink_.status(0).ok() && sink_.status(1).ok());
  EXPECT_FALSE(rows_[0].row.rejected);
  EXPECT_TRUE(rows_[1].row.rejected);
}

TEST_F(RunnerTest, WhatTheFunctionRaisesDecidesWhoseFaultItIs) {
  start();
  const auto caller =
      open(text_call("def deeper(x): raise KeyError(x)\n"
                     "def f(x):\n"
                     "    if x == 'bad': raise spdld.BadSample('no face in it')\n"
                     "    if x == 'slow': raise TimeoutError('the bucket')\n"
                     "    if x == 'exit': sys.exit(3)\n"
                     "    deeper(x)\n"));
  start_supervisor(*caller);
  call(*caller, {"bad", "slow", "exit", "other"});
  wait();
  EXPECT_EQ(sink_.status(0).code(), Code::kDataLoss);
  EXPECT_THAT(sink_.status(0).message(), HasSubstr("no face in it"));
  EXPECT_EQ(sink_.status(1).code(), Code::kUnavailable);
  EXPECT_THAT(sink_.status(1).message(), HasSubstr("TimeoutError: the bucket"));
  EXPECT_EQ(sink_.status(2).code(), Code::kFailedPrecondition);
  EXPECT_EQ(sink_.status(3).code(), Code::kFailedPrecondition);
  EXPECT_THAT(sink_.status(3).message(),
              AllOf(HasSubstr("KeyError: 'other'"), HasSubstr("in deeper"), HasSubstr("in f"),
                    Not(HasSubstr("_runner_child"))));
}

TEST_F(RunnerTest, SaysWhatWasDeclaredAndWhatCame) {
  start();
  CallSpec spec = text_call(
      "GIVES = {\n"
      "    'dtype': lambda: np.zeros((2, 2)), 'shape': lambda: np.zeros((2, 3), np.float32),\n"
      "    'rank': lambda: np.zeros(2, np.float32), 'list': lambda: [[0, 0], [0, 0]],\n"
      "    'name': lambda: {'z': 1}, 'missing': lambda: {}, 'object': object,\n"
      "    'large': lambda: np.zeros((2000, 2), np.float32)}\n"
      "def f(x): return GIVES[x]()\n");
  spec.out = {array_field("y", DType::kFloat32, {-1, 2}, 8000)};
  const auto caller = open(spec);
  start_supervisor(*caller);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"dtype", "gave 'y' as float64[2, 2], and 'out' declares float32[-1, 2]"},
      {"shape", "gave 'y' as float32[2, 3], and"},
      {"rank", "gave 'y' as float32[2], and"},
      {"list", "gave 'y' as list, and"},
      {"name", "gave no 'y'"},
      {"missing", "gave no 'y'"},
      {"object", "gave 'y' as object, and"},
      {"large", "gave 'y' of 16000 bytes, and a row of it may take 8000"}};
  for (const auto& [text, words] : cases) call(*caller, {text});
  wait();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(sink_.status(i).code(), Code::kFailedPrecondition) << cases[i].first;
    EXPECT_THAT(sink_.status(i).message(), HasSubstr(cases[i].second));
  }
}

TEST_F(RunnerTest, ATupleOrADictGivesSeveralFields) {
  start();
  CallSpec spec = text_call(
      "def f(x): return (x, len(x)) if x == 'a' else {'n': len(x), 'y': x} if x == 'bb' else x\n");
  spec.out.push_back(field_of("n", CallField::Kind::kInt64));
  const auto caller = open(spec);
  start_supervisor(*caller);
  call(*caller, {"a", "bb", "ccc"});
  wait();
  for (std::size_t i : {0u, 1u}) {
    ASSERT_TRUE(sink_.status(i).ok()) << sink_.status(i).message();
    EXPECT_EQ(rows_[i].answer(0), rows_[i].bytes[0]);
    EXPECT_EQ(rows_[i].answer(1), bytes_of_number<std::int64_t>(static_cast<int>(i) + 1));
  }
  EXPECT_THAT(sink_.status(2).message(), HasSubstr("'out' declares y, n"));
}

TEST_F(RunnerTest, DrawsHangOnTheRowsKeyAlone) {
  start();
  CallSpec spec = text_call("def f(x, rng): return str(rng.random()), str(os.getpid())\n", 2);
  spec.out.push_back(field_of("pid", CallField::Kind::kText));
  CallSpec global = text_call(
      "def f(x): return str((random.random(), np.random.random())), str(os.getpid())\n", 2);
  global.out = spec.out;
  for (const CallSpec& each : {spec, global}) {
    rows_.clear();
    TestSink sink;
    const auto caller = open(each);
    start_supervisor(*caller);
    // Every key twice, and in another order the second time.
    for (std::uint64_t token = 0; token < 40; ++token) {
      TestRow& row = rows_.emplace_back();
      row.bytes = {""};
      row.row.seed = 7;
      row.row.position = token < 20 ? token : 39 - token;
      row.point();
      caller->call(row.row, sink, token);
    }
    sink.wait(40);
    std::map<std::string, int> times;
    for (std::size_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(sink.status(i).ok()) << sink.status(i).message();
      EXPECT_EQ(rows_[i].answer(), rows_[39 - i].answer());
      ++times[rows_[i].answer()];
    }
    EXPECT_EQ(times.size(), 20u) << "another position, other draws";
  }
}

TEST_F(RunnerTest, CoroutinesOfACallRunAtOnce) {
  start();
  const auto caller =
      open(text_call("there = 0\n"
                     "async def f(x):\n"
                     "    global there\n"
                     "    there += 1\n"
                     "    while there % 8: await asyncio.sleep(0)\n"
                     "    return x\n"));
  // They wait in the queue for the supervisor, and so go together.
  call(*caller, std::vector<std::string>(8, "a"));
  start_supervisor(*caller);
  wait();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(sink_.status(i).ok());
}

TEST_F(RunnerTest, RowsLargerThanACellGetALargerOne) {
  start({.cells = {.input = 4096, .answers = 4096}});
  CallSpec spec = text_call("def f(x): return x[::-1]\n", 2);
  spec.out[0].max_bytes = 8 << 20;
  const auto caller = open(spec);
  start_supervisor(*caller);
  std::vector<std::string> texts;
  for (const std::size_t bytes : {10u, 3'000'000u, 100u, 5'000'000u, 20'000u, 0u, 300'000u})
    texts.push_back(std::string(bytes, 'a') + "b");
  call(*caller, texts);
  wait();
  EXPECT_TRUE(sink_.each_once());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(sink_.status(i).ok()) << sink_.status(i).message();
    EXPECT_EQ(rows_[i].answer(), std::string(texts[i].rbegin(), texts[i].rend()));
  }
}

TEST_F(RunnerTest, ChildrenMayImportAnew) {
  start();
  CallSpec spec =
      text_call("IMPORTED_BY = os.getpid()\ndef f(x): return str(os.getpid() == IMPORTED_BY)\n");
  const auto forked = open(spec);
  start_supervisor(*forked);
  spec.spawn = true;
  const auto spawned = open(spec);
  start_supervisor(*spawned);
  call(*forked, {""});
  call(*spawned, {""});
  wait();
  EXPECT_EQ(rows_[0].answer(), "False");
  EXPECT_EQ(rows_[1].answer(), "True");
}

TEST_F(RunnerTest, AFunctionHasOneThreadNoGpuNoInputAndNoWayToDisturb) {
  start();
  const auto caller =
      open(text_call("print('at import')\n"
                     "def f(x):\n"
                     "    print('to stdout'); print('to stderr', file=sys.stderr)\n"
                     "    os.write(1, b'raw')\n"
                     "    return ' '.join([os.environ['OMP_NUM_THREADS'], repr(sys.stdin.read()),\n"
                     "                     repr(os.environ['CUDA_VISIBLE_DEVICES'])])\n"));
  start_supervisor(*caller);
  call(*caller, {"a", "b"});
  wait();
  EXPECT_EQ(rows_[1].answer(), "1 '' ''");
  wait_until([&] { return log().find("raw") != std::string::npos; });
  EXPECT_THAT(log(), AllOf(HasSubstr("at import"), HasSubstr("to stdout"), HasSubstr("to stderr")));
}

TEST_F(RunnerTest, AFunctionCannotChangeItsInput) {
  start();
  CallSpec spec = text_call("def f(x):\n    x[0] = 1\n    return ''\n");
  spec.in = {array_field("x", DType::kUInt8, {4})};
  const auto caller = open(spec);
  start_supervisor(*caller);
  call(*caller, {"abcd"});
  wait();
  EXPECT_THAT(sink_.status(0).message(), HasSubstr("read-only"));
}

TEST_F(RunnerTest, WhatCannotBeImportedSaysWhichInterpreterAndWhy) {
  start();
  CallSpec spec = text_call("import nowhere_to_be_found\n");
  const auto caller = open(spec);
  call(*caller, {"a"});
  const pid_t supervisor = start_supervisor(*caller);
  wait();
  EXPECT_EQ(sink_.status(0).code(), Code::kFailedPrecondition);
  EXPECT_THAT(sink_.status(0).message(),
              AllOf(HasSubstr(std::getenv("SPDLD_TEST_PYTHON")), HasSubstr("sys.path"),
                    HasSubstr("No module named 'nowhere_to_be_found'")));
  EXPECT_EQ(exit_status(supervisor), 1);
  wait_until([&] { return caller->waits_for().find("nowhere_to_be_found") != std::string::npos; });
}

TEST_F(RunnerTest, RowsThatNobodyWantsComeBackUncalled) {
  start();
  const auto caller = open(text_call("def f(x): return x\n"));
  std::atomic<bool> dropped{false};
  for (std::uint64_t token = 0; token < 2; ++token) {
    TestRow& row = rows_.emplace_back();
    row.bytes = {"a"};
    row.row.dropped = token == 0 ? &dropped : nullptr;
    row.point();
    caller->call(row.row, sink_, token);
  }
  dropped = true;
  caller->look_for_dropped();
  sink_.wait(1);
  EXPECT_EQ(sink_.status(0).code(), Code::kCancelled);
  start_supervisor(*caller);
  wait();
  EXPECT_TRUE(sink_.status(1).ok());
}

TEST_F(RunnerTest, ARowIsTakenWhenItsPauseEndsAndHoldsUpNoOther) {
  start();
  const auto caller = open(text_call("def f(x): return x\n"));
  start_supervisor(*caller);
  std::atomic<bool> dropped{false};
  const auto begun = std::chrono::steady_clock::now();
  const auto pause = std::chrono::milliseconds(50);
  for (const std::chrono::nanoseconds of :
       {std::chrono::nanoseconds(std::chrono::hours(1)), std::chrono::nanoseconds(pause)}) {
    const std::uint64_t token = rows_.size();
    TestRow& row = rows_.emplace_back();
    row.bytes = {"a"};
    row.row.pause = of;
    row.row.dropped = &dropped;
    row.point();
    caller->call(row.row, sink_, token);
  }
  call(*caller, {"b"});
  sink_.wait_for(2);
  EXPECT_TRUE(sink_.status(2).ok());
  sink_.wait_for(1);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, pause);
  EXPECT_TRUE(sink_.status(1).ok());
  EXPECT_EQ(sink_.count(), 2u);
  dropped = true;
  caller->look_for_dropped();
  wait();
  EXPECT_EQ(sink_.status(0).code(), Code::kCancelled);
}

TEST_F(RunnerTest, WhoLetsGoGetsTheRowsBackAndOthersKeepThePool) {
  start();
  const CallSpec spec = text_call("def f(x): return x\n");
  auto first = open(spec);
  const auto second = open(spec);
  EXPECT_EQ(key_of(*first), key_of(*second));
  call(*first, {"a"});
  first.reset();
  wait();
  EXPECT_EQ(sink_.status(0).code(), Code::kCancelled);
  start_supervisor(*second);
  call(*second, {"b"});
  wait();
  EXPECT_TRUE(sink_.status(1).ok());
}

TEST_F(RunnerTest, SupervisorsEndWhenNobodyNeedsThem) {
  start({.linger = std::chrono::milliseconds(1)});
  auto caller = open(text_call("def f(x): return str(os.getpid())\n"));
  const pid_t supervisor = start_supervisor(*caller);
  call(*caller, {"a"});
  wait();
  caller.reset();
  EXPECT_EQ(exit_status(supervisor), 0);
  const pid_t child = std::stoi(rows_[0].answer());
  wait_until([&] { return ::kill(child, 0) != 0; });
}

TEST_F(RunnerTest, AStoppedServerGivesAllRowsBack) {
  start();
  const auto caller = open(text_call("def f(x): return x\n"));
  call(*caller, {"a"});
  TestRow& paused = rows_.emplace_back();
  paused.bytes = {"a"};
  paused.row.pause = std::chrono::hours(1);
  paused.point();
  caller->call(paused.row, sink_, 1);
  server_->stop();
  wait();
  call(*caller, {"b"});
  wait();
  for (std::uint64_t token = 0; token < 3; ++token)
    EXPECT_EQ(sink_.status(token).code(), Code::kCancelled);
}

// A dataset that is told of by more than its cells have room for at first.
TEST_F(RunnerTest, ADatasetIsDescribedOnceAndItsItemsAreAskedForByTheirIndex) {
  start();
  CallSpec spec = text_call(
      "class f:\n"
      "  def __len__(self): return 300000\n"
      "  def __getitem__(self, i): return 'item %d' % i\n"
      "  def columns(self): return {'length': np.arange(300000) << 30}\n");
  spec.is_dataset = true;
  spec.in = {field_of("index", CallField::Kind::kInt64),
             field_of("items", CallField::Kind::kInt64)};
  const auto caller = open(spec);
  start_supervisor(*caller);
  TestRow& asks = rows_.emplace_back();
  asks.row.describes = true;
  asks.bytes = {bytes_of_number<std::int64_t>(0), bytes_of_number<std::int64_t>(0)};
  asks.point();
  caller->call(asks.row, sink_, 0);
  for (const std::int64_t index : {7, 299999}) {
    TestRow& row = rows_.emplace_back();
    row.bytes = {bytes_of_number(index), bytes_of_number<std::int64_t>(300000)};
    row.point();
    caller->call(row.row, sink_, rows_.size() - 1);
  }
  TestRow& changed = rows_.emplace_back();
  changed.bytes = {bytes_of_number<std::int64_t>(7), bytes_of_number<std::int64_t>(8)};
  changed.point();
  caller->call(changed.row, sink_, 3);
  wait();
  ASSERT_TRUE(sink_.status(0).ok()) << sink_.status(0).message();
  EXPECT_GT(asks.row.description.size(), 300000u * sizeof(std::int64_t));
  EXPECT_EQ(rows_[1].answer(), "item 7");
  EXPECT_EQ(rows_[2].answer(), "item 299999");
  EXPECT_THAT(sink_.status(3).message(), HasSubstr("has 300000 items now"));
}

}  // namespace
}  // namespace spdld::delivery
