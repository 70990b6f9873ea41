// SPDX-License-Identifier: Apache-2.0
#include "source/file/file_fetcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>

#include "base/memory/no_memory.h"
#include "tests/conformance/disk_suite.h"
#include "tests/support/clocks.h"
#include "tests/unit/source/item/fake_sink.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using spdld::testing::AheadClock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// The real disk, with what may go wrong put in front.
struct Faults {
  std::atomic<int> opens_fail = 0;  // so many times, with `error`
  std::atomic<int> cached_reads_fail = 0;
  std::atomic<int> reads_fail = 0;
  std::atomic<int> error = EIO;
  std::atomic<std::size_t> cached_bytes = ~std::size_t{0};  // of each file, in the page cache
  std::atomic<std::ptrdiff_t> size_lies = 0;                // added to the size that open() tells
  std::atomic<bool> cached_reads_say_zero = false;
  std::atomic<bool> blocks = false;
  std::atomic<int> opens = 0;
  std::atomic<int> reads = 0;
  std::atomic<int> opens_on_caller = 0;
  std::atomic<bool> reads_hang = false;  // as in the kernel, until let_go
  std::counting_semaphore<> hanging{0};
  std::counting_semaphore<> let_go{0};
  std::thread::id caller = std::this_thread::get_id();
};

class FaultyDisk final : public Disk {
 public:
  FaultyDisk(const std::string& root, Faults& faults)
      : disk_(UniqueFd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
              std::make_shared<const Access>(AccessRules(), Credentials::own()),
              Access::Links::kFollow, false, 1),
        faults_(faults) {}

  int open(const std::string& uri, OpenFile& file) override {
    ++faults_.opens;
    if (std::this_thread::get_id() == faults_.caller) ++faults_.opens_on_caller;
    if (faults_.opens_fail-- > 0) return faults_.error;
    const int err = disk_.open(uri, file);
    file.size_bytes += static_cast<std::uint64_t>(faults_.size_lies.load());
    return err;
  }
  ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                      std::uint64_t offset) override {
    if (faults_.cached_reads_fail-- > 0) return -faults_.error;
    const std::size_t cached = faults_.cached_bytes;
    if (offset >= cached) return faults_.cached_reads_say_zero ? 0 : -EAGAIN;
    return disk_.read(file, out.first(std::min(out.size(), cached - offset)), offset);
  }
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override {
    ++faults_.reads;
    if (faults_.reads_hang) {
      faults_.hanging.release();
      faults_.let_go.acquire();
    }
    if (faults_.reads_fail-- > 0) return -faults_.error;
    return disk_.read(file, out.first(std::min<std::size_t>(out.size(), 3)), offset);
  }
  bool opening_blocks() const override { return faults_.blocks; }
  dev_t device() const override { return 1; }

 private:
  SystemDisk disk_;
  Faults& faults_;
};

// While none of its faults is wanted.
class FaultyDiskMaker {
 public:
  std::unique_ptr<Disk> make(const TempDir& root) {
    return std::make_unique<FaultyDisk>(root.path(), faults_);
  }

 private:
  Faults faults_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, DiskSuite, FaultyDiskMaker);

// Of the files' time stamps, which are settled then.
constexpr std::chrono::seconds kAhead{60};

// All of one file.
Result<FetchState> fetch_file(FileFetcher& fetcher, const std::string& uri, FetchedItem& out,
                              FetchSink& sink, std::uint64_t token) {
  out.begin();
  out.add_range().uri = uri;
  out.add_place({});
  return fetcher.fetch(out, sink, token);
}

std::vector<FileRoot> faulty_root(const std::string& path, Faults& faults) {
  return one_root(path, std::make_unique<FaultyDisk>(path, faults));
}

class FileFetcherTest : public ::testing::Test {
 protected:
  FileFetcherTest() {
    dir_.file("a.bin", content_);
    clock_->advance(kAhead);
  }

  void start(int retries = 5, std::chrono::nanoseconds pause = std::chrono::nanoseconds(10),
             std::uint64_t max_bytes = 1000) {
    fetcher_ = std::make_unique<FileFetcher>(
        faulty_root(dir_.path(), faults_), io_, kReader,
        FileFetcher::Options{
            .reading = {.max_item_bytes = max_bytes, .buffers = buffers_, .clock = clock_},
            .retry = {.retries = retries},
            .retry_pause = pause});
  }
  // Asks for `uri` by what is known of it, and waits.
  Status fetch_revision(Revision& revision, const std::string& uri = "a.bin") {
    FakeSink sink;
    out_.revision = revision;
    out_.revision.asked = true;
    const auto state = fetch_file(*fetcher_, uri, out_, sink, 1);
    const Status status = !state                         ? state.error()
                          : *state == FetchState::kReady ? Status()
                                                         : sink.wait(1);
    revision = out_.revision;
    return status;
  }
  Result<FetchState> fetch() { return fetch_file(*fetcher_, "a.bin", out_, sink_, 1); }

  static constexpr uid_t kReader = 1001;
  const std::string content_ = "0123456789";
  TempDir dir_;
  Faults faults_;
  std::shared_ptr<AheadClock> clock_ = std::make_shared<AheadClock>();
  FakeSink sink_;
  // Room for one file at a time.
  std::shared_ptr<BufferMemory> buffers_ =
      std::make_shared<BufferMemory>(ByteBuffer::grown(content_.size() + 1));
  FetchedItem out_;
  IoPool io_{{.threads = 2}};
  std::unique_ptr<FileFetcher> fetcher_;
};

TEST_F(FileFetcherTest, ReadsWhatIsCachedOnTheCallersThread) {
  start();
  EXPECT_EQ(fetch(), FetchState::kReady);
  EXPECT_EQ(text_of(out_), content_);
  EXPECT_EQ(faults_.reads, 0);
  EXPECT_EQ(sink_.calls(1), 0);
}

TEST_F(FileFetcherTest, GoesOnInThePoolWhereTheCacheEnds) {
  for (const std::size_t cached : {std::size_t{0}, std::size_t{4}}) {
    faults_.cached_bytes = cached;
    start();
    out_.bytes.resize(0);
    FakeSink sink;  // a new one: the other has been told already
    EXPECT_EQ(fetch_file(*fetcher_, "a.bin", out_, sink, 1), FetchState::kPending);
    EXPECT_TRUE(sink.wait(1).ok());
    EXPECT_EQ(text_of(out_), content_);
  }
}

TEST_F(FileFetcherTest, TrustsNoCachedReadThatSaysTheFileEnds) {
  faults_.cached_bytes = 4;
  faults_.cached_reads_say_zero = true;
  start();
  EXPECT_EQ(fetch(), FetchState::kPending);
  EXPECT_TRUE(sink_.wait(1).ok());
  EXPECT_EQ(text_of(out_), content_);
}

TEST_F(FileFetcherTest, UsesThePoolWhereTheCacheCannotBeAsked) {
  for (const int err : {EOPNOTSUPP, ENOSYS, EINVAL}) {
    faults_.cached_reads_fail = 1;
    faults_.error = err;
    start(0);
    FakeSink sink;
    EXPECT_EQ(fetch_file(*fetcher_, "a.bin", out_, sink, 1), FetchState::kPending);
    EXPECT_TRUE(sink.wait(1).ok());
    EXPECT_EQ(text_of(out_), content_);
  }
}

TEST_F(FileFetcherTest, OpensInThePoolWhereOpeningMayBlock) {
  faults_.blocks = true;
  start();
  EXPECT_EQ(fetch(), FetchState::kPending);
  EXPECT_TRUE(sink_.wait(1).ok());
  EXPECT_EQ(faults_.opens, 1);
  EXPECT_EQ(faults_.opens_on_caller, 0);
  EXPECT_EQ(text_of(out_), content_);
}

TEST_F(FileFetcherTest, BringsAnEmptyFile) {
  dir_.file("empty", "");
  start();
  EXPECT_EQ(fetch_file(*fetcher_, "empty", out_, sink_, 1), FetchState::kReady);
  EXPECT_EQ(out_.bytes.size(), 0u);
}

TEST_F(FileFetcherTest, RetriesATransientErrorOfEachKind) {
  for (const int err : {EIO, ESTALE, ETIMEDOUT, ENETDOWN, EHOSTUNREACH, EMFILE}) {
    for (auto* failing : {&faults_.opens_fail, &faults_.reads_fail}) {
      faults_.cached_bytes = 0;
      faults_.opens_fail = faults_.reads_fail = 0;
      *failing = 3;
      faults_.error = err;
      start();
      FakeSink sink;
      ASSERT_EQ(fetch_file(*fetcher_, "a.bin", out_, sink, 1), FetchState::kPending);
      const Status status = sink.wait(1);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(text_of(out_), content_);
    }
  }
}

TEST_F(FileFetcherTest, OpensAgainForEachRetry) {
  faults_.cached_bytes = 0;
  faults_.reads_fail = 2;
  faults_.error = ESTALE;
  start();
  ASSERT_EQ(fetch(), FetchState::kPending);
  EXPECT_TRUE(sink_.wait(1).ok());
  EXPECT_EQ(faults_.opens, 3);
}

TEST_F(FileFetcherTest, GivesUpWhenTheRetriesAreUsedUp) {
  faults_.cached_bytes = 0;
  faults_.reads_fail = 100;
  start(4);
  ASSERT_EQ(fetch(), FetchState::kPending);
  const Status status = sink_.wait(1);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(dir_.path("a.bin")), HasSubstr("4 retries"),
                                      HasSubstr("Input/output error")));
  EXPECT_EQ(faults_.reads, 5);
}

TEST_F(FileFetcherTest, TellsLackOfMemoryFromStorageThatFails) {
  faults_.cached_bytes = 0;
  faults_.reads_fail = 100;
  faults_.error = ENOMEM;
  start(4);
  ASSERT_EQ(fetch(), FetchState::kPending);
  EXPECT_EQ(sink_.wait(1).code(), kNoMemory);
  EXPECT_EQ(faults_.reads, 5);
  start(0);
  faults_.opens_fail = 1;
  const auto state = fetch();
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), kNoMemory);
}

TEST_F(FileFetcherTest, CountsAFailureOnTheCallersThreadAsTheFirst) {
  faults_.opens_fail = 100;
  start(4);
  ASSERT_EQ(fetch(), FetchState::kPending);
  EXPECT_EQ(sink_.wait(1).code(), Code::kUnavailable);
  EXPECT_EQ(faults_.opens, 5);
}

TEST_F(FileFetcherTest, RetriesNothingWhenToldSo) {
  faults_.opens_fail = 1;
  start(0);
  const auto state = fetch();
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), Code::kUnavailable);
  EXPECT_EQ(faults_.opens, 1);
}

TEST_F(FileFetcherTest, RetriesNoErrorThatLasts) {
  struct Case {
    int err;
    Code code;
  };
  for (const auto& [err, code] :
       {Case{ENOENT, Code::kNotFound}, Case{EACCES, Code::kPermissionDenied},
        Case{EXDEV, Code::kPermissionDenied}, Case{ELOOP, Code::kPermissionDenied},
        Case{EISDIR, Code::kDataLoss}}) {
    faults_.opens = 0;
    faults_.opens_fail = 1;
    faults_.error = err;
    start();
    const auto state = fetch();
    ASSERT_FALSE(state);
    EXPECT_EQ(state.error().code(), code) << state.error().message();
    EXPECT_THAT(state.error().message(), HasSubstr(dir_.path("a.bin")));
    EXPECT_EQ(faults_.opens, 1);
  }
}

TEST_F(FileFetcherTest, NamesAFileThatBecameShorter) {
  faults_.size_lies = 5;
  start();
  ASSERT_EQ(fetch(), FetchState::kPending);  // the cache alone cannot tell
  const Status status = sink_.wait(1);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(dir_.path("a.bin") + " became shorter"));
}

TEST_F(FileFetcherTest, NamesAFileThatBecameLonger) {
  faults_.size_lies = -3;
  start();
  const auto cached = fetch();
  ASSERT_FALSE(cached);
  EXPECT_EQ(cached.error().code(), Code::kDataLoss);
  EXPECT_THAT(cached.error().message(), HasSubstr("became longer"));
  faults_.size_lies = -10;  // to nothing
  EXPECT_FALSE(fetch());
  faults_.cached_bytes = 0;
  ASSERT_EQ(fetch(), FetchState::kPending);
  EXPECT_EQ(sink_.wait(1).code(), Code::kDataLoss);
}

TEST_F(FileFetcherTest, RefusesAFileOverTheLimitBeforeItHasMemoryForIt) {
  faults_.size_lies = std::ptrdiff_t{1} << 50;
  start();
  const auto state = fetch();
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(out_.bytes.capacity(), 0u);
}

TEST_F(FileFetcherTest, WaitsClosedUntilThereIsRoomForTheFile) {
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(11))));
  FetchedItem second;
  const int opens = faults_.opens;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", second, sink_, 2), FetchState::kPending);
  EXPECT_EQ(sink_.calls(2), 0);
  out_.bytes.shrink(1000);
  EXPECT_TRUE(sink_.wait(2).ok());
  EXPECT_EQ(text_of(second), content_);
  EXPECT_EQ(faults_.opens, opens + 2) << "to see how large it is, and when there was room";
}

TEST_F(FileFetcherTest, ReadsAFileThatIsLargerThanAllRoomWhenThereIsNoOther) {
  dir_.file("large.bin", std::string(900, 'x'));
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  FetchedItem large;
  ASSERT_EQ(fetch_file(*fetcher_, "large.bin", large, sink_, 2), FetchState::kPending);
  out_ = FetchedItem();
  EXPECT_TRUE(sink_.wait(2).ok());
  EXPECT_EQ(large.bytes.size(), 900U);
}

TEST_F(FileFetcherTest, AFileThatIsGoneWhenThereIsRoomTakesNone) {
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  FetchedItem second;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", second, sink_, 2), FetchState::kPending);
  std::filesystem::remove(std::filesystem::path(dir_.path()) / "a.bin");
  out_.bytes.shrink(0);
  EXPECT_EQ(sink_.wait(2).code(), Code::kNotFound);
  second.bytes.shrink(0);
  EXPECT_THAT(buffers_->used(), IsEmpty());
}

TEST_F(FileFetcherTest, StandsInNobodysWayOnceItIsGone) {
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  {
    FileFetcher other(faulty_root(dir_.path(), faults_), io_, kReader,
                      {.reading = {.max_item_bytes = 1000, .buffers = buffers_}});
    FetchedItem waiting;
    ASSERT_EQ(fetch_file(other, "a.bin", waiting, sink_, 2), FetchState::kPending);
  }
  EXPECT_EQ(sink_.wait(2).code(), Code::kCancelled);
  FetchedItem third;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", third, sink_, 3), FetchState::kPending);
  out_.bytes.shrink(0);
  EXPECT_TRUE(sink_.wait(3).ok());
}

TEST_F(FileFetcherTest, LeavesTheRoomOfAWaitingFileToOthersWhereItsThreadsHang) {
  faults_.cached_bytes = 0;
  faults_.reads_hang = true;
  start();
  // The first has the one thread that the device gets of two, and the room.
  ASSERT_EQ(fetch(), FetchState::kPending);
  faults_.hanging.acquire();
  FetchedItem second;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", second, sink_, 2), FetchState::kPending);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(11))));
  faults_.reads_hang = false;
  faults_.let_go.release();
  EXPECT_TRUE(sink_.wait(1).ok());
  out_.bytes.shrink(0);
  EXPECT_TRUE(sink_.wait(2).ok());
}

TEST_F(FileFetcherTest, ASubstituteLargerThanTheItemBeforeDropsThatFirst) {
  dir_.file("large.bin", std::string(900, 'x'));
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  ASSERT_EQ(fetch_file(*fetcher_, "large.bin", out_, sink_, 2), FetchState::kReady);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(901))));
}

TEST_F(FileFetcherTest, CancelsWhatWaitsForRoomWhenThePoolStops) {
  start();
  ASSERT_EQ(fetch(), FetchState::kReady);
  FetchedItem second;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", second, sink_, 2), FetchState::kPending);
  io_.stop();
  EXPECT_EQ(sink_.wait(2).code(), Code::kCancelled);
  out_.bytes.shrink(0);
  EXPECT_THAT(buffers_->used(), IsEmpty());
}

TEST_F(FileFetcherTest, BringsFilesOneByOneWhereThereIsRoomForOne) {
  start();
  std::vector<FetchedItem> outs(20);
  for (std::uint64_t i = 0; i < outs.size(); ++i) {
    const auto state = fetch_file(*fetcher_, "a.bin", outs[i], sink_, i);
    ASSERT_EQ(state, i == 0 ? FetchState::kReady : FetchState::kPending);
  }
  outs[0].bytes.shrink(0);
  for (std::uint64_t i = 1; i < outs.size(); ++i) {
    EXPECT_TRUE(sink_.wait(i).ok()) << i;
    EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(11))));
    outs[i].bytes.shrink(0);
  }
}

TEST_F(FileFetcherTest, TellsWhenThereIsNoMemory) {
#ifdef SPDLD_SANITIZED
  GTEST_SKIP() << "sanitizers end the process in place of throwing bad_alloc";
#endif
  faults_.size_lies = std::ptrdiff_t{1} << 60;
  start(5, std::chrono::nanoseconds(10), ~std::uint64_t{0});
  const auto state = fetch();
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), kNoMemory);
  EXPECT_THAT(state.error().message(), HasSubstr("no memory"));
}

TEST_F(FileFetcherTest, CancelsPausesWhenItIsDestroyed) {
  faults_.opens_fail = 100;
  start(100, std::chrono::hours(1));
  ASSERT_EQ(fetch(), FetchState::kPending);
  fetcher_.reset();
  EXPECT_EQ(sink_.wait(1).code(), Code::kCancelled);
  EXPECT_EQ(sink_.calls(1), 1);
}

TEST_F(FileFetcherTest, TellsEachSinkOnceWhenItIsDestroyed) {
  faults_.cached_bytes = 0;
  start();
  std::vector<FetchedItem> buffers(200);
  for (std::uint64_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(fetch_file(*fetcher_, "a.bin", buffers[i], sink_, i), FetchState::kPending);
  }
  fetcher_.reset();
  int cancelled = 0;
  for (std::uint64_t i = 0; i < buffers.size(); ++i) {
    const Status status = sink_.wait(i);  // an I/O thread may be just about to tell it
    if (status.ok()) {
      EXPECT_EQ(text_of(buffers[i]), content_);
    } else {
      EXPECT_EQ(status.code(), Code::kCancelled);
      ++cancelled;
    }
    EXPECT_EQ(sink_.calls(i), 1);
  }
  RecordProperty("cancelled", cancelled);
}

TEST_F(FileFetcherTest, DiesAtOnceWhileTheKernelHasAReadAndTellsNobodyLater) {
  faults_.cached_bytes = 0;
  faults_.reads_hang = true;
  start();
  auto sink = std::make_unique<FakeSink>();
  auto out = std::make_unique<FetchedItem>();
  out->revision.asked = true;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", *out, *sink, 1), FetchState::kPending);
  faults_.hanging.acquire();
  fetcher_.reset();
  EXPECT_EQ(sink->wait(1).code(), Code::kCancelled);
  EXPECT_EQ(sink->calls(1), 1);
  EXPECT_FALSE(out->revision.stamp);
  // Nobody is left whom the answer could reach: asan would see it.
  sink.reset();
  out.reset();
  faults_.reads_hang = false;
  faults_.let_go.release();
}

TEST_F(FileFetcherTest, HoldsNoPlaceInThePoolForReadsOfAFetcherThatIsGone) {
  faults_.cached_bytes = 0;
  faults_.reads_hang = true;
  std::vector<FetchedItem> buffers(5);
  IoPool io({.threads = 1, .max_tasks = 5});
  {
    FileFetcher gone(faulty_root(dir_.path(), faults_), io, kReader,
                     {.reading = {.max_item_bytes = 1000}});
    for (std::uint64_t i = 0; i < buffers.size(); ++i)
      ASSERT_EQ(fetch_file(gone, "a.bin", buffers[i], sink_, i), FetchState::kPending);
    faults_.hanging.acquire();
  }
  faults_.reads_hang = false;
  FileFetcher next(faulty_root(dir_.path(), faults_), io, kReader,
                   {.reading = {.max_item_bytes = 1000}});
  for (std::uint64_t i = 1; i < buffers.size(); ++i)
    EXPECT_EQ(fetch_file(next, "a.bin", buffers[i], sink_, 10 + i), FetchState::kPending);
  faults_.let_go.release();
  for (std::uint64_t i = 1; i < buffers.size(); ++i) EXPECT_TRUE(sink_.wait(10 + i).ok());
  EXPECT_EQ(faults_.reads, 5 * 4) << "none of those that were dropped has begun";
}

TEST_F(FileFetcherTest, MayBeDestroyedByTheSinkThatItTells) {
  // As when the row that has come is the last thing that keeps the source.
  class Owner final : public FetchSink {
   public:
    void fetched(std::uint64_t, Status status) override {
      fetcher.reset();
      told = std::move(status);
      done.release();
    }
    std::unique_ptr<FileFetcher> fetcher;
    Status told;
    std::binary_semaphore done{0};
  } owner;
  faults_.cached_bytes = 0;
  faults_.reads_hang = true;
  start();
  owner.fetcher = std::move(fetcher_);
  ASSERT_EQ(fetch_file(*owner.fetcher, "a.bin", out_, owner, 1), FetchState::kPending);
  faults_.hanging.acquire();
  faults_.reads_hang = false;
  faults_.let_go.release();
  owner.done.acquire();
  EXPECT_TRUE(owner.told.ok()) << owner.told.message();
  EXPECT_EQ(text_of(out_), content_);
}

TEST_F(FileFetcherTest, CancelsWhatIsPendingWhenThePoolStops) {
  faults_.opens_fail = 100;
  start(100, std::chrono::hours(1));
  ASSERT_EQ(fetch(), FetchState::kPending);
  io_.stop();
  EXPECT_EQ(sink_.wait(1).code(), Code::kCancelled);
  const auto refused = fetch();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kCancelled);
}

TEST_F(FileFetcherTest, CancelsWhatTheKernelHasWhenThePoolStops) {
  faults_.cached_bytes = 0;
  faults_.reads_hang = true;
  start();
  std::vector<FetchedItem> buffers(4);  // two of them wait for a thread
  for (std::uint64_t i = 0; i < buffers.size(); ++i)
    ASSERT_EQ(fetch_file(*fetcher_, "a.bin", buffers[i], sink_, i), FetchState::kPending);
  faults_.hanging.acquire();
  io_.stop();
  for (std::uint64_t i = 0; i < buffers.size(); ++i)
    EXPECT_EQ(sink_.wait(i).code(), Code::kCancelled);
  EXPECT_FALSE(io_.idle_within(std::chrono::nanoseconds(0)));
  faults_.reads_hang = false;
  faults_.let_go.release(2);
  EXPECT_TRUE(io_.idle_within(std::chrono::hours(1)));
  for (std::uint64_t i = 0; i < buffers.size(); ++i) EXPECT_EQ(sink_.calls(i), 1);
}

TEST_F(FileFetcherTest, BringsNothingWhereTheFileIsWhatTheCallerKnows) {
  for (const bool blocks : {false, true}) {
    faults_.blocks = blocks;
    start();
    Revision revision;
    ASSERT_TRUE(fetch_revision(revision).ok());
    ASSERT_TRUE(revision.stamp);
    EXPECT_FALSE(revision.unchanged);
    EXPECT_EQ(text_of(out_), content_);

    out_.bytes.resize(0);
    revision.known = revision.stamp;
    const int reads = faults_.reads;
    ASSERT_TRUE(fetch_revision(revision).ok());
    EXPECT_TRUE(revision.unchanged);
    EXPECT_EQ(out_.bytes.size(), 0U);
    EXPECT_EQ(faults_.reads, reads);
  }
}

TEST_F(FileFetcherTest, CountsWhatTheCallerHasOfAnUnchangedFile) {
  start();
  Revision revision;
  ASSERT_TRUE(fetch_revision(revision).ok());
  revision.known = revision.stamp;
  revision.kept_bytes = 1000;
  ASSERT_TRUE(fetch_revision(revision).ok());
  EXPECT_TRUE(revision.unchanged);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(1) + 1000)));

  FetchedItem second;
  second.revision = revision;
  ASSERT_EQ(fetch_file(*fetcher_, "a.bin", second, sink_, 2), FetchState::kPending);
  EXPECT_EQ(sink_.calls(2), 0);
  out_.bytes.shrink(0);
  EXPECT_TRUE(sink_.wait(2).ok());
  EXPECT_TRUE(second.revision.unchanged);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(1) + 1000)));

  second.bytes.shrink(0);
  revision.known->inode += 1;
  ASSERT_TRUE(fetch_revision(revision).ok());
  EXPECT_FALSE(revision.unchanged);
  EXPECT_THAT(buffers_->used(), ElementsAre(Pair(kReader, ByteBuffer::grown(11))));
}

TEST_F(FileFetcherTest, BringsAFileThatChangedThoughItsSizeDidNot) {
  start();
  Revision revision;
  ASSERT_TRUE(fetch_revision(revision).ok());
  revision.known = revision.stamp;
  dir_.file("new", "abcdefghij");
  std::filesystem::rename(dir_.path("new"), dir_.path("a.bin"));
  ASSERT_TRUE(fetch_revision(revision).ok());
  EXPECT_FALSE(revision.unchanged);
  EXPECT_EQ(text_of(out_), "abcdefghij");
  EXPECT_NE(revision.stamp, revision.known);
}

TEST_F(FileFetcherTest, GivesNoStampToWhatMayChangeAgainUnseen) {
  clock_->advance(-kAhead);  // the file was written within this tick
  start();
  timespec times[2] = {};
  ::clock_gettime(CLOCK_REALTIME, &times[1]);
  times[1].tv_sec += 3600;  // by a machine whose clock is ahead
  times[0] = times[1];
  ASSERT_EQ(::utimensat(AT_FDCWD, dir_.path("a.bin").c_str(), times, 0), 0);
  Revision revision;
  ASSERT_TRUE(fetch_revision(revision).ok());
  EXPECT_EQ(text_of(out_), content_);
  EXPECT_FALSE(revision.stamp);
}

TEST_F(FileFetcherTest, BringsNothingOfAFileThatNeedNotBeThere) {
  start();
  for (const char* const first : {"none.bin", "a.bin"}) {
    const bool is_first = first == std::string("a.bin");
    out_.begin();
    for (const bool own : {is_first, !is_first}) {
      FileRange& range = out_.add_range();
      range.uri = own ? "a.bin" : "none.bin";
      range.listed = false;
      range.may_be_absent = true;
      out_.add_place({.range = out_.ranges().size() - 1});
    }
    FakeSink sink;
    const auto state = fetcher_->fetch(out_, sink, 1);
    ASSERT_TRUE(state) << state.error().message();
    if (*state == FetchState::kPending) {
      ASSERT_TRUE(sink.wait(1).ok());
    }
    const std::size_t there = is_first ? 0 : 1;
    EXPECT_FALSE(out_.is_absent(there));
    EXPECT_EQ(text_of(out_.part(there)), content_);
    EXPECT_TRUE(out_.is_absent(1 - there));
    EXPECT_TRUE(out_.part(1 - there).empty());
  }
}

TEST_F(FileFetcherTest, GivesNoStampToWhatCouldNotBeRead) {
  start();
  Revision revision;
  ASSERT_TRUE(fetch_revision(revision).ok());
  faults_.opens_fail = 1;
  faults_.error = ENOENT;
  EXPECT_EQ(fetch_revision(revision).code(), Code::kNotFound);
  EXPECT_FALSE(revision.stamp);
  EXPECT_FALSE(revision.unchanged);
}

TEST(ItemStamps, SettleWhenTheClockOfTheirFileSystemHasGoneOn) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const ItemStamp fine{.mtime_ns = 50 * kSecond + 1, .ctime_ns = 60 * kSecond + 1};
  EXPECT_FALSE(is_settled(fine, 60 * kSecond + kSecond / 100));
  EXPECT_TRUE(is_settled(fine, 60 * kSecond + kSecond / 5));
  const ItemStamp coarse{.mtime_ns = 50 * kSecond, .ctime_ns = 60 * kSecond + 1};
  EXPECT_FALSE(is_settled(coarse, 61 * kSecond));
  EXPECT_TRUE(is_settled(coarse, 63 * kSecond));
}

TEST(FileFetcher, TellsWhenThePoolIsFull) {
  TempDir dir;
  dir.file("a.bin", "x");
  Faults faults;
  faults.opens_fail = 100;
  FakeSink sink;
  FetchedItem first;
  FetchedItem second;
  IoPool io({.threads = 1, .max_tasks = 1});
  FileFetcher fetcher(faulty_root(dir.path(), faults), io, 1001,
                      {.reading = {.max_item_bytes = 1000},
                       .retry = {.retries = 100},
                       .retry_pause = std::chrono::hours(1)});
  ASSERT_EQ(fetch_file(fetcher, "a.bin", first, sink, 1), FetchState::kPending);
  const auto refused = fetch_file(fetcher, "a.bin", second, sink, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(sink.calls(2), 0);
}

}  // namespace
}  // namespace spdld::source
